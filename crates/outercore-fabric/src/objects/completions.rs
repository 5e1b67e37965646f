//! Finished transfers, and the queue that receives them.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use outercore_core::Result;

use super::{Domain, Object};
use crate::ffi;

/// A finished transfer, with the number that it was started with.
#[derive(Debug)]
pub(crate) struct Completion {
    pub context: usize,
    pub result: Result<()>,
}

/// The queue that receives finished transfers.
pub(crate) struct CompletionQueue {
    pub(super) object: Object<ffi::CqFid>,
    fd: c_int,
    domain: Arc<Domain>,
}

impl CompletionQueue {
    /// A queue with room for `size` completions.
    pub(crate) fn open(domain: &Arc<Domain>, size: usize) -> Result<Arc<Self>> {
        let what = "opening a completion queue";
        let mut attributes = ffi::CqAttr {
            size,
            flags: 0,
            format: ffi::FI_CQ_FORMAT_CONTEXT,
            wait_obj: ffi::FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut queue = ptr::null_mut();
        let open = domain.object.get().ops.cq_open;
        // SAFETY: the domain is open; both structures live until the call returns.
        let result = unsafe {
            open(domain.object.at.as_ptr(), &mut attributes, &mut queue, ptr::null_mut())
        };
        domain.object.library.check(result, what)?;
        let object = Object::new(&domain.object.library, queue, what)?;
        let fd = object.descriptor(what)?;
        Ok(Arc::new(Self { object, fd, domain: Arc::clone(domain) }))
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue owns the descriptor and keeps it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// Appends the finished transfers to `done`, and lets the provider make progress. Returns the
    /// number of appended transfers.
    ///
    /// # Errors
    /// `Io`: the queue itself has failed.
    pub(crate) fn read(&self, done: &mut Vec<Completion>) -> Result<usize> {
        let mut contexts = [ptr::null_mut::<c_void>(); 32];
        let read = self.object.get().ops.read;
        // SAFETY: the queue is open; the format is one pointer for each completion.
        let got =
            unsafe { read(self.object.at.as_ptr(), contexts.as_mut_ptr().cast(), contexts.len()) };
        match usize::try_from(got) {
            Ok(got) => {
                let ended = contexts.iter().take(got);
                done.extend(ended.map(|at| Completion { context: at.addr(), result: Ok(()) }));
                Ok(got)
            }
            Err(_) if got == -(libc::EAGAIN as isize) => Ok(0),
            Err(_) if got == -ffi::FI_EAVAIL => self.read_error(done),
            Err(_) => Err(self.object.library.error(-got as c_int, "reading completions")),
        }
    }

    fn read_error(&self, done: &mut Vec<Completion>) -> Result<usize> {
        let mut entry = ffi::CqErrEntry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
            spare: [0; 8],
        };
        let readerr = self.object.get().ops.readerr;
        // SAFETY: the queue is open; the entry is larger than any version's.
        let got = unsafe { readerr(self.object.at.as_ptr(), &mut entry, 0) };
        if got == 0 || got == -(libc::EAGAIN as isize) {
            return Ok(0);
        }
        if got < 0 {
            return Err(self.object.library.error(-got as c_int, "reading completions"));
        }
        let error = self.object.library.error(entry.err.abs(), "transfer");
        done.push(Completion { context: entry.op_context.addr(), result: Err(error) });
        Ok(1)
    }
}
