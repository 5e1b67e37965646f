//! Sorts triples into buckets: counts them in a first pass and writes them in a second.

use std::path::Path;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_io::{Disk, WriteFile};

use super::progress::{OnProgress, Pass};
use super::{Entry, Header, Places, Source, Triples, mix};
use crate::layout::Partitioning;

/// Memory of every bucket in addition to its buffer.
const PER_BUCKET: u64 = 56;
/// Memory for the current batch of triples.
const READING: u64 = 512 << 10;
/// Bytes of a stored triple and its weight.
const RECORD: u64 = 16;

/// Sorts `triples` into the buckets of `partitioning` and writes them to `path`. Within a bucket
/// they keep their order.
///
/// An existing file at `path` is kept if it was made from the same source.
///
/// **Cost**: two passes over the triples; each triple is written once. With more memory the writes
/// are longer; the bytes of the file do not depend on it.
///
/// # Errors
/// `Invalid`: an unknown node or relation, or an invalid weight, with the triple. `Budget`: the
/// memory holds less than one triple per bucket. `Corrupt`: more or fewer triples than announced.
/// Errors of `on_progress` and of the disk, which leave `path` unchanged.
pub fn build_buckets(
    disk: &dyn Disk,
    path: &Path,
    triples: &mut dyn Triples,
    source: &Source,
    memory: Bytes,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let partitions = source.partitioning.partitions();
    let number = (partitions * partitions) as u64;
    let fixed = number * PER_BUCKET + READING;
    let least = fixed + number * RECORD;
    if memory.0 < least {
        return Err(Error::new(
            ErrorKind::Budget,
            format!(
                "{partitions} x {partitions} buckets within {memory}: at least {}",
                Bytes(least)
            ),
        )
        .needs(Bytes(least))
        .hint("give more memory, or choose fewer partitions"));
    }
    let header = Header::new(source, triples.count(), triples.weighted());
    if Header::load(path).is_ok_and(|(found, _)| found.same_source(&header)) {
        return Ok(());
    }
    // Give half of the spare memory to the source. The rest makes the writes longer.
    let taken = triples.take_memory(Bytes((memory.0 - least) / 2));
    let entries = count(triples, source, on_progress)?;
    let temporary = path.with_extension("tmp");
    let memory = memory.0 - fixed - taken.0;
    let written = write(disk, &temporary, triples, header, entries, memory, on_progress)
        .and_then(|()| disk.rename(&temporary, path));
    if written.is_err() {
        // Do not leave a partial file on a full device. Report the first error, not this one.
        let _ = disk.remove_file(&temporary);
    }
    written?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Writes the triples to a file with the bucket sizes in `entries`.
fn write(
    disk: &dyn Disk,
    path: &Path,
    triples: &mut dyn Triples,
    mut header: Header,
    mut entries: Vec<Entry>,
    memory: u64,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let mut file = disk.create(path)?;
    let places = header.places();
    file.set_len(places.end)?;
    let mut dealer = Dealing::new(&mut *file, places, &entries, memory);
    let partitioning = header.source.partitioning;
    let (dealt, partitions) = (partitioning.dealer(), partitioning.partitions());
    let mut pass = Pass::begin("sort triples", triples.count(), on_progress)?;
    triples.for_each(&mut |_, triples, weights| {
        pass.add(triples.len() as u64)?;
        for (at, &[head, relation, tail]) in triples.iter().enumerate() {
            let [head, tail] = [head, tail].map(|node| dealt.place_of(node as u64));
            let bucket = head.partition * partitions + tail.partition;
            let record = [head.row as u32, relation as u32, tail.row as u32];
            dealer.deal(bucket, record, weights.get(at).copied())?;
        }
        Ok(())
    })?;
    dealer.finish(&mut entries)?;
    header.write(&mut *file, &entries)?;
    file.sync()
}

/// Counts the triples of each bucket and computes its first place.
fn count(
    triples: &mut dyn Triples,
    source: &Source,
    on_progress: OnProgress<'_>,
) -> Result<Vec<Entry>> {
    let Source { partitioning, relations, .. } = source;
    let partitions = partitioning.partitions();
    let dealt = partitioning.dealer();
    let name = triples.name();
    let mut entries = vec![Entry::default(); partitions * partitions];
    let said = triples.count();
    let mut pass = Pass::begin("count triples", said, on_progress)?;
    triples.for_each(&mut |first, triples, weights| {
        pass.add(triples.len() as u64)?;
        for (at, triple) in triples.iter().enumerate() {
            check(triple, weights.get(at), partitioning, *relations)
                .map_err(|error| error.context(format!("{name}: row {}", first + at as u64)))?;
            let [head, tail] = [triple[0], triple[2]].map(|node| dealt.place_of(node as u64));
            entries[head.partition * partitions + tail.partition].count += 1;
        }
        Ok(())
    })?;
    let mut start = 0;
    for entry in &mut entries {
        entry.start = start;
        start += entry.count;
    }
    if start != said {
        return Err(Error::corrupt(format!("{name}: found {start}, expected {said}"))
            .hint("run `outercore check`"));
    }
    Ok(entries)
}

fn check(
    &[head, relation, tail]: &[i64; 3],
    weight: Option<&f32>,
    partitioning: &Partitioning,
    relations: u64,
) -> Result<()> {
    let nodes = partitioning.nodes();
    for (what, number, count) in
        [("head", head, nodes), ("relation", relation, relations), ("tail", tail, nodes)]
    {
        if u64::try_from(number).is_ok_and(|number| number < count) {
            continue;
        }
        return Err(Error::invalid(match count {
            0 => format!("{what} {number}, but there is none"),
            _ => format!("{what} {number}, expected 0 to {}", count - 1),
        }));
    }
    match weight {
        Some(weight) if !(weight.is_finite() && *weight >= 0.0) => {
            Err(Error::invalid(format!("weight {weight}, expected a finite number, 0 or more")))
        }
        _ => Ok(()),
    }
}

/// Writes triples to their places, with a buffer for each bucket.
struct Dealing<'a> {
    file: &'a mut dyn WriteFile,
    places: Places,
    /// For each bucket: its start in the file, the triples written so far, and its running
    /// checksum.
    starts: Vec<u64>,
    written: Vec<u64>,
    sums: Vec<u64>,
    /// The start of each buffer, and the end of the last one.
    bounds: Vec<u64>,
    filled: Vec<u64>,
    triples: Vec<[u32; 3]>,
    weights: Vec<f32>,
}

