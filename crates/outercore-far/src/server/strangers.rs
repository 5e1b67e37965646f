//! Limits the connections that have not yet authenticated; the oldest make room for new ones.
//!
//! A client with the token authenticates at once. So if there are too many unauthenticated
//! connections, the oldest are closed, and new ones are accepted. Each listening address has a
//! separate limit: strangers from the network cannot block the Unix socket.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::socket::Socket;

/// Most unauthenticated connections at one address of the server.
pub(super) const MOST_STRANGERS: usize = 256;

/// Most unauthenticated connections from one machine.
const MOST_OF_ONE_PEER: usize = 64;

/// The unauthenticated connections at one address, oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<VecDeque<Stranger>>);

#[derive(Debug)]
struct Stranger {
    number: u64,
    peer: Option<IpAddr>,
    socket: Arc<Socket>,
}

impl Strangers {
    fn all(&self) -> MutexGuard<'_, VecDeque<Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Beyond a limit, closes the oldest connection of the same machine, or else
    /// the oldest of all.
    pub(super) fn enter(&self, number: u64, peer: Option<IpAddr>, socket: &Arc<Socket>) {
        let mut all = self.all();
        let same = |other: &Stranger| peer.is_some() && other.peer == peer;
        let oldest = if all.iter().filter(|other| same(other)).count() >= MOST_OF_ONE_PEER {
            all.iter().position(same)
        } else if all.len() >= MOST_STRANGERS {
            Some(0)
        } else {
            None
        };
        if let Some(stranger) = oldest.and_then(|oldest| all.remove(oldest)) {
            // Its thread wakes and ends.
            stranger.socket.shutdown();
        }
        all.push_back(Stranger { number, peer, socket: Arc::clone(socket) });
    }

    /// Removes a connection that has authenticated or closed.
    pub(super) fn leave(&self, number: u64) {
        self.all().retain(|stranger| stranger.number != number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Adds connections; returns their client ends.
    fn enter(
        strangers: &Strangers,
        numbers: std::ops::Range<u64>,
        peer: [u8; 4],
    ) -> Vec<UnixStream> {
        let one = |number| {
            let (here, there) = UnixStream::pair().unwrap();
            strangers.enter(number, Some(peer.into()), &Arc::new(Socket::Unix(here)));
            there.set_nonblocking(true).unwrap();
            there
        };
        numbers.map(one).collect()
    }

    fn closed(ends: &mut [UnixStream]) -> usize {
        ends.iter_mut().filter_map(|end| end.read(&mut [0]).ok()).count()
    }

    #[test]
    fn the_oldest_of_a_machine_makes_room_and_others_stay() {
        let strangers = Strangers::default();
        let mut others = enter(&strangers, 0..3, [10, 0, 0, 1]);
        let mut many = enter(&strangers, 3..103, [10, 0, 0, 2]);
        assert_eq!((closed(&mut others), closed(&mut many)), (0, 100 - MOST_OF_ONE_PEER));
        assert_eq!(closed(&mut many[..36]), 36);
        assert_eq!(strangers.all().len(), 3 + MOST_OF_ONE_PEER);
        (0..103).for_each(|number| strangers.leave(number));
        assert_eq!(strangers.all().len(), 0);
    }

    #[test]
    fn many_machines_together_are_limited_too() {
        let strangers = Strangers::default();
        let mut first = enter(&strangers, 0..10, [10, 0, 0, 1]);
        let _rest: Vec<_> = (0..5u8)
            .map(|peer| {
                let start = 10 + 50 * u64::from(peer);
                enter(&strangers, start..start + 50, [10, 0, 1, peer])
            })
            .collect();
        assert_eq!(strangers.all().len(), MOST_STRANGERS);
        assert_eq!(closed(&mut first), 260 - MOST_STRANGERS);
    }
}
