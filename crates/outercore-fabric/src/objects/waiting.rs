//! When the descriptors of a fabric's queues may be slept on.

use std::ffi::c_int;
use std::ptr;

use super::{CompletionQueue, EventQueue, Fabric};

impl Fabric {
    /// Whether nothing is waiting in the two queues, so that their descriptors may be slept on.
    /// Where it says no, they must be read first.
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
