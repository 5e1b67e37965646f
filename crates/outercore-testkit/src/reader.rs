//! Requirements for every [`Reader`], whatever its source: the promises of its contract.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outercore_core::{Bytes, ErrorKind, Result, Stream, Uniform};
use outercore_io::{Arena, Completion, FileId, MmapReader, ReadRequest, Reader};

const DEADLINE: Duration = Duration::from_secs(20);
const DEPTH: usize = 8;

/// Makes the readers that [`reader_conformance`] tries.
pub trait MakeReader {
    /// Name for messages.
    fn name(&self) -> String;

    /// A reader with up to `depth` reads in flight. The caller leases the buffers from `arena`.
    ///
    /// # Errors
    /// `Unsupported`: this machine does not offer it, and it is skipped. Any other error fails the
    /// test.
    fn open(&self, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>>;

    /// Called after a file was written, before it is registered.
    fn written(&self, _path: &Path) {}

    /// Whether bytes may come from copies, which do not detect a truncated file.
    fn copies(&self) -> bool {
        false
    }
}

impl<F: Fn(&Arena, usize) -> Result<Box<dyn Reader>>> MakeReader for (&str, F) {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn open(&self, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>> {
        (self.1)(arena, depth)
    }
}

/// Tests every promise of the contract of [`Reader`], each with a new reader of `maker` and with
/// new files in a directory inside `scratch`, which must be on a disk.
///
/// # Panics
/// At the first broken promise.
pub fn reader_conformance(maker: &dyn MakeReader, scratch: &Path) {
    let checks: [fn(&mut Bench<'_>); 10] = [
        every_offset_and_length_brings_the_bytes_of_the_file,
        the_last_bytes_of_a_file_of_any_length_are_read,
        many_more_requests_than_the_depth_complete_once_each,
        nothing_to_do_is_done_at_once,
        reads_of_several_files_keep_apart,
        reads_join_others_in_flight_without_a_barrier,
        dropping_a_reader_with_reads_in_flight_gives_all_memory_back,
        a_file_cut_short_after_opening_is_a_named_error,
        a_file_that_is_not_there_is_a_named_error,
        one_failed_read_does_not_disturb_the_others,
    ];
    for check in checks {
        let arena = Arena::new(Bytes::mib(1)).unwrap();
        let name = maker.name();
        match maker.open(&arena, DEPTH) {
            Ok(reader) => {
                let directory = tempfile::tempdir_in(scratch).unwrap();
                check(&mut Bench { name, maker, arena, reader, directory });
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                eprintln!("skipped: {error}");
            }
        }
    }
}

/// A reader under test, with its memory and a few files.
struct Bench<'a> {
    name: String,
    maker: &'a dyn MakeReader,
    arena: Arena,
    reader: Box<dyn Reader>,
    directory: tempfile::TempDir,
}

impl Bench<'_> {
    /// A file of `len` bytes that differ by file and place.
    fn file(&mut self, number: u64, len: usize) -> (FileId, Vec<u8>, PathBuf) {
        let mut draws = Stream::new(number, 0).uniform(0, 0, 0);
        let content: Vec<u8> = (0..len).map(|_| draws.below(256) as u8).collect();
        let path = self.directory.path().join(format!("file-{number}"));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        self.maker.written(&path);
        (self.reader.register(&path).unwrap(), content, path)
    }

    fn request(&self, tag: u64, file: FileId, offset: u64, len: usize) -> ReadRequest {
        let lease = self.arena.lease(len.next_multiple_of(self.reader.alignment())).unwrap();
        ReadRequest { tag, file, offset, len, lease }
    }

    /// A random range aligned for this back end, up to the end of the file.
    fn range(&self, draws: &mut Uniform, file_len: usize, longest: usize) -> (u64, usize) {
        let alignment = self.reader.alignment();
        let offset = draws.below((file_len / alignment) as u64) * alignment as u64;
        let rest = file_len - offset as usize;
        (offset, 1 + draws.below(rest.min(longest) as u64) as usize)
    }

