use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use outercore_core::{Bytes, Context, Error, ErrorKind, Result, hint};

/// Compression of a text file, recognised by its first bytes, never by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Coding {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1F, 0x8B, ..] => Self::Gzip,
            // A frame, or a skippable frame before the first one.
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            [0xFD, b'7', b'z', b'X', b'Z', 0x00, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, ..] => Self::Bzip2,
            _ => Self::Plain,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }
}

/// The decompressed bytes of a text file, from a given position.
pub struct ByteStream {
    /// The name for the file in messages, such as `edge list`.
    kind: &'static str,
    path: PathBuf,
    coding: Coding,
    inner: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl ByteStream {
    /// Opens `path` at `start`, an offset in the decompressed text.
    ///
    /// `kind` is the name for the file in messages, such as `edge list`. `memory` limits the window
    /// of a decompressor.
    ///
    /// **Cost** A compressed file is decompressed from its beginning.
    ///
    /// # Errors
    /// The file cannot be opened; `Corrupt`: it ends before `start`.
    pub fn open(kind: &'static str, path: &Path, start: u64, memory: Bytes) -> Result<Self> {
        let describe = || format!("{kind} `{}`", path.display());
        let mut file = File::open(path).with_context(describe)?;
        if file.metadata().with_context(describe)?.is_dir() {
            let what = format!("{}: expected a file, found a directory", describe());
            return Err(Error::invalid(what));
        }
        let mut magic = [0; 6];
        let known = read_up_to(&mut file, &mut magic).with_context(describe)?;
        let coding = Coding::of(&magic[..known]);
        let consumed = Arc::new(AtomicU64::new(0));
        let from = if coding == Coding::Plain { start } else { 0 };
        file.seek(SeekFrom::Start(from)).with_context(describe)?;
        consumed.store(from, Ordering::Relaxed);
        let counted = Counted { file, consumed: Arc::clone(&consumed) };
        let inner: Box<dyn Read + Send> = match coding {
            Coding::Plain => Box::new(counted),
            Coding::Gzip => {
                Box::new(GzipMembers::new(BufReader::with_capacity(256 << 10, counted)))
            }
            Coding::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::new(counted).with_context(describe)?;
                // A frame may request a window of any size, so the budget limits it.
                let window = (memory.0 / 4).max(8 << 20).ilog2().min(31);
                decoder.window_log_max(window).with_context(describe)?;
                Box::new(decoder)
            }
            Coding::Xz => {
                let window = (memory.0 / 4).max(64 << 20).min(u64::from(u32::MAX)) >> 10;
                Box::new(XzReader::new_mem_limit(
                    BufReader::with_capacity(256 << 10, counted),
                    true,
                    window as u32,
                ))
            }
            Coding::Bzip2 => {
                Box::new(MultiBzDecoder::new(BufReader::with_capacity(256 << 10, counted)))
            }
        };
        let mut stream = Self { kind, path: path.to_owned(), coding, inner, consumed };
        if coding != Coding::Plain {
            stream.skip(start)?;
        }
        Ok(stream)
    }

    /// Bytes of the file read so far; the counter may be shared to show progress.
    pub fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }

    /// Fills `buffer`; a shorter result means the end of the text.
    ///
    /// # Errors
    /// `Corrupt`: a compressed file is truncated or damaged, with the byte. Errors of the system.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        read_up_to(&mut self.inner, buffer).map_err(|source| {
            let packed = self.coding != Coding::Plain && source.raw_os_error().is_none();
            let error = if packed { self.damaged(&source) } else { Error::from(source) };
            error.context(format!("{} `{}`", self.kind, self.path.display()))
        })
    }

    fn damaged(&self, source: &io::Error) -> Error {
        let at = self.consumed.load(Ordering::Relaxed);
        let coding = self.coding.in_words();
        if source.kind() == io::ErrorKind::OutOfMemory {
            return Error::new(
                ErrorKind::Budget,
                format!("unpacking its {coding} data takes more memory than the budget allows"),
            )
            .hint(hint!("pass a larger " {memory} ", such as 1GiB, or unpack the file before"));
        }
        let what = if source.kind() == io::ErrorKind::UnexpectedEof {
            format!("the file ends at byte {at}, in the middle of its {coding} data")
        } else {
            format!("cannot unpack {coding} data near byte {at}: {source}")
        };
        Error::corrupt(what).hint("the file is cut short or damaged; fetch it again")
    }

    fn skip(&mut self, mut bytes: u64) -> Result<()> {
        let mut scrap = vec![0; 64 << 10];
        while bytes > 0 {
            let step = bytes.min(scrap.len() as u64) as usize;
            let found = self.read(&mut scrap[..step])?;
            if found < step {
                return Err(Error::corrupt(format!(
                    "{} `{}`: the text ends {} bytes before the position noted in the journal",
                    self.kind,
                    self.path.display(),
                    bytes - found as u64
                ))
                .hint(hint!(
                    "the file has changed since; pass " {overwrite = true} " to start again"
                )));
            }
            bytes -= step as u64;
        }
        Ok(())
    }
}

