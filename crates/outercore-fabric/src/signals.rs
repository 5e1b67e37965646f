//! Signal handlers, kept from libraries that install their own behind our back.

use std::mem::MaybeUninit;

use libc::c_int;

/// The signals of POSIX; libraries leave the real-time ones alone.
const LAST: c_int = 31;

/// Runs `call`, then gives every signal the handler that it had before.
///
/// Libraries that libfabric brings along (PSM's) take SIGINT, SIGTERM and others while they are
/// loaded, and end the process on them: nobody could end a run in good order any more.
pub(crate) fn keep_handlers<T>(call: impl FnOnce() -> T) -> T {
    let before: Vec<_> = (1..=LAST).map(handler).collect();
    let result = call();
    for (signal, before) in (1..=LAST).zip(before) {
        if let (Some(before), Some(now)) = (before, handler(signal))
            && before.sa_sigaction != now.sa_sigaction
        {
            // SAFETY: it is the action that the signal had, with the handler that it had.
            let _ = unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
        }
    }
    result
}

/// What a signal does; `None` for those that libc keeps to itself.
fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: without a new action it only writes the present one to memory that is ours.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it was zeroed, which is an action, and the call has filled it in.
    (result == 0).then(|| unsafe { action.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_a_library_installs_does_not_stay() {
        let signal = libc::SIGUSR2;
        let before = handler(signal).unwrap().sa_sigaction;
        let during = keep_handlers(|| {
            // SAFETY: ignoring a signal needs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
            handler(signal).unwrap().sa_sigaction
        });
        assert_eq!(during, libc::SIG_IGN);
        assert_eq!(handler(signal).unwrap().sa_sigaction, before);
    }
}