    /// Executes requests with a full queue and returns the completions by tag.
    fn run(&mut self, mut requests: VecDeque<ReadRequest>) -> BTreeMap<u64, Completion> {
        let expected = requests.len();
        let mut done = Vec::new();
        while done.len() < expected {
            self.reader.submit(&mut requests).unwrap();
            assert!(self.reader.in_flight() <= DEPTH, "{}", self.name);
            self.reader.wait(1, DEADLINE, &mut done).unwrap();
        }
        assert_eq!(self.reader.in_flight(), 0, "{}", self.name);
        let by_tag: BTreeMap<_, _> = done.into_iter().map(|one| (one.tag, one)).collect();
        assert_eq!(by_tag.len(), expected, "{}: each request completes once", self.name);
        by_tag
    }

    fn is_free(&self) -> bool {
        self.arena.free_bytes() == self.arena.size()
    }
}

/// Truncates a file to `len` bytes.
fn cut(path: &Path, len: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn every_offset_and_length_brings_the_bytes_of_the_file(bench: &mut Bench<'_>) {
    let (file, content, _) = bench.file(1, 300_001);
    let mut draws = Stream::new(1, 1).uniform(0, 0, 0);
    for round in 0..12 {
        let ranges: Vec<_> =
            (0..12).map(|_| bench.range(&mut draws, content.len(), 40_000)).collect();
        let requests = ranges
            .iter()
            .enumerate()
            .map(|(tag, &(offset, len))| bench.request(tag as u64, file, offset, len))
            .collect();
        for (tag, completion) in bench.run(requests) {
            completion.result.unwrap();
            let (offset, len) = ranges[tag as usize];
            assert!(
                completion.lease[..len] == content[offset as usize..][..len],
                "{}, round {round}: {len} bytes at {offset}",
                bench.name,
            );
        }
    }
}

fn the_last_bytes_of_a_file_of_any_length_are_read(bench: &mut Bench<'_>) {
    for len in [1, 511, 512, 513, 4095, 4096, 4097, 10_000] {
        let (file, content, _) = bench.file(len as u64, len);
        assert_eq!(bench.reader.file_len(file), len as u64);
        let offset = (len - 1) / bench.reader.alignment() * bench.reader.alignment();
        let request = bench.request(0, file, offset as u64, len - offset);
        let completion = bench.run([request].into()).remove(&0).unwrap();
        completion.result.unwrap();
        assert!(completion.lease[..len - offset] == content[offset..], "{}", bench.name);
    }
}

fn many_more_requests_than_the_depth_complete_once_each(bench: &mut Bench<'_>) {
    let (file, content, _) = bench.file(2, 64 << 10);
    let mut requests: VecDeque<_> =
        (0..200).map(|tag| bench.request(tag, file, tag % 16 * 4096, 4096)).collect();
    assert_eq!(bench.reader.depth(), DEPTH);
    assert_eq!(bench.reader.submit(&mut requests).unwrap(), DEPTH);
    assert_eq!((requests.len(), bench.reader.in_flight()), (200 - DEPTH, DEPTH));
    assert_eq!(bench.reader.submit(&mut requests).unwrap(), 0, "{}: no room", bench.name);
    let mut done = Vec::new();
    bench.reader.wait(DEPTH, DEADLINE, &mut done).unwrap();
    assert_eq!(done.len(), DEPTH, "{}", bench.name);
    let later = bench.run(requests);
    assert_eq!(later.len(), 200 - DEPTH);
    for completion in done.into_iter().chain(later.into_values()) {
        completion.result.unwrap();
        let place = (completion.tag % 16 * 4096) as usize;
        assert!(completion.lease[..] == content[place..place + 4096], "{}", bench.name);
    }
    assert!(bench.is_free(), "{}", bench.name);
}

fn nothing_to_do_is_done_at_once(bench: &mut Bench<'_>) {
    let mut done = Vec::new();
    assert_eq!(bench.reader.submit(&mut VecDeque::new()).unwrap(), 0);
    bench.reader.wait(3, DEADLINE, &mut done).unwrap();
    bench.reader.wait(0, Duration::ZERO, &mut done).unwrap();
    assert!(done.is_empty(), "{}", bench.name);
}

fn reads_of_several_files_keep_apart(bench: &mut Bench<'_>) {
    let files: Vec<_> = (10..15).map(|number| bench.file(number, 9_000)).collect();
    let requests =
        (0..40).map(|tag| bench.request(tag, files[tag as usize % 5].0, 4096, 4904)).collect();
    for (tag, completion) in bench.run(requests) {
        completion.result.unwrap();
        let content = &files[tag as usize % 5].1;
        assert!(completion.lease[..4904] == content[4096..], "{}: {tag}", bench.name);
    }
}

fn reads_join_others_in_flight_without_a_barrier(bench: &mut Bench<'_>) {
    let (file, content, _) = bench.file(3, 100 << 10);
    let mut done = Vec::new();
    let (mut submitted, mut seen) = (0, 0);
    while seen < 60 {
        let mut one = VecDeque::new();
        if submitted < 60 {
            one.push_back(bench.request(submitted, file, submitted % 25 * 4096, 4096));
        }
        submitted += bench.reader.submit(&mut one).unwrap() as u64;
        if bench.reader.in_flight() >= 3 || submitted == 60 {
            bench.reader.wait(1, DEADLINE, &mut done).unwrap();
        }
        for completion in done.drain(..) {
            completion.result.unwrap();
            let place = (completion.tag % 25 * 4096) as usize;
            assert!(completion.lease[..] == content[place..place + 4096], "{}", bench.name);
            seen += 1;
        }
    }
}

fn dropping_a_reader_with_reads_in_flight_gives_all_memory_back(bench: &mut Bench<'_>) {
    let (file, _, _) = bench.file(4, 512 << 10);
    let mut requests: VecDeque<_> =
        (0..8).map(|tag| bench.request(tag, file, tag * 65536, 65536)).collect();
    bench.reader.submit(&mut requests).unwrap();
    bench.reader = Box::new(MmapReader::open(1));
    assert!(bench.is_free(), "{}", bench.name);
}

fn a_file_cut_short_after_opening_is_a_named_error(bench: &mut Bench<'_>) {
    let (file, content, path) = bench.file(5, 50_000);
    for (len, offset, found) in [(20_000, 16_384, 3_616), (20_000, 40_960, 0), (16_384, 16_384, 0)]
    {
        cut(&path, len);
        let request = bench.request(0, file, offset, 9_000);
        let completion = bench.run([request].into()).remove(&0).unwrap();
        let Err(error) = completion.result else {
            assert!(bench.maker.copies(), "{}: {len} bytes left", bench.name);
            assert!(completion.lease[..9_000] == content[offset as usize..][..9_000]);
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", bench.name);
        let wanted = format!("9000 bytes wanted at offset {offset}, found {found}");
        let text = error.to_string();
        assert!(text.contains(&wanted), "{}: {text}", bench.name);
        assert!(text.contains(path.to_str().unwrap()), "{}: {text}", bench.name);
    }
}

fn a_file_that_is_not_there_is_a_named_error(bench: &mut Bench<'_>) {
    let error = bench.reader.register(Path::new("/no/such/file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", bench.name);
    assert!(error.to_string().contains("`/no/such/file`"), "{}: {error}", bench.name);
}

fn one_failed_read_does_not_disturb_the_others(bench: &mut Bench<'_>) {
    let (broken, _, path) = bench.file(6, 50_000);
    let (whole, content, _) = bench.file(7, 50_000);
    cut(&path, 0);
    let requests = (0..50)
        .map(|tag| bench.request(tag, if tag == 20 { broken } else { whole }, 8192, 5000))
        .collect();
    for (tag, completion) in bench.run(requests) {
        let may_fail = tag == 20;
        let fails = completion.result.is_err();
        assert!(fails == may_fail || may_fail && bench.maker.copies(), "{}: {tag}", bench.name);
        if tag != 20 {
            assert!(completion.lease[..5000] == content[8192..13192], "{}", bench.name);
        }
    }
}