/// Decompresses the members of a gzip file, one after the other. Like `gzip`, it skips zeros after
/// a member, with which tapes and some programs pad a block.
struct GzipMembers<R: BufRead> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut packed) = self.member.take().map(GzDecoder::into_inner) else { break };
            if skip_zeros(&mut packed)? {
                self.member = Some(GzDecoder::new(packed));
            }
        }
        Ok(0)
    }
}

/// Skips zeros; returns whether more data follows.
fn skip_zeros(packed: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match packed.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let (is_end, is_more) = (bytes.is_empty(), zeros < bytes.len());
        packed.consume(zeros);
        if is_end || is_more {
            return Ok(is_more);
        }
    }
}

struct Counted {
    file: File,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Splits a [`ByteStream`] into blocks of whole lines.
pub struct LineBlocks {
    stream: ByteStream,
    /// The beginning of a line at the end of the last block.
    carry: Vec<u8>,
    block: usize,
    longest_line: usize,
    ended: bool,
}

impl LineBlocks {
    /// Blocks of about `block` bytes.
    pub fn new(stream: ByteStream, block: usize) -> Self {
        // A longer line is not an edge; without this limit, a file without line ends would fill the
        // memory.
        Self { stream, carry: Vec::new(), block, longest_line: 4 * block, ended: false }
    }

    /// Replaces `bytes` by the next lines, each ended by `\n`, which is added to the last line if
    /// necessary. Returns the number of their bytes in the text; `None` at the end.
    ///
    /// # Errors
    /// As [`ByteStream::read`]; `Invalid`: a line that is far too long.
    #[allow(clippy::should_implement_trait, reason = "it lends its caller's buffer")]
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>> {
        bytes.clear();
        bytes.append(&mut self.carry);
        while !self.ended {
            let filled = bytes.len();
            bytes.resize(filled + self.block.saturating_sub(filled).max(self.block / 4), 0);
            let read = self.stream.read(&mut bytes[filled..])?;
            self.ended = filled + read < bytes.len();
            bytes.truncate(filled + read);
            if let Some(last) = memchr::memrchr(b'\n', &bytes[filled..]) {
                let end = filled + last + 1;
                self.carry.extend_from_slice(&bytes[end..]);
                bytes.truncate(end);
                return Ok(Some(end as u64));
            }
            if bytes.len() > self.longest_line {
                return Err(Error::invalid(format!(
                    "{} `{}`: a line is longer than {}, expected short lines of text",
                    self.stream.kind,
                    self.stream.path.display(),
                    Bytes(self.longest_line as u64)
                )));
            }
        }
        let rest = bytes.len() as u64;
        if rest == 0 {
            return Ok(None);
        }
        // At the end of the stream only the carried bytes are left. Their last line may lack its
        // line end.
        if bytes.last() != Some(&b'\n') {
            bytes.push(b'\n');
        }
        Ok(Some(rest))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines_of(content: &[u8], start: u64, block: usize) -> Result<Vec<u8>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edges");
        std::fs::write(&path, content).unwrap();
        let mut blocks =
            LineBlocks::new(ByteStream::open("edge list", &path, start, Bytes::mib(16))?, block);
        let (mut all, mut bytes, mut counted) = (Vec::new(), Vec::new(), 0);
        while let Some(length) = blocks.next(&mut bytes)? {
            assert_eq!(bytes.last(), Some(&b'\n'));
            counted += length;
            all.extend_from_slice(&bytes);
        }
        assert!((all.len() as u64).saturating_sub(counted) <= 1, "{counted} of {}", all.len());
        Ok(all)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let mut encoder =
            lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn blocks_of_any_size_from_any_coding_give_the_same_lines() {
        let text: Vec<u8> =
            (0..2000).flat_map(|i| format!("{i} {}\n", i * 7).into_bytes()).collect();
        let (left, right) = text.split_at(5000);
        let zstd = |part: &[u8]| zstd::encode_all(part, 3).unwrap();
        let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&text)].concat();
        for content in [
            text.clone(),
            gzip(&text),
            [gzip(left), gzip(right)].concat(),
            [gzip(&text), vec![0; 700]].concat(),
            [gzip(left), vec![0; 3], gzip(right), vec![0; 300_000]].concat(),
            zstd(&text),
            [zstd(left), zstd(right)].concat(),
            skippable,
            xz(&text),
            [xz(left), xz(right)].concat(),
            bzip2(&text),
            [bzip2(left), bzip2(right)].concat(),
        ] {
            for block in [16, 100, 4096, 1 << 20] {
                assert_eq!(lines_of(&content, 0, block).unwrap(), text);
                assert_eq!(lines_of(&content, 5000, block).unwrap(), right);
            }
        }
    }

