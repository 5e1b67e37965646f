//! Protects signal handlers from libraries that silently install their own.

use std::mem::MaybeUninit;

use libc::c_int;

/// The last POSIX signal; libraries do not change the real-time signals.
const LAST: c_int = 31;

/// Runs `call`, then restores the handler of every signal.
///
/// Some libraries that libfabric loads (PSM's) install handlers for SIGINT, SIGTERM and others,
/// which end the process. Then a run could no longer be stopped cleanly.
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

/// The action of a signal; `None` for signals that libc reserves.
fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: without a new action it only writes the current one to our memory.
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
