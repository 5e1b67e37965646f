//! Request bodies: the memory that they share, and how long they may take.
//!
//! A body takes memory only as its bytes arrive, so a client that sends nothing holds almost none.
//! When the memory is full, the oldest unfinished body is refused, so clients that send at once do
//! not wait for slow ones. A request keeps its memory until its work ends, because the data decoded
//! from its body lives that long.
//!
//! `docs/design/0044-slow-and-foreign-clients.md` has the reasons.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinError;

use crate::refusal::Refusal;

/// Longest body of any request.
pub const MOST_BODY: usize = 16 << 20;

/// Bytes of an over-long body that are read and dropped, so that the client gets the refusal.
const MOST_DROPPED: usize = 2 * MOST_BODY;

/// Most bytes of the memory for first parts that one request may take.
const FIRST: usize = 64 << 10;

/// Bodies up to this length are decoded on the connection thread, which takes less than a
/// millisecond.
const SHORT: usize = 64 << 10;

/// Memory for the first parts of bodies: some for bodies that arrive, more for requests that wait.
/// It is separate from `REST`, so that small requests do not wait for large ones.
const FIRST_PARTS: usize = 2 << 20;
const A_WAITING_REQUEST: usize = 16 << 10;

/// Memory for everything beyond the first parts. The heap may retain as much again for each of two
/// threads: the one that reads bodies and the one that decodes them.
const REST: usize = 20 << 20;

/// Bytes that a request takes in addition to its body: its headers and its task.
const OVERHEAD: usize = 4 << 10;

/// How long an arriving body is protected from being refused for another. The first part has no
/// protection; the rest has the time that a client on a fast network needs.
const GRACE: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

/// Large bodies that are decoded at once. The other cores continue to answer requests.
const DECODERS: usize = 1;

/// All request bodies of a server.
pub struct Bodies {
    accounts: Arc<Accounts>,
    decoders: Arc<Semaphore>,
    /// How long a body may take to arrive.
    limit: Duration,
}

/// A body that has arrived completely.
pub struct Whole {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The memory of its request.
    pub memory: Memory,
}

impl Bodies {
    /// No bodies yet. At most `queue` requests wait for an answer.
    pub fn new(limit: Duration, queue: usize) -> Self {
        let most = [FIRST_PARTS + queue * A_WAITING_REQUEST, REST];
        let decoders = Arc::new(Semaphore::new(DECODERS));
        Self { accounts: Accounts::new(most), decoders, limit }
    }

    /// Reads a body of at most `most` bytes.
    ///
    /// # Errors
    /// The body is too long, cut off or too slow, or no memory is free for it.
    pub async fn read(&self, body: Body, most: usize) -> Result<Whole, Refusal> {
        let most = most.min(MOST_BODY);
        let mut memory = Memory::new(&self.accounts);
        let is_wanted = memory.register();
        memory.take(OVERHEAD)?;
        let reading = tokio::time::timeout(self.limit, collect(body, most, &mut memory));
        let bytes = tokio::select! {
            biased;
            read = reading => read.map_err(|_| too_slow("the body came too slowly"))??,
            () = is_wanted.notified() => return Err(is_wanted_by_others()),
        };
        memory.keep()?;
        Ok(Whole { bytes, memory })
    }

    /// Memory for the data decoded from a message. The bytes of the message are counted elsewhere.
    pub fn memory(&self) -> Memory {
        Memory::new(&self.accounts)
    }

    /// Decodes a body. The memory that `decode` takes stays taken until [`Memory`] is dropped.
    ///
    /// # Errors
    /// Errors of `decode`.
    pub async fn decode<T: Send + 'static>(
        &self,
        whole: Whole,
        decode: impl FnOnce(&[u8], &mut Memory) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, Memory), Refusal> {
        let Whole { bytes, mut memory } = whole;
        let length = bytes.len();
        let (decoded, mut memory) = self
            .run(length, async move {
                let decoded = decode(&bytes, &mut memory);
                (decoded, memory)
            })
            .await;
        memory.give_back(length);
        Ok((decoded?, memory))
    }

    /// Runs `work`, which decodes `length` bytes before its first await. Long bodies are decoded on
    /// another thread, so that the connection thread answers other clients meanwhile. That thread
    /// continues if the client leaves, so it owns the work and its place among the decoders.
    pub async fn run<T: Send + 'static>(
        &self,
        length: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        if length <= SHORT {
            return work.await;
        }
        let place = Arc::clone(&self.decoders).acquire_owned().await;
        let begun = tokio::task::spawn_blocking(move || {
            let mut work = Box::pin(work);
            // If it has to wait, it is polled again below.
            let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(place);
            (work, polled)
        });
        match begun.await.map_err(JoinError::try_into_panic) {
            Ok((_, Poll::Ready(done))) => done,
            Ok((work, Poll::Pending)) => work.await,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(Err(_)) => pending().await,
        }
    }
}