    #[test]
    fn a_last_line_without_an_end_gets_one() {
        assert_eq!(lines_of(b"1 2\n3 4", 0, 4096).unwrap(), b"1 2\n3 4\n");
        assert_eq!(lines_of(b"1 2", 0, 16).unwrap(), b"1 2\n");
        assert_eq!(lines_of(b"", 0, 16).unwrap(), b"");
        assert_eq!(lines_of(b"\n\n", 0, 16).unwrap(), b"\n\n");
    }

    #[test]
    fn a_file_without_line_ends_is_refused() {
        let error = lines_of(&[b'1'; 100_000], 0, 1024).unwrap_err().to_string();
        assert!(error.contains("a line is longer than 4.0 KiB"), "{error}");
    }

    #[test]
    fn a_packed_file_cut_short_is_corrupt_and_named() {
        let text: Vec<u8> =
            (0..2000).flat_map(|i| format!("{i} {}\n", i * 7).into_bytes()).collect();
        let zstd = zstd::encode_all(&text[..], 3).unwrap();
        for (coding, packed) in
            [("gzip", gzip(&text)), ("zstd", zstd), ("xz", xz(&text)), ("bzip2", bzip2(&text))]
        {
            let half = packed.len() / 2;
            let error = lines_of(&packed[..half], 0, 4096).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let expected = format!("ends at byte {half}, in the middle of its {coding} data");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }

    #[test]
    fn what_follows_a_gzip_member_and_is_no_other_one_is_corrupt() {
        let text = b"1 2\n3 4\n";
        for rest in [&b"x"[..], b"\0\0x", b"\x1F\x8B", b"\x1F\x8B\x08\0"] {
            let error = lines_of(&[&gzip(text)[..], rest].concat(), 0, 16).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{rest:?}: {error}");
        }
    }

    #[test]
    fn a_packed_file_with_a_damaged_byte_is_never_read_as_if_it_were_whole() {
        let text: Vec<u8> =
            (0..2000).flat_map(|i| format!("{i} {}\n", i * 7).into_bytes()).collect();
        for packed in [gzip(&text), xz(&text), bzip2(&text)] {
            for at in (20..packed.len()).step_by(packed.len() / 23) {
                let mut damaged = packed.clone();
                damaged[at] ^= 0x10;
                assert!(
                    lines_of(&damaged, 0, 4096).map_or(true, |lines| lines == text),
                    "byte {at} of {:?}",
                    &packed[..4]
                );
            }
        }
    }
}
