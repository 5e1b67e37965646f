//! Runs pieces of work on several threads.

use std::sync::{Mutex, PoisonError};

/// Runs every piece of work, on at most `threads` threads; each thread takes the next piece.
///
/// Which thread runs a piece is random, so a piece must write only to its own memory.
pub fn for_each<T: Send>(pieces: Vec<T>, threads: usize, work: impl Fn(T) + Sync) {
    let threads = threads.min(pieces.len());
    if threads <= 1 {
        pieces.into_iter().for_each(work);
        return;
    }
    let queue = Mutex::new(pieces.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let drain = || {
        while let Some(piece) = next() {
            work(piece);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| drain());
        }
        drain();
    });
}

/// Runs `work` inside the thread pool, so that no thread must be woken for each of its parts.
/// Within such work it is a plain call.
pub fn in_pool<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    if threads <= 1 { work() } else { rayon::scope(|_| work()) }
}

/// Runs both, in parallel if there are two threads.
pub fn both<A: Send, B: Send>(
    threads: usize,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    if threads <= 1 {
        return (first(), second());
    }
    // The calling thread runs the first argument of `join` at once, so pass the longer work there.
    let (second, first) = rayon::join(second, first);
    (first, second)
}