/// Collects the bytes of a body as they arrive.
async fn collect(body: Body, most: usize, memory: &mut Memory) -> Result<Vec<u8>, Refusal> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    let mut length = 0;
    let mut is_too_long = body.size_hint().lower() > most as u64;
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame.map_err(|_| Refusal::wrong("the body is cut off"))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        is_too_long |= length > most;
        if !is_too_long {
            memory.take(data.len())?;
            if length > FIRST && bytes.len() <= FIRST {
                // Allocate the declared length as one block: its pages count only when they are
                // written, while a growing block leaves holes in the heap. If the allocation fails,
                // the block grows.
                let declared = usize::try_from(body.size_hint().lower()).unwrap_or(0);
                let _ = bytes.try_reserve_exact(data.len() + declared);
            }
            bytes.extend_from_slice(&data);
            continue;
        }
        // Continue to read: most clients read an answer only after they have sent everything.
        bytes = Vec::new();
        if length > MOST_DROPPED {
            break;
        }
    }
    if is_too_long { Err(too_long(most)) } else { Ok(bytes) }
}

fn too_long(most: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes"))
}

fn too_slow(text: &str) -> Refusal {
    Refusal::new(StatusCode::REQUEST_TIMEOUT, text)
}

fn is_wanted_by_others() -> Refusal {
    too_slow("the body came too slowly, and other requests needed its memory")
}

/// Bytes of the first part and of the rest.
type Parts = [usize; 2];

/// The memory that all requests share.
struct Accounts {
    most: Parts,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: Parts,
    next: u64,
    /// Bodies that are arriving, oldest first.
    coming: BTreeMap<u64, Coming>,
}

/// A body that is arriving.
struct Coming {
    since: Instant,
    held: Parts,
    is_wanted: Arc<Notify>,
}

impl Accounts {
    fn new(most: Parts) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Refuses the oldest arriving body that holds some of `part`, except the body `but`. Its
    /// memory counts as free at once, although the bytes are freed only when its task has run.
    fn end_oldest(&mut self, part: usize, but: u64) -> bool {
        let mut with_some = self.coming.iter().filter(|(key, coming)| {
            **key != but && coming.held[part] > 0 && coming.since.elapsed() >= GRACE[part]
        });
        let Some(key) = with_some.next().map(|(&key, _)| key) else { return false };
        if let Some(Coming { held, is_wanted, .. }) = self.coming.remove(&key) {
            self.free(held);
            is_wanted.notify_one();
        }
        true
    }

    fn free(&mut self, held: Parts) {
        for (taken, held) in self.taken.iter_mut().zip(held) {
            *taken -= held;
        }
    }
}

/// The memory of a request. Dropping it gives everything back.
pub struct Memory {
    accounts: Arc<Accounts>,
    held: Parts,
    /// Its key among the bodies that are arriving; `None` once it is complete.
    coming: Option<u64>,
}

impl Memory {
    fn new(accounts: &Arc<Accounts>) -> Self {
        Self { accounts: Arc::clone(accounts), held: Parts::default(), coming: None }
    }

