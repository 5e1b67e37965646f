//! A queue in which clients take turns: a client with many items does not delay the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// A client: one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(u64);

impl Client {
    /// A client that differs from all earlier ones.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A queue of limited length. Clients take turns: one item of each client is taken, then the next
/// client follows.
#[derive(Debug)]
pub struct Turns<T> {
    /// The items of each client that has any.
    of: BTreeMap<Client, VecDeque<T>>,
    /// These clients, in the order of their turns.
    order: VecDeque<Client>,
    count: usize,
    most: usize,
}

impl<T> Turns<T> {
    /// Room for `most` items.
    pub fn new(most: usize) -> Self {
        Self { of: BTreeMap::new(), order: VecDeque::new(), count: 0, most }
    }

    /// Number of items in the queue.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Adds an item of `client`. A full queue drops the last item of the client with the most
    /// items, if that client has more than `client` would have. Otherwise it drops `item`. Returns
    /// the dropped item.
    #[must_use]
    pub fn push(&mut self, client: Client, item: T) -> Option<T> {
        let mut displaced = None;
        if self.count >= self.most {
            let own = self.of.get(&client).map_or(0, VecDeque::len);
            let longest = self.of.values_mut().max_by_key(|items| items.len());
            match longest.filter(|items| items.len() > own + 1) {
                Some(items) => displaced = items.pop_back(),
                None => return Some(item),
            }
            self.count -= 1;
        }
        let items = self.of.entry(client).or_default();
        if items.is_empty() {
            self.order.push_back(client);
        }
        items.push_back(item);
        self.count += 1;
        displaced
    }

    /// Removes and returns the next item.
    pub fn pop(&mut self) -> Option<T> {
        let client = self.order.pop_front()?;
        let items = self.of.get_mut(&client)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.of.remove(&client);
        } else {
            self.order.push_back(client);
        }
        self.count -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_with_one_item_comes_before_the_second_of_another() {
        let mut turns = Turns::new(8);
        for item in ["a1", "a2", "a3", "b1", "c1", "b2"] {
            let client = Client(item.as_bytes()[0].into());
            assert_eq!(turns.push(client, item), None);
        }
        let taken: Vec<&str> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(taken, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    proptest! {
        /// Compares the queue with a list of the waiting items. A client with the fewest items is
        /// refused only if all clients have as many items as it would have. So the queue always
        /// serves as many clients as it has places.
        #[test]
        fn nothing_is_lost_and_places_are_shared(
            most in 1usize..8,
            steps in prop::collection::vec(prop::option::weighted(0.7, 0u64..4), 0..64),
        ) {
            let mut turns = Turns::new(most);
            let mut waiting: Vec<(u64, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let count = |waiting: &[(u64, usize)], of| {
                    waiting.iter().filter(|(client, _)| *client == of).count()
                };
                if let Some(client) = step {
                    let refused = turns.push(Client(client), (client, number));
                    let own = count(&waiting, client);
                    waiting.push((client, number));
                    prop_assert_eq!(refused.is_some(), waiting.len() > most);
                    if let Some((of, at)) = refused {
                        let others = (0..4).filter(|other| *other != client);
                        let longest = others.map(|other| count(&waiting, other)).max().unwrap_or(0);
                        prop_assert_eq!(of == client, longest <= own + 1);
                        let place = waiting.iter().position(|one| *one == (of, at)).unwrap();
                        // The dropped item must be the last one of its client.
                        prop_assert!(waiting[place + 1..].iter().all(|(client, _)| *client != of));
                        waiting.remove(place);
                    }
                } else {
                    let taken = turns.pop();
                    prop_assert_eq!(taken.is_none(), waiting.is_empty());
                    if let Some(taken) = taken {
                        let first = waiting.iter().position(|(client, _)| *client == taken.0);
                        prop_assert_eq!(waiting.remove(first.unwrap()), taken);
                    }
                }
                prop_assert_eq!(turns.len(), waiting.len());
            }
        }
    }
}
