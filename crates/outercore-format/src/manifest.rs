use std::collections::BTreeMap;

mod validate;

use crate::Checksum;
use outercore_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::{
    DATA_OFFSET, DType, FORMAT_NAME, FORMAT_VERSION, LIVE_GRAPHS_VERSION, LIVE_VERSION,
    NEWEST_VERSION, TYPED_VERSION, keys, npy,
};

/// `graph.json`: the only truth about what a data set holds.
///
/// Members that a reader does not know are ignored and not kept when it writes the manifest again;
/// whatever must not be ignored raises the version.
///
/// # Example
/// ```
/// use outercore_format::{ArrayEntry, Checksum, DType, Manifest, keys};
/// let mut manifest = Manifest::homogeneous(3, 0, false);
/// let entry = |key: &str, dtype, shape: &[u64]| ArrayEntry::inside(key, dtype, shape, Checksum::of(b""));
/// manifest.arrays.insert(keys::OFFSETS.into(), entry(keys::OFFSETS, DType::U64, &[4]));
/// manifest.arrays.insert(keys::SOURCES.into(), entry(keys::SOURCES, DType::U32, &[0]));
/// manifest.validate().unwrap();
/// assert_eq!(Manifest::from_json(manifest.to_json().as_bytes()).unwrap(), manifest);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `outercore`.
    pub format: String,
    /// The format version, which is not the library's.
    pub version: u32,
    /// When the data set was made: UTC, as [`crate::utc_timestamp`] writes it.
    pub created: String,
    /// Node types by name.
    pub node_types: BTreeMap<String, NodeType>,
    /// Edge types by name.
    pub edge_types: BTreeMap<String, EdgeType>,
    /// Arrays by key.
    pub arrays: BTreeMap<String, ArrayEntry>,
    /// What the arrays are for.
    #[serde(default)]
    pub roles: Roles,
    /// Where updates of the graph are; absent until there may be some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// How the data set came to be.
    #[serde(default)]
    pub provenance: Provenance,
}

/// A data set that takes updates: what its arrays hold, and whose log belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// 32 hexadecimal digits that no other data set has. Its log carries them.
    pub id: String,
    /// Log sequence number up to which the arrays hold the updates; those after it are in the log.
    pub lsn: u64,
}

/// A type of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeType {
    /// Number of nodes; their ids are `0..count`.
    pub count: u64,
    /// What the files of the user call node 0: their ids count from 0 or from 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_id: u64,
}

impl NodeType {
    /// A type of so many nodes, whose ids are those of the user.
    pub fn of(count: u64) -> Self {
        Self { count, first_id: 0 }
    }
}

/// A type of edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeType {
    /// Node type of the sources.
    pub source: String,
    /// Node type of the targets.
    pub target: String,
    /// Number of arcs in the CSC.
    pub count: u64,
    /// Whether every imported edge gave an arc in either direction.
    #[serde(default)]
    pub undirected: bool,
    /// Rows of the imported edge list, the bound of the edge ids; unknown where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// An array: where its bytes are and what they mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayEntry {
    /// Path of the `.npy` file: relative to the data set, or absolute where `external`.
    pub file: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Extent of each dimension, rows first.
    pub shape: Vec<u64>,
    /// Offset of the first data byte; 4096 unless `external`.
    pub data_offset: u64,
    /// Checksum of the data bytes.
    pub checksum: String,
    /// Whether the file lies outside the data set, registered in place.
    #[serde(default)]
    pub external: bool,
}

/// Which arrays play which part in training.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Key of the node features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    /// Keys of the features by node type, in a data set with several types.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub typed_features: BTreeMap<String, String>,
    /// Key of the node labels; in a data set with several types it says whose labels they are, and
    /// splits hold ids of that type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Keys of the splits by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<String, String>,
    /// Number of classes the labels have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// Features and labels by key that were given in another form than that in which they are
    /// stored. Batches have them in this form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, Given>,
    /// Keys of the arrays that are points in time, with their type in Arrow's notation, such as
    /// `timestamp[us, tz=UTC]`. Times whose unit only the user knows are not among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, String>,
}

