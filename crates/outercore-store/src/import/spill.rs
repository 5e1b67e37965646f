use std::path::{Path, PathBuf};

use outercore_core::Result;
use outercore_io::{Disk, WriteFile};

use super::segment::{Integer, Layout, Segment};

/// File of the edges that have no other binary file. Pairs of 32-bit ids as long as the ids allow,
/// then pairs of 64-bit ids.
pub(crate) struct Spill {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    /// Bytes appended so far.
    bytes: u64,
    buffer: Vec<u8>,
    /// Segments of the current source.
    segments: Vec<Segment>,
}

impl Spill {
    const BUFFER: usize = 256 << 10;

    /// Opens the spill file at `path` and truncates it to `bytes`. `segments` are the segments of
    /// the current source so far.
    pub fn open(disk: &dyn Disk, path: &Path, bytes: u64, segments: Vec<Segment>) -> Result<Self> {
        let mut file = if bytes == 0 {
            let file = disk.create(path)?;
            disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
            file
        } else {
            disk.open(path)?
        };
        file.set_len(bytes)?;
        let buffer = Vec::with_capacity(Self::BUFFER + 16);
        Ok(Self { file, path: path.to_owned(), bytes, buffer, segments })
    }

    /// Appends edges.
    pub fn append(&mut self, edges: &[[u64; 2]]) -> Result<()> {
        if edges.is_empty() {
            return Ok(());
        }
        let largest = edges.iter().fold(0, |largest, [u, v]| largest.max(*u).max(*v));
        let wide = largest > u64::from(u32::MAX);
        // Once a source has a 64-bit id, it stays at 64 bits. Otherwise alternating small and large
        // ids would give many segments.
        let wide = wide || self.segments.last().is_some_and(|last| last.integer == Integer::U64);
        let integer = if wide { Integer::U64 } else { Integer::U32 };
        if self.segments.last().is_none_or(|last| last.integer != integer) {
            let offset = self.bytes + self.buffer.len() as u64;
            let layout = Layout::Pairs { path: self.path.clone(), offset };
            self.segments.push(Segment { layout, integer, edges: 0 });
        }
        for edge in edges {
            if wide {
                self.buffer.extend_from_slice(bytemuck::bytes_of(edge));
            } else {
                self.buffer
                    .extend_from_slice(bytemuck::bytes_of(&[edge[0] as u32, edge[1] as u32]));
            }
            if self.buffer.len() >= Self::BUFFER {
                self.flush()?;
            }
        }
        if let Some(last) = self.segments.last_mut() {
            last.edges += edges.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes all edges durable.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync()
    }

    /// Bytes of all sources.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.buffer.len() as u64
    }

    /// Location of the edges of the current source.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Starts the next source.
    pub fn next_source(&mut self) {
        self.segments.clear();
    }
}

#[cfg(test)]
mod tests {
    use outercore_io::RealDisk;

    use super::super::segment::read_segments;
    use super::*;

    #[test]
    fn edges_come_back_in_the_width_their_ids_need() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spill");
        let small = [[1, 2], [u64::from(u32::MAX), 0]];
        let large = [[1 << 32, 5], [3, (1 << 62) + 1]];
        let mut spill = Spill::open(&RealDisk, &path, 0, Vec::new()).unwrap();
        for block in [small, large, small] {
            spill.append(&block).unwrap();
        }
        let mut segments = spill.segments().to_vec();
        spill.next_source();
        spill.append(&small).unwrap();
        spill.sync().unwrap();
        assert_eq!(spill.bytes(), 2 * 8 + 4 * 16 + 2 * 8);
        segments.extend_from_slice(spill.segments());
        let widths: Vec<_> = segments.iter().map(|s| (s.integer, s.edges)).collect();
        assert_eq!(widths, [(Integer::U32, 2), (Integer::U64, 4), (Integer::U32, 2)]);
        let mut found = Vec::new();
        read_segments(&segments, 0, 3, &mut |_, edges| {
            found.extend_from_slice(edges);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [small, large, small, small].concat());
    }

    #[test]
    fn a_spill_gone_on_with_forgets_what_was_not_durable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spill");
        let mut spill = Spill::open(&RealDisk, &path, 0, Vec::new()).unwrap();
        spill.append(&[[1, 2]]).unwrap();
        let segments = spill.segments().to_vec();
        spill.append(&[[3, 4]]).unwrap();
        spill.sync().unwrap();
        let mut spill = Spill::open(&RealDisk, &path, 8, segments).unwrap();
        spill.append(&[[5, 6]]).unwrap();
        spill.sync().unwrap();
        assert_eq!(spill.segments().len(), 1);
        assert_eq!(spill.segments()[0].edges, 2);
        let ids: Vec<u8> = [1u32, 2, 5, 6].iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(std::fs::read(&path).unwrap(), ids);
    }
}
