//! Copies files to far memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_format::Checksum;
use outercore_io::{Arena, Engine, FileId, Lease, PlannedRead};

use crate::placement::{self, Extent, LONGEST_REGION, OVERLAP, PAGE};
use crate::queue::{Arrivals, Queue, Transfer, Transferred};
use crate::region::Region;
use crate::remote::Remote;
use crate::tier::{Contents, Shared, Stamp};

#[cfg(test)]
mod tests;

/// Progress callback `on_progress(done, total)` in bytes; an error stops the copy.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// Chunks in flight to the server: enough to keep the network busy while the disk is read.
const CHUNKS: usize = 8;

/// Pieces that are planned together.
const READS: usize = 1024;

/// Smallest useful region on a nearly full server.
const LEAST_REGION: u64 = 64 << 10;

/// The file to copy.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    /// Identity of the file when the ranges were computed.
    pub(crate) stamp: Stamp,
}

/// Why copying stopped, and whether the server is the cause.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) at_server: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, at_server: false }
    }
}

impl Failure {
    fn at_server(error: Error) -> Self {
        Self { error, at_server: true }
    }
}

impl Source<'_> {
    fn check_unchanged(&self) -> Result<()> {
        if Stamp::of(self.path)? == self.stamp {
            return Ok(());
        }
        let path = self.path.display();
        Err(Error::corrupt(format!("file `{path}` changed while it was copied to far memory"))
            .hint("run the same command again when nobody writes to it"))
    }
}

/// Copies `ranges`, in order, to new private regions until the server is full; reports each region
/// once it is sealed.
pub(crate) fn copy_ranges(
    shared: &Shared,
    source: Source<'_>,
    ranges: &[Range<u64>],
    engine: &mut Engine,
    on_progress: OnProgress<'_>,
    on_region: &mut dyn FnMut(Region, Vec<Extent>),
) -> Result<(), Failure> {
    let remote = &*shared.remote;
    let mut copy = Copy::begin(shared, source, placement::total(ranges), engine, on_progress)?;
    for layout in placement::lay_out(ranges, LONGEST_REGION.0, OVERLAP.0) {
        let wanted = placement::total(&layout);
        let allocated = allocate_up_to(remote, wanted).map_err(Failure::at_server)?;
        let Some(region) = allocated else { break };
        let layout = placement::first_bytes(&layout, region.len.0);
        let copied = copy.ranges(Some(&region), &layout).and_then(|()| {
            source.check_unchanged()?;
            remote.seal(&region, false).map_err(Failure::at_server)
        });
        if let Err(failure) = copied {
            give_back(remote, &[region], &failure);
            return Err(failure);
        }
        let mut offset = 0;
        let extents = layout.into_iter().map(|range| {
            let extent = Extent { offset, region, range };
            offset += extent.range.end - extent.range.start;
            extent
        });
        on_region(region, extents.collect());
        if region.len.0 < wanted {
            break;
        }
    }
    Ok(())
}

/// Copies the missing parts of a whole file to kept regions; returns the extents of all parts, and
/// the number of sent bytes. Nothing is sealed unless the whole file matches `contents`.
pub(crate) fn copy_whole(
    shared: &Shared,
    source: Source<'_>,
    parts: &[(String, Range<u64>)],
    contents: &Contents<'_>,
    engine: &mut Engine,
    on_progress: OnProgress<'_>,
) -> Result<(Vec<Extent>, u64), Failure> {
    let remote = &*shared.remote;
    let mut extents = Vec::new();
    let mut new = Vec::new();
    let mut copied = || {
        // Allocate all parts first, so that a full server refuses before anything is sent.
        for (name, range) in parts {
            let len = Bytes(range.end - range.start);
            let there = remote.find(name).map_err(Failure::at_server)?;
            let (region, is_new) = match there.filter(|region| region.len == len) {
                Some(region) => (region, false),
                None => {
                    let region = remote.allocate(len, Some(name)).map_err(Failure::at_server)?;
                    new.push(region);
                    (region, true)
                }
            };
            extents.push((Extent { range: range.clone(), region, offset: 0 }, is_new));
        }
        let mut copy = Copy::begin(shared, source, source.stamp.len, engine, on_progress)?;
        copy.check = Some(Check::of(contents));
        for (extent, is_new) in &extents {
            // Existing parts are only read for the checksum.
            let region = is_new.then_some(&extent.region);
            copy.ranges(region, std::slice::from_ref(&extent.range))?;
        }
        if let Some(check) = &copy.check {
            check.compare(source.path, contents)?;
        }
        source.check_unchanged()?;
        let mut sealed = new.iter().map(|region| remote.seal(region, true));
        sealed.try_for_each(|sealed| sealed.map_err(Failure::at_server))
    };
    if let Err(failure) = copied() {
        give_back(remote, &new, &failure);
        return Err(failure);
    }
    let sent = new.iter().map(|region| region.len.0).sum();
    Ok((extents.into_iter().map(|(extent, _)| extent).collect(), sent))
}