/// The form of rows as their owner had them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Type of the elements.
    pub dtype: DType,
    /// Extent of each dimension after the first.
    pub row_shape: Vec<u64>,
}

/// How a data set came to be; informs people, decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The library version that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outercore: String,
    /// The files it was made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// The options it was made with.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub options: serde_json::Map<String, serde_json::Value>,
}

impl Manifest {
    /// Number of the last update in the arrays; 0 for a data set without a log.
    pub fn lsn(&self) -> u64 {
        self.live.as_ref().map_or(0, |live| live.lsn)
    }

    /// The manifest of a homogeneous graph, without its arrays.
    pub fn homogeneous(nodes: u64, edges: u64, undirected: bool) -> Self {
        let edge = EdgeType {
            source: keys::NODE.into(),
            target: keys::NODE.into(),
            count: edges,
            undirected,
            rows: None,
        };
        Self {
            format: FORMAT_NAME.into(),
            version: FORMAT_VERSION,
            created: String::new(),
            node_types: BTreeMap::from([(keys::NODE.into(), NodeType::of(nodes))]),
            edge_types: BTreeMap::from([(keys::EDGE.into(), edge)]),
            arrays: BTreeMap::new(),
            roles: Roles::default(),
            live: None,
            provenance: Provenance::default(),
        }
    }

    /// The format version that what it holds needs.
    pub fn needed_version(&self) -> u32 {
        if self.is_typed() {
            return TYPED_VERSION;
        }
        match (&self.live, self.arrays.contains_key(keys::FIRST_NODES)) {
            (None, _) => FORMAT_VERSION,
            (Some(_), false) => LIVE_VERSION,
            (Some(_), true) => LIVE_GRAPHS_VERSION,
        }
    }

    /// Parses and validates a manifest.
    ///
    /// # Errors
    /// `Version`: written by a newer format version, whatever else is in it. `Corrupt`: not JSON,
    /// not a manifest, one that contradicts itself or its checksum.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Preamble {
            format: String,
            version: u64,
            checksum: Option<String>,
        }
        // First what every version has: a newer manifest need not parse as ours.
        let preamble: Preamble = serde_json::from_slice(json).map_err(not_a_manifest)?;
        if preamble.format != FORMAT_NAME {
            return Err(Error::corrupt(format!(
                "format `{}`, expected `{FORMAT_NAME}`",
                preamble.format.escape_debug()
            )));
        }
        if preamble.version > u64::from(NEWEST_VERSION) {
            return Err(Error::new(
                ErrorKind::Version,
                format!(
                    "data set of format version {}, expected at most {NEWEST_VERSION}",
                    preamble.version
                ),
            )
            .hint("a newer Outercore wrote it: pip install --upgrade outercore"));
        }
        if preamble.version == 0 {
            return Err(Error::corrupt("format version 0, expected 1"));
        }
        if let Some(checksum) = preamble.checksum {
            let rest = json.strip_prefix(sealed(&checksum).as_bytes());
            if rest.map(Checksum::of) != Some(checksum) {
                return Err(Error::corrupt("it is not as it was written: its checksum is another")
                    .hint(
                        "restore the file from a copy; if you changed it by hand, remove the line \
                         `checksum` at its top",
                    ));
            }
        }
        let manifest: Self = serde_json::from_slice(json).map_err(not_a_manifest)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// The manifest as indented JSON with a last line end.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("strings, numbers and maps");
        json.push('\n');
        json
    }

    /// The manifest as it is written to disk: its JSON, with a checksum of what follows as the first
    /// member.
    ///
    /// # Example
    /// ```
    /// use outercore_format::Manifest;
    /// let manifest = Manifest::homogeneous(3, 0, false);
    /// let file = manifest.to_file();
    /// assert!(file.starts_with("{\n  \"checksum\": \"xxh3:"));
    /// let other = file.replace("\"undirected\": false", "\"undirected\": true");
    /// assert!(Manifest::from_json(other.as_bytes()).is_err());
    /// ```
    pub fn to_file(&self) -> String {
        let json = self.to_json();
        let members = json.strip_prefix(OPENING).expect("an object");
        sealed(&Checksum::of(members.as_bytes())) + members
    }

    /// Enters an array. Where another one had the key, the layouts and the grid that were made of
    /// that one are removed: they would be stale. Returns how many arrays were removed.
    ///
    /// # Example
    /// ```
    /// use outercore_format::{ArrayEntry, Checksum, DType, Manifest};
    /// let mut manifest = Manifest::homogeneous(1, 0, false);
    /// let entry = |key, of| ArrayEntry::inside(key, DType::F32, &[1], Checksum::of(of));
    /// manifest.replace("nodes/node/x", entry("nodes/node/x", b"1"));
    /// let layout = "layout/nodes/node/x/exact/rows";
    /// manifest.arrays.insert(layout.into(), entry(layout, b"1"));
    /// assert_eq!(manifest.replace("nodes/node/x", entry("nodes/node/x", b"2")), 1);
    /// assert_eq!(manifest.arrays.len(), 1);
    /// ```
    pub fn replace(&mut self, key: &str, entry: ArrayEntry) -> usize {
        let same = |before: &ArrayEntry| {
            (&before.checksum, before.dtype, &before.shape)
                == (&entry.checksum, entry.dtype, &entry.shape)
        };
        let is_new = self.arrays.get(key).is_none_or(same);
        self.arrays.insert(key.to_owned(), entry);
        if is_new {
            return 0;
        }
        let before = self.arrays.len();
        let has_weights = self.arrays.contains_key(keys::GRID_WEIGHTS);
        self.arrays.retain(|derived, _| !keys::is_made_of(derived, key, has_weights));
        before - self.arrays.len()
    }

    /// Checks everything that can be checked without looking at a file.
    ///
    /// # Errors
    /// `Corrupt`, naming the array or type: a file outside the data set, a shape that does not fit
    /// its type's count, a wrong dtype, a role without its array, two arrays in one file.
    pub fn validate(&self) -> Result<()> {
        validate::manifest(self)
    }
}

