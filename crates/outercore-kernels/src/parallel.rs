//! Pieces of work on several threads.

use std::sync::{Mutex, PoisonError};

/// Does every piece of work, on at most `threads` threads; each thread takes the next piece.
///
/// Which thread does a piece is left to chance: a piece must write to its own memory only.
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