/// Frees regions after an error, unless the server does not answer.
fn give_back(remote: &dyn Remote, regions: &[Region], failure: &Failure) {
    if !(failure.at_server && failure.error.kind() == ErrorKind::Io) {
        // The first error is the one to report.
        let _ = regions.iter().try_for_each(|region| remote.free(region));
    }
}

/// Allocates a private region of `wanted` bytes, or of the whole pages that the server has left.
fn allocate_up_to(remote: &dyn Remote, wanted: u64) -> Result<Option<Region>> {
    let mut len = wanted;
    loop {
        match remote.allocate(Bytes(len), None) {
            Ok(region) => return Ok(Some(region)),
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                let status = remote.status()?;
                let left = status.size.0.saturating_sub(status.used.0);
                // Other clients may be faster, or a limit may be lower than the free memory.
                len = if left < len { left } else { len / 2 + len / 4 } / PAGE * PAGE;
                if len < LEAST_REGION {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Moves bytes from an engine to a queue through a few buffers.
struct Copy<'a> {
    engine: &'a mut Engine,
    file: FileId,
    writer: Writer,
    on_progress: OnProgress<'a>,
    done: u64,
    total: u64,
    check: Option<Check>,
}

/// The running checksum.
struct Check {
    checksum: Checksum,
    /// The range of the file that it covers.
    data: Range<u64>,
    /// The next byte of the file.
    at: u64,
}

impl Check {
    fn of(contents: &Contents<'_>) -> Self {
        let data = contents.data.clone();
        Self { checksum: Checksum::new(), at: data.start, data }
    }

    /// Adds the bytes at `start` that were not yet added; parts may overlap.
    fn take(&mut self, start: u64, bytes: &[u8]) {
        let end = (start + bytes.len() as u64).min(self.data.end);
        let from = self.at.max(start);
        if from < end {
            self.checksum.update(&bytes[(from - start) as usize..(end - start) as usize]);
            self.at = end;
        }
    }

    fn compare(&self, path: &Path, contents: &Contents<'_>) -> Result<()> {
        let (found, expected) = (self.checksum.finish(), contents.checksum);
        if self.at == self.data.end && found == expected {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "file `{}`: checksum {found}, expected {expected}: bytes were altered",
            path.display()
        ))
        .hint("copy the file again, or import it again"))
    }
}

impl<'a> Copy<'a> {
    fn begin(
        shared: &Shared,
        source: Source<'_>,
        total: u64,
        engine: &'a mut Engine,
        on_progress: OnProgress<'a>,
    ) -> Result<Self, Failure> {
        let file = engine.register(source.path)?;
        let writer = Writer::open(shared).map_err(Failure::at_server)?;
        Ok(Self { engine, file, writer, on_progress, done: 0, total, check: None })
    }

    /// Copies the ranges of `layout` to a region, one after the other; without a region it only
    /// reads them.
    fn ranges(&mut self, region: Option<&Region>, layout: &[Range<u64>]) -> Result<(), Failure> {
        let longest = (self.writer.chunk as u64).min(self.engine.max_read().0);
        let mut offset = 0;
        // Number of pieces that are read together, so that short ranges keep the disk busy. A
        // checksum needs them in order, and pieces that arrive early are held meanwhile.
        let at_once = if self.check.is_some() { CHUNKS } else { READS };
        let mut reads = Vec::with_capacity(at_once);
        let mut offsets = Vec::with_capacity(at_once);
        for piece in layout.iter().flat_map(|range| placement::cut(range, longest, 0)) {
            let len = piece.end - piece.start;
            reads.push(PlannedRead { offset: piece.start, len: len as u32 });
            offsets.push(offset);
            offset += len;
            if reads.len() == at_once {
                self.pieces(region, &reads, &offsets)?;
                reads.clear();
                offsets.clear();
            }
        }
        self.pieces(region, &reads, &offsets)?;
        self.writer.finish().map_err(Failure::at_server)
    }

    /// Reads pieces of the file and writes them to their offsets in a region, if there is one.
    fn pieces(
        &mut self,
        region: Option<&Region>,
        reads: &[PlannedRead],
        offsets: &[u64],
    ) -> Result<(), Failure> {
        let Self { engine, file, writer, on_progress, done, total, check } = self;
        let mut at_server = false;
        let mut next = 0;
        let mut early: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let read = engine.read(*file, reads, &mut |index, bytes| {
            if let Some(region) = region {
                writer.write(region, offsets[index], bytes).inspect_err(|_| at_server = true)?;
            }
            match check {
                Some(check) if index == next => {
                    check.take(reads[next].offset, bytes);
                    next += 1;
                    while let Some(bytes) = early.remove(&next) {
                        check.take(reads[next].offset, &bytes);
                        next += 1;
                    }
                }
                Some(_) => drop(early.insert(index, bytes.to_vec())),
                None => {}
            }
            *done += bytes.len() as u64;
            // Overlapping ranges are sent twice.
            on_progress((*done).min(*total), *total)
        });
        read.map(|_| ()).map_err(|error| Failure { error, at_server })
    }
}

/// Writes bytes to regions, a few chunks at a time.
struct Writer {
    queue: Box<dyn Queue>,
    arrivals: Arrivals,
    arena: Arena,
    chunk: usize,
    in_flight: usize,
    most: usize,
    /// Longer than the time-out of the queue, so that the queue reports it first.
    patience: Duration,
    server: String,
    ended: Vec<Transferred>,
}

impl Writer {
    fn open(shared: &Shared) -> Result<Self> {
        let options = &shared.options;
        let most = options.queue_length.min(CHUNKS);
        let arrivals = Arrivals::default();
        let queue = shared.remote.open_queue(most, options.chunk, &arrivals)?;
        let chunk = options.chunk.as_usize();
        Ok(Self {
            queue,
            arrivals,
            arena: Arena::new(Bytes((most * chunk) as u64))?,
            chunk,
            in_flight: 0,
            most,
            patience: options.timeout() * 2 + Duration::from_secs(1),
            server: options.address.to_string(),
            ended: Vec::new(),
        })
    }

    /// Starts to write at most one chunk; if there is no room, waits for an earlier one.
    fn write(&mut self, region: &Region, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut lease = self.lease(bytes.len())?;
        lease[..bytes.len()].copy_from_slice(bytes);
        let transfer = Transfer { tag: offset, region: *region, offset, len: bytes.len(), lease };
        self.queue.write_start(transfer);
        self.in_flight += 1;
        Ok(())
    }

    fn lease(&mut self, len: usize) -> Result<Lease> {
        loop {
            let room = (self.in_flight < self.most).then(|| self.arena.lease(len)).flatten();
            match room {
                Some(lease) => return Ok(lease),
                None if self.in_flight == 0 => {
                    return Err(Error::internal("a chunk does not fit into the write buffers"));
                }
                None => self.wait(1)?,
            }
        }
    }

    fn wait(&mut self, at_least: usize) -> Result<()> {
        let found = self.arrivals.take(at_least, self.patience, &mut self.ended);
        self.in_flight -= found;
        let mut outcome = Ok(());
        for transferred in self.ended.drain(..) {
            outcome = outcome.and(transferred.result);
        }
        outcome?;
        if found == 0 && at_least > 0 {
            let (server, seconds) = (&self.server, self.patience.as_secs_f64());
            let what = format!("memory server {server}: no answer for {seconds:.0} s");
            return Err(Error::new(ErrorKind::Io, what));
        }
        Ok(())
    }

    /// Waits for all writes.
    fn finish(&mut self) -> Result<()> {
        while self.in_flight > 0 {
            self.wait(self.in_flight)?;
        }
        Ok(())
    }
}