impl<'a> Dealing<'a> {
    fn new(file: &'a mut dyn WriteFile, places: Places, entries: &[Entry], memory: u64) -> Self {
        let each = (memory / RECORD / entries.len() as u64).max(1);
        let mut bounds = vec![0];
        for entry in entries {
            bounds.push(bounds[bounds.len() - 1] + entry.count.min(each));
        }
        let room = bounds[entries.len()] as usize;
        Self {
            file,
            places,
            starts: entries.iter().map(|entry| entry.start).collect(),
            written: vec![0; entries.len()],
            sums: vec![0; entries.len()],
            filled: vec![0; entries.len()],
            triples: vec![[0; 3]; room],
            weights: vec![0.0; if places.weighted { room } else { 0 }],
            bounds,
        }
    }

    fn deal(&mut self, bucket: usize, triple: [u32; 3], weight: Option<f32>) -> Result<()> {
        let room = self.bounds[bucket + 1] - self.bounds[bucket];
        if self.filled[bucket] == room {
            self.flush(bucket)?;
        }
        let place = (self.bounds[bucket] + self.filled[bucket]) as usize;
        self.triples[place] = triple;
        if let Some(weight) = weight {
            self.weights[place] = weight;
        }
        self.sums[bucket] = mix(self.sums[bucket], triple, weight);
        self.filled[bucket] += 1;
        Ok(())
    }

    fn flush(&mut self, bucket: usize) -> Result<()> {
        let from = self.bounds[bucket] as usize;
        let until = from + self.filled[bucket] as usize;
        let place = self.starts[bucket] + self.written[bucket];
        let triples = bytemuck::cast_slice(&self.triples[from..until]);
        self.file.write_at(self.places.triples + 12 * place, triples)?;
        if self.places.weighted {
            let weights = bytemuck::cast_slice(&self.weights[from..until]);
            self.file.write_at(self.places.weights + 4 * place, weights)?;
        }
        self.written[bucket] += self.filled[bucket];
        self.filled[bucket] = 0;
        Ok(())
    }

    fn finish(mut self, entries: &mut [Entry]) -> Result<()> {
        for (bucket, entry) in entries.iter_mut().enumerate() {
            if self.filled[bucket] > 0 {
                self.flush(bucket)?;
            }
            if self.written[bucket] != entry.count {
                return Err(Error::internal(format!(
                    "bucket {bucket}: {} triples, but {} were counted",
                    self.written[bucket], entry.count
                )));
            }
            entry.sum = self.sums[bucket];
        }
        Ok(())
    }
}