    /// Memory without a limit, for tests.
    pub fn unlimited() -> Self {
        Self::new(&Accounts::new([usize::MAX / 2; 2]))
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// So many bytes are not free, or exceed the limit of one request; or this body was refused in
    /// favour of another one.
    pub fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        let first = bytes.min(FIRST.saturating_sub(self.held[0]));
        let wanted = [first, bytes - first];
        let most = self.accounts.most;
        if wanted[1] > most[1] - self.held[1] {
            let text = format!("the request needs more than {} MiB of memory", most[1] >> 20);
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        self.accounts.with(|state| {
            // A body that was refused itself must not end another one.
            if self.coming.is_some_and(|key| !state.coming.contains_key(&key)) {
                return Err(is_wanted_by_others());
            }
            for part in 0..wanted.len() {
                while state.taken[part] + wanted[part] > most[part] {
                    // Keys begin at 1.
                    if !state.end_oldest(part, self.coming.unwrap_or(0)) {
                        return Err(Refusal::overloaded());
                    }
                }
            }
            let coming = self.coming.and_then(|key| state.coming.get_mut(&key));
            for held in coming.map(|coming| &mut coming.held).into_iter().chain([&mut self.held]) {
                held[0] += wanted[0];
                held[1] += wanted[1];
            }
            state.taken[0] += wanted[0];
            state.taken[1] += wanted[1];
            Ok(())
        })
    }

    /// Registers this body as arriving. The returned handle is notified when another body needs its
    /// memory.
    fn register(&mut self) -> Arc<Notify> {
        let is_wanted = Arc::new(Notify::new());
        let since = Instant::now();
        let coming = Coming { since, held: self.held, is_wanted: Arc::clone(&is_wanted) };
        self.coming = self.accounts.with(|state| {
            state.next += 1;
            state.coming.insert(state.next, coming);
            Some(state.next)
        });
        is_wanted
    }

    /// The body is complete: its memory can no longer be taken for another body.
    fn keep(&mut self) -> Result<(), Refusal> {
        let Some(key) = self.coming.take() else { return Ok(()) };
        let is_there = self.accounts.with(|state| state.coming.remove(&key).is_some());
        if is_there {
            return Ok(());
        }
        self.held = Parts::default();
        Err(is_wanted_by_others())
    }

    /// Gives `bytes` back.
    fn give_back(&mut self, bytes: usize) {
        let rest = bytes.min(self.held[1]);
        let freed = [(bytes - rest).min(self.held[0]), rest];
        self.held[0] -= freed[0];
        self.held[1] -= freed[1];
        self.accounts.with(|state| state.free(freed));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A body that was refused for another one has already given back its memory.
        if self.keep().is_ok() {
            self.accounts.with(|state| state.free(self.held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(accounts: &Arc<Accounts>, bytes: usize) -> (Memory, Arc<Notify>) {
        let mut memory = Memory::new(accounts);
        let is_wanted = memory.register();
        memory.take(bytes).unwrap();
        (memory, is_wanted)
    }

    fn taken(accounts: &Accounts) -> Parts {
        accounts.with(|state| state.taken)
    }

    #[test]
    fn the_body_that_has_been_coming_longest_ends_for_a_new_one() {
        let accounts = Accounts::new([100, 0]);
        let (mut oldest, ended) = coming(&accounts, 40);
        let (second, _) = coming(&accounts, 40);
        let (newest, _) = coming(&accounts, 40);
        assert_eq!(taken(&accounts), [80, 0]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(ended.notified());
        assert_eq!(oldest.take(1), Err(is_wanted_by_others()));
        assert_eq!(oldest.keep(), Err(is_wanted_by_others()));
        drop((oldest, second));
        assert_eq!(taken(&accounts), [40, 0]);
        drop(newest);
        assert_eq!(taken(&accounts), [0, 0]);
    }

    #[test]
    fn a_body_that_was_refused_ends_no_other() {
        let accounts = Accounts::new([100, 0]);
        let (mut oldest, _) = coming(&accounts, 50);
        let (mut second, _) = coming(&accounts, 50);
        let (mut newest, _) = coming(&accounts, 50);
        assert_eq!(oldest.take(1), Err(is_wanted_by_others()));
        assert_eq!(second.keep(), Ok(()));
        assert_eq!(newest.keep(), Ok(()));
    }

    #[test]
    fn a_body_that_is_in_does_not_end_for_another_one() {
        let accounts = Accounts::new([100, 0]);
        let (mut waiting, _) = coming(&accounts, 60);
        waiting.keep().unwrap();
        let mut new = Memory::new(&accounts);
        new.register();
        assert_eq!(new.take(50), Err(Refusal::overloaded()));
        waiting.give_back(20);
        new.take(50).unwrap();
        drop((waiting, new));
        assert_eq!(taken(&accounts), [0, 0]);
    }

    #[test]
    fn decoding_keeps_its_place_and_memory_when_the_client_leaves() {
        let bodies = Bodies::new(Duration::from_secs(60), 1);
        let mut memory = bodies.memory();
        memory.take(10).unwrap();
        let (begin, mut begun) = tokio::sync::mpsc::channel(1);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let decode = move |_: &[u8], _: &mut Memory| {
            begin.try_send(()).unwrap();
            ended.recv().map_err(|_| Refusal::failed())
        };
        let whole = Whole { bytes: vec![0; SHORT + 1], memory };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                _ = bodies.decode(whole, decode) => panic!("it waits for the end"),
                _ = begun.recv() => {}
            }
            assert_eq!(bodies.decoders.available_permits(), 0);
            assert_eq!(taken(&bodies.accounts), [10, 0]);
            end.send(()).unwrap();
            bodies.run(SHORT + 1, async {}).await;
        });
        drop(runtime);
        assert_eq!(taken(&bodies.accounts), [0, 0]);
    }

    #[test]
    fn large_bodies_leave_room_for_small_ones() {
        let accounts = Accounts::new([3 * FIRST, FIRST]);
        let (_large, _) = coming(&accounts, 2 * FIRST);
        assert_eq!(taken(&accounts), [FIRST, FIRST]);
        let mut other = Memory::new(&accounts);
        other.register();
        assert_eq!(other.take(FIRST + 1), Err(Refusal::overloaded()), "the large one is young");
        other.take(FIRST).unwrap();
        let refused = format!("{:?}", other.take(FIRST + 1).unwrap_err());
        assert!(refused.contains("413"), "{refused}");
    }
}