impl Live {
    /// The id as bytes; `None` where it is not written as it must be.
    pub fn id_bytes(&self) -> Option<[u8; 16]> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut id = [0; 16];
        let (pairs, rest) = self.id.as_bytes().as_chunks::<2>();
        if pairs.len() != id.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in id.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(id)
    }

    /// The id of these bytes.
    pub fn id_of(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ArrayEntry {
    /// The entry of an array inside the data set, in the file that its key names.
    pub fn inside(key: &str, dtype: DType, shape: &[u64], checksum: String) -> Self {
        Self {
            file: format!("{key}.npy"),
            dtype,
            shape: shape.to_vec(),
            data_offset: DATA_OFFSET,
            checksum,
            external: false,
        }
    }

    /// Number of rows: the first extent.
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Elements of a row: the product of the other extents.
    pub fn row_elements(&self) -> u64 {
        self.shape.iter().skip(1).product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.row_elements() * self.dtype.size() as u64
    }

    /// Bytes of the data.
    pub fn data_len(&self) -> u64 {
        self.rows() * self.row_bytes()
    }

    /// Length that the file must have.
    pub fn file_len(&self) -> u64 {
        self.data_offset + self.data_len()
    }

    /// Why the shape cannot be: more bytes than a file can hold, or too many dimensions.
    pub(crate) fn overflow(&self) -> Option<String> {
        npy::file_len(self.dtype, &self.shape, self.data_offset).err()
    }
}

/// How indented JSON begins.
const OPENING: &str = "{\n";

/// The beginning of a file with this checksum.
fn sealed(checksum: &str) -> String {
    format!("{OPENING}  \"checksum\": \"{checksum}\",\n")
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn not_a_manifest(error: serde_json::Error) -> Error {
    Error::corrupt(format!("not a manifest: {error}"))
        .hint("restore `graph.json` from a copy, or import the data set again")
}
