//! Checks whether a thread may wait on the file descriptors of a fabric's queues.

use std::ffi::c_int;
use std::ptr;

use super::{CompletionQueue, EventQueue, Fabric};

impl Fabric {
    /// Whether both queues are empty, so that a thread may wait on their descriptors. Otherwise
    /// they must be read first.
    pub(crate) fn may_sleep(
        &self,
        events: Option<&EventQueue>,
        done: Option<&CompletionQueue>,
    ) -> bool {
        let mut list = [ptr::null_mut(); 2];
        let both = [events.map(|events| events.object.fid()), done.map(|done| done.object.fid())];
        let mut count = 0;
        for fid in both.into_iter().flatten() {
            list[count] = fid;
            count += 1;
        }
        let trywait = self.object.get().ops.trywait;
        // SAFETY: the list holds `count` open queues of this fabric.
        let result = unsafe { trywait(self.object.at.as_ptr(), list.as_mut_ptr(), count as c_int) };
        result == 0
    }
}
