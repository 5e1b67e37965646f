//! A memory server in this process, which fails on command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_far::{
    Arrivals, Queue, Region, RegionInfo, RegionKey, Remote, ServerStatus, Transfer, Transferred,
};

/// Far memory on the heap of this process. This is the simplest implementation of [`Remote`], to
/// test code that uses it without a server.
///
/// Clones share the memory, but not the ownership of regions: a clone acts as another client's
/// connection.
#[derive(Clone, Debug)]
pub struct HeapRemote {
    heap: Arc<Heap>,
    client: u64,
}

#[derive(Debug)]
struct Heap {
    size: Bytes,
    state: Mutex<State>,
    /// Number of requests until the server dies; control messages and transfers both count.
    left: AtomicU64,
    clients: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    regions: HashMap<u64, Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    info: RegionInfo,
    owner: u64,
    bytes: Vec<u8>,
}

impl HeapRemote {
    /// A server that lends memory of `size`.
    pub fn new(size: Bytes) -> Self {
        let heap = Heap {
            size,
            state: Mutex::default(),
            left: AtomicU64::new(u64::MAX),
            clients: AtomicU64::new(1),
        };
        Self { heap: Arc::new(heap), client: 0 }
    }

    /// Another client of the same server.
    #[must_use]
    pub fn client(&self) -> Self {
        let client = self.heap.clients.fetch_add(1, Ordering::Relaxed);
        Self { heap: Arc::clone(&self.heap), client }
    }

    /// Lets the server die after this many more requests, including transfers.
    pub fn die_after(&self, requests: u64) {
        self.heap.left.store(requests, Ordering::SeqCst);
    }

    /// Forgets all regions, like a restarted server.
    pub fn forget_everything(&self) {
        self.heap.state().regions.clear();
    }

    /// Memory that is lent.
    pub fn used(&self) -> Bytes {
        self.heap.used(&self.heap.state())
    }
}

impl Heap {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self, state: &State) -> Bytes {
        Bytes(state.regions.values().map(|held| held.info.len.0).sum())
    }

    /// Counts a request.
    fn answer(&self) -> Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            if left == u64::MAX { Some(left) } else { left.checked_sub(1) }
        });
        match left {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Io, "no answer for 5 s")),
        }
    }
}

fn no_such_region() -> Error {
    Error::new(ErrorKind::NotFound, "no such region")
}

impl Remote for HeapRemote {
    fn allocate(&self, len: Bytes, name: Option<&str>) -> Result<Region> {
        self.heap.answer()?;
        let mut state = self.heap.state();
        let left = Bytes(self.heap.size.0 - self.heap.used(&state).0);
        if len.0 == 0 {
            return Err(Error::invalid("a region of 0 bytes"));
        }
        let taken = |held: &Held| held.info.name.as_deref() == name;
        if name.is_some() && state.regions.values().any(taken) {
            return Err(Error::invalid("the name is taken"));
        }
        if len > left {
            return Err(Error::new(ErrorKind::NoSpace, format!("{len} asked for, {left} left")));
        }
        state.next += 1;
        let key = state.next;
        let info = RegionInfo { name: name.map(str::to_owned), len, sealed: false, kept: false };
        let bytes = vec![0; len.as_usize()];
        state.regions.insert(key, Held { info, owner: self.client, bytes });
        Ok(Region { key: RegionKey(key), len })
    }

    fn seal(&self, region: &Region, keep: bool) -> Result<()> {
        self.heap.answer()?;
        let mut state = self.heap.state();
        let held = state.regions.get_mut(&region.key.0).ok_or_else(no_such_region)?;
        if held.owner != self.client {
            return Err(Error::invalid("not a region of this connection"));
        }
        held.info.sealed = true;
        held.info.kept = keep;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Option<Region>> {
        self.heap.answer()?;
        let state = self.heap.state();
        let found = state
            .regions
            .iter()
            .find(|(_, held)| held.info.sealed && held.info.name.as_deref() == Some(name));
        Ok(found.map(|(&key, held)| Region { key: RegionKey(key), len: held.info.len }))
    }

    fn free(&self, region: &Region) -> Result<()> {
        self.heap.answer()?;
        let freed = self.heap.state().regions.remove(&region.key.0);
        freed.map(|_| ()).ok_or_else(no_such_region)
    }

    fn status(&self) -> Result<ServerStatus> {
        self.heap.answer()?;
        let state = self.heap.state();
        let visible = |held: &&Held| {
            held.owner == self.client || held.info.sealed && held.info.name.is_some()
        };
        Ok(ServerStatus {
            version: "test".to_owned(),
            size: self.heap.size,
            used: self.heap.used(&state),
            clients: self.heap.clients.load(Ordering::Relaxed),
            regions: state.regions.values().filter(visible).map(|held| held.info.clone()).collect(),
        })
    }

    fn open_queue(
        &self,
        length: usize,
        _chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>> {
        self.heap.answer()?;
        let (sender, receiver) = channel();
        let (heap, arrivals, client) = (Arc::clone(&self.heap), arrivals.clone(), self.client);
        let work = move || serve(&heap, client, &receiver, &arrivals);
        let thread = std::thread::Builder::new().spawn(work)?;
        Ok(Box::new(HeapQueue { sender: Some(sender), thread: Some(thread), length }))
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write,
}

/// Executes transfers one after the other until the queue is dropped.
fn serve(
    heap: &Heap,
    client: u64,
    receiver: &Receiver<(Direction, Transfer)>,
    arrivals: &Arrivals,
) {
    for (direction, mut transfer) in receiver {
        let result = heap.answer().and_then(|()| moved(heap, client, direction, &mut transfer));
        arrivals.put(Transferred { tag: transfer.tag, lease: transfer.lease, result });
    }
}

fn moved(heap: &Heap, client: u64, direction: Direction, transfer: &mut Transfer) -> Result<()> {
    let mut state = heap.state();
    let held = state.regions.get_mut(&transfer.region.key.0).ok_or_else(no_such_region)?;
    let start = transfer.offset as usize;
    let range = start..start + transfer.len;
    if range.end > held.bytes.len() {
        return Err(Error::invalid(format!("{range:?} passes the end of the region")));
    }
    let own = held.owner == client;
    match direction {
        Direction::Read if own || held.info.sealed => {
            transfer.lease[..transfer.len].copy_from_slice(&held.bytes[range]);
        }
        Direction::Write if own && !held.info.sealed => {
            held.bytes[range].copy_from_slice(&transfer.lease[..transfer.len]);
        }
        _ => return Err(Error::invalid(format!("{direction:?} is not allowed"))),
    }
    Ok(())
}

#[derive(Debug)]
struct HeapQueue {
    sender: Option<Sender<(Direction, Transfer)>>,
    thread: Option<JoinHandle<()>>,
    length: usize,
}

impl HeapQueue {
    fn start(&self, direction: Direction, transfer: Transfer) {
        let sender = self.sender.as_ref().expect("a queue that was not dropped");
        sender.send((direction, transfer)).expect("the thread lives as long as the queue");
    }
}

impl Queue for HeapQueue {
    fn read_start(&mut self, transfer: Transfer) {
        self.start(Direction::Read, transfer);
    }

    fn write_start(&mut self, transfer: Transfer) {
        self.start(Direction::Write, transfer);
    }

    fn length(&self) -> usize {
        self.length
    }
}

impl Drop for HeapQueue {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
    }
}
