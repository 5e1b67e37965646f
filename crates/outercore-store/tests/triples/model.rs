//! Shared by the other tests: the import by its definition, and options that make a small import
//! take every path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Result, Stream};
use outercore_io::Disk;
use outercore_store::dataset::DataSet;
use outercore_store::import::{
    Duplicates, NameColumn, Part, TripleBatch, TripleImport, TripleImportOptions, TripleTuning,
    Unknown,
};

/// A temporary directory in memory if possible, because the tests sync thousands of times.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

pub type Row = [String; 3];

/// Dictionaries and triples of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    pub entities: Vec<String>,
    pub relations: Vec<String>,
    pub parts: BTreeMap<Part, Vec<[i64; 3]>>,
}

/// The import according to its definition.
pub fn naive(parts: &BTreeMap<Part, Vec<Row>>, options: &TripleImportOptions) -> Graph {
    let keep = options.unknown == Unknown::Keep;
    let known = parts.iter().filter(|(part, _)| keep || **part == Part::Train);
    let rows: Vec<&Row> = known.flat_map(|(_, rows)| rows).collect();
    let sorted = |names: BTreeSet<&String>| {
        let mut names: Vec<String> = names.into_iter().cloned().collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    };
    let entities = sorted(rows.iter().flat_map(|[h, _, t]| [h, t]).collect());
    let relations = sorted(rows.iter().map(|[_, r, _]| r).collect());
    let id = |names: &[String], name: &String| {
        names.iter().position(|found| found == name).map(|id| id as i64)
    };
    let mut found = BTreeMap::new();
    for (part, rows) in parts {
        let mut ids: Vec<[i64; 3]> = Vec::new();
        for [h, r, t] in rows {
            let row = (id(&entities, h), id(&relations, r), id(&entities, t));
            let (Some(h), Some(r), Some(t)) = row else { continue };
            if options.duplicates == Duplicates::Keep || !ids.contains(&[h, r, t]) {
                ids.push([h, r, t]);
            }
        }
        found.insert(*part, ids);
    }
    Graph { entities, relations, parts: found }
}

/// Buffers of a few triples, so that a small graph passes through many chunks and runs.
pub fn tiny() -> TripleTuning {
    TripleTuning {
        text_block: 64,
        entities: 600,
        relations: 300,
        merging: 900,
        smallest_buffer: 1,
        checkpoint: 160,
    }
}

pub fn options() -> TripleImportOptions {
    TripleImportOptions {
        memory: Bytes::mib(16),
        unknown: Unknown::Drop,
        tuning: Some(tiny()),
        ..TripleImportOptions::default()
    }
}

/// `count` triples of `entities` names and a few relations. Low ids are frequent.
pub fn random_rows(count: u64, entities: u64, seed: u64) -> Vec<Row> {
    let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
    let mut node = || {
        let bound = draws.below(entities) + 1;
        draws.below(bound)
    };
    (0..count)
        .map(|_| {
            let (h, t, r) = (node(), node(), node() % 5);
            [format!("Entität {h}"), format!("r{r}"), format!("Entität {t}")]
        })
        .collect()
}

/// Train, valid and test. The last two have names that do not occur in train.
pub fn random_parts(count: u64, seed: u64) -> BTreeMap<Part, Vec<Row>> {
    BTreeMap::from([
        (Part::Train, random_rows(count, 20, seed)),
        (Part::Valid, random_rows(count / 4, 22, seed + 1)),
        (Part::Test, random_rows(count / 4, 24, seed + 2)),
    ])
}

pub fn text(rows: &[Row]) -> String {
    rows.iter().map(|[h, r, t]| format!("{h}\t{r}\t{t}\n")).collect()
}

/// Names in the form of a batch.
pub struct Packed {
    pub offsets: Vec<i64>,
    pub bytes: Vec<u8>,
}

impl Packed {
    pub fn new(names: impl Iterator<Item = String>) -> Self {
        let (mut offsets, mut bytes) = (vec![0], Vec::new());
        for name in names {
            bytes.extend_from_slice(name.as_bytes());
            offsets.push(bytes.len() as i64);
        }
        Self { offsets, bytes }
    }

    pub fn column(&self) -> NameColumn<'_> {
        NameColumn { offsets: &self.offsets, bytes: &self.bytes }
    }
}

pub fn push(import: &mut TripleImport, part: Part, rows: &[Row]) -> Result<()> {
    let columns: Vec<Packed> =
        (0..3).map(|c| Packed::new(rows.iter().map(|row| row[c].clone()))).collect();
    let batch = TripleBatch {
        heads: columns[0].column(),
        relations: columns[1].column(),
        tails: columns[2].column(),
        weights: None,
    };
    import.push(part, &batch)
}

pub fn begin(
    disk: Arc<dyn Disk>,
    root: &Path,
    options: &TripleImportOptions,
) -> Result<TripleImport> {
    TripleImport::begin(disk, root, options.clone(), "test")
}

/// Reads the data set from disk.
pub fn read(root: &Path) -> Graph {
    let set = DataSet::open(root).unwrap();
    let names = |kind: &str| -> Vec<String> {
        let offsets = set.read_array(&format!("names/{kind}.offsets")).unwrap();
        let offsets: Vec<u64> = bytemuck::pod_collect_to_vec(&offsets);
        let bytes = set.read_array(&format!("names/{kind}.bytes")).unwrap();
        let name = |pair: &[u64]| bytes[pair[0] as usize..pair[1] as usize].to_vec();
        offsets.windows(2).map(|pair| String::from_utf8(name(pair)).unwrap()).collect()
    };
    let mut parts = BTreeMap::new();
    for part in Part::ALL {
        if set.has_array(&part.key()) {
            let ids: Vec<i64> = bytemuck::pod_collect_to_vec(&set.read_array(&part.key()).unwrap());
            parts.insert(part, ids.chunks(3).map(|row| [row[0], row[1], row[2]]).collect());
        }
    }
    Graph { entities: names("entity"), relations: names("relation"), parts }
}
