use std::collections::BTreeMap;

mod validate;

use crate::Checksum;
use outercore_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::{
    DATA_OFFSET, DType, FORMAT_NAME, FORMAT_VERSION, LIVE_GRAPHS_VERSION, LIVE_VERSION,
    NEWEST_VERSION, TYPED_VERSION, keys, npy,
};

/// `graph.json`: the single source of truth about the content of a data set.
///
/// A reader ignores unknown members and drops them when it writes the manifest again. A member that
/// must not be ignored therefore needs a new version.
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
    /// The format version; it differs from the library version.
    pub version: u32,
    /// Creation time of the data set: UTC, in the notation of [`crate::utc_timestamp`].
    pub created: String,
    /// Node types by name.
    pub node_types: BTreeMap<String, NodeType>,
    /// Edge types by name.
    pub edge_types: BTreeMap<String, EdgeType>,
    /// Arrays by key.
    pub arrays: BTreeMap<String, ArrayEntry>,
    /// Purposes of the arrays.
    #[serde(default)]
    pub roles: Roles,
    /// State of the updates; absent until the data set accepts updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// How the data set was created.
    #[serde(default)]
    pub provenance: Provenance,
}

/// State of a data set that accepts updates: the updates in its arrays, and its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// 32 hexadecimal digits, unique to this data set and its log.
    pub id: String,
    /// The arrays contain the updates up to this log sequence number; later updates are in the log.
    pub lsn: u64,
}

/// A type of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeType {
    /// Number of nodes; their ids are `0..count`.
    pub count: u64,
    /// The id of node 0 in the user's files: 0 or 1, as their ids count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_id: u64,
}

impl NodeType {
    /// A type of `count` nodes, whose ids equal the user's ids.
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
    /// Whether every imported edge gave one arc in each direction.
    #[serde(default)]
    pub undirected: bool,
    /// Rows of the imported edge list, the bound of the edge ids; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// An array: the place of its bytes and their meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayEntry {
    /// Path of the `.npy` file: relative to the data set, or absolute if `external`.
    pub file: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Extent of each dimension, rows first.
    pub shape: Vec<u64>,
    /// Offset of the first data byte; always 4096 unless `external`.
    pub data_offset: u64,
    /// Checksum of the data bytes.
    pub checksum: String,
    /// Whether the file is outside the data set and registered in place.
    #[serde(default)]
    pub external: bool,
}

/// The role of arrays in training.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Key of the node features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    /// Keys of the features by node type, if there are several types.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub typed_features: BTreeMap<String, String>,
    /// Key of the node labels. If there are several types, it names the labelled type, and splits
    /// hold ids of that type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Keys of the splits by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<String, String>,
    /// Number of classes of the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// Features and labels, by key, that were given in another form than the stored one. Batches
    /// have the given form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, Given>,
    /// Keys of the arrays that are points in time, with their type in Arrow's notation, such as
    /// `timestamp[us, tz=UTC]`. Times without a known unit are not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, String>,
}

/// The form of rows as the user provided them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Type of the elements.
    pub dtype: DType,
    /// Extent of each dimension after the first.
    pub row_shape: Vec<u64>,
}

/// How a data set was created. This is information for people; no code depends on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command that created the data set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The library version that created the data set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outercore: String,
    /// The input files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// The options of the command.
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

    /// The lowest format version that supports the content.
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
    /// `Version`: written by a newer format version, regardless of the other content. `Corrupt`:
    /// not JSON, not a manifest, or in contradiction to itself or to its checksum.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Preamble {
            format: String,
            version: u64,
            checksum: Option<String>,
        }
        // First parse the members that every version has: the rest of a newer manifest may not
        // parse.
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

    /// The manifest as indented JSON with a final newline.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("strings, numbers and maps");
        json.push('\n');
        json
    }

    /// The manifest as it is written to disk: JSON whose first member is a checksum of the rest.
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

    /// Adds an array. If the key had another array, the layouts and the grid computed from it are
    /// stale and are removed. Returns the number of removed arrays.
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

    /// Checks everything that does not require opening a file.
    ///
    /// # Errors
    /// `Corrupt`, naming the array or type: a file outside the data set, a shape that does not fit
    /// its type's count, a wrong dtype, a role without its array, two arrays in one file.
    pub fn validate(&self) -> Result<()> {
        validate::manifest(self)
    }
}

impl Live {
    /// The id as bytes; `None` if its notation is invalid.
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

    /// The text of the id with these bytes.
    pub fn id_of(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ArrayEntry {
    /// The entry of an array inside the data set, in the file named after its key.
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

    /// The expected length of the file.
    pub fn file_len(&self) -> u64 {
        self.data_offset + self.data_len()
    }

    /// The reason why the shape is invalid: more bytes than a file can hold, or too many
    /// dimensions.
    pub(crate) fn overflow(&self) -> Option<String> {
        npy::file_len(self.dtype, &self.shape, self.data_offset).err()
    }
}

/// The first bytes of indented JSON.
const OPENING: &str = "{\n";

/// The first bytes of a file with this checksum.
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
