//! Conditions that must hold inside a manifest, checked without opening files.

use std::collections::BTreeMap;
use std::path::Path;

use outercore_core::{Context, Error, Result};

use crate::keys::Group;
use crate::{ArrayEntry, Checksum, DATA_OFFSET, DType, FORMAT_NAME, Live, Manifest, keys};

/// Number of nodes that 32-bit ids can address.
const IDS_OF_32_BITS: u64 = 1 << 32;

pub(crate) fn manifest(manifest: &Manifest) -> Result<()> {
    let version = manifest.needed_version();
    if manifest.format != FORMAT_NAME || manifest.version != version {
        return Err(Error::corrupt(format!(
            "format `{}` version {}, expected `{FORMAT_NAME}` version {version}",
            manifest.format.escape_debug(),
            manifest.version
        )));
    }
    live(manifest.live.as_ref())?;
    types(manifest)?;
    let mut files = BTreeMap::new();
    for (key, entry) in &manifest.arrays {
        array(manifest, key, entry).with_context(|| named(key))?;
        if let Some(other) = files.insert(entry.file.as_str(), key).filter(|_| !entry.external) {
            return Err(Error::corrupt(format!(
                "arrays `{other}` and `{key}` share the file `{}`",
                entry.file
            )));
        }
    }
    if !manifest.edge_types.is_empty() {
        topology(manifest)?;
    }
    roles(manifest)
}

fn live(live: Option<&Live>) -> Result<()> {
    let Some(live) = live else { return Ok(()) };
    if live.id_bytes().is_none() {
        return Err(Error::corrupt(format!(
            "log `{}`, expected 32 lower-case hexadecimal digits",
            live.id.escape_debug()
        )));
    }
    Ok(())
}

fn types(manifest: &Manifest) -> Result<()> {
    for (name, node_type) in &manifest.node_types {
        name_of_type(name)?;
        let context = || format!("node type `{name}`");
        count(node_type.count).with_context(context)?;
        if node_type.first_id > 1 {
            return Err(Error::corrupt(format!(
                "first id {}, expected 0 or 1",
                node_type.first_id
            )))
            .with_context(context);
        }
    }
    for (name, edge_type) in &manifest.edge_types {
        name_of_type(name)?;
        let context = || format!("edge type `{name}`");
        count(edge_type.count).with_context(context)?;
        for end in [&edge_type.source, &edge_type.target] {
            if !manifest.node_types.contains_key(end) {
                return Err(Error::corrupt(format!("node type `{end}` is not in the manifest")))
                    .with_context(context);
            }
        }
    }
    Ok(())
}

fn name_of_type(name: &str) -> Result<()> {
    if name.contains('/') {
        return Err(Error::corrupt(format!("type name `{name}` contains a slash")));
    }
    keys::validate(name).map_err(as_corrupt)
}

/// Ids, labels and splits are `int64` in Python.
fn count(count: u64) -> Result<()> {
    if i64::try_from(count).is_ok() {
        return Ok(());
    }
    Err(Error::corrupt(format!("count {count}, expected less than 2^63")))
}

fn array(manifest: &Manifest, key: &str, entry: &ArrayEntry) -> Result<()> {
    keys::validate(key).map_err(as_corrupt)?;
    place(entry)?;
    if entry.shape.is_empty() {
        return Err(Error::corrupt("no dimension, expected rows"));
    }
    if let Some(reason) = entry.overflow() {
        return Err(Error::corrupt(reason));
    }
    Checksum::validate(&entry.checksum)?;
    match Group::of(key) {
        Group::Node { node_type, .. } => {
            let Some(nodes) = manifest.node_types.get(node_type) else {
                return Err(Error::corrupt(format!(
                    "node type `{node_type}` is not in the manifest"
                )));
            };
            rows(entry, nodes.count, &format!("one for each node of type `{node_type}`"))
        }
        Group::Edge { edge_type, .. }
            if !manifest.edge_types.contains_key(edge_type) && !keys::is_topology(key) =>
        {
            Err(Error::corrupt(format!("edge type `{edge_type}` is not in the manifest")))
        }
        Group::Split { .. } => {
            dtype(entry, &[DType::I64])?;
            dimensions(entry, 1)
        }
        // The readers of these arrays check type and shape, and so does `outercore check`.
        Group::Triples { .. } | Group::Weights { .. } | Group::Names { .. } => Ok(()),
        Group::FirstNodes | Group::Graph { .. } | Group::GraphSplit { .. } => Ok(()),
        Group::Edge { .. } | Group::Other => Ok(()),
    }
}

fn place(entry: &ArrayEntry) -> Result<()> {
    let file = &entry.file;
    if entry.external {
        let path = Path::new(file);
        let climbs = path.components().any(|part| part.as_os_str() == "..");
        if !path.is_absolute() || climbs || file.contains('\0') {
            return Err(Error::corrupt(format!(
                "external file `{}`, expected an absolute path without `..`",
                file.escape_debug()
            )));
        }
        return Ok(());
    }
    keys::validate(file).map_err(as_corrupt)?;
    if !file.ends_with(".npy") {
        return Err(Error::corrupt(format!("file `{file}`, expected a name that ends in `.npy`")));
    }
    if entry.data_offset != DATA_OFFSET {
        return Err(Error::corrupt(format!(
            "data at byte {}, expected {DATA_OFFSET}",
            entry.data_offset
        )));
    }
    Ok(())
}

/// Checks the three CSC arrays, in which edge types follow each other.
fn topology(manifest: &Manifest) -> Result<()> {
    let schema = manifest.schema().map_err(as_corrupt)?;
    let counts = manifest.edge_types.values().map(|edge_type| edge_type.count);
    // Each count is below 2^63, but their sum may overflow 64 bits.
    let edges = counts.fold(0, u64::saturating_add);
    count(edges).context("edges of all types")?;
    let part = |key: &'static str| (key, manifest.arrays.get(key));

    let (key, offsets) = part(keys::OFFSETS);
    let offsets = offsets.ok_or_else(|| missing(key))?;
    let targets = if schema.is_typed() { "columns" } else { "targets" };
    one_dimension(key, offsets, schema.num_columns() + 1, &format!("one more than {targets}"))?;
    dtype(offsets, &[DType::U64]).with_context(|| named(key))?;

    let (key, sources) = part(keys::SOURCES);
    let sources = sources.ok_or_else(|| missing(key))?;
    one_dimension(key, sources, edges, "one for each edge")?;
    dtype(sources, &[DType::U32, DType::U64]).with_context(|| named(key))?;
    if sources.dtype == DType::U32 && schema.num_nodes() > IDS_OF_32_BITS {
        let nodes = schema.num_nodes();
        return Err(Error::corrupt(format!("uint32 cannot name {nodes} source nodes")))
            .with_context(|| named(key));
    }

    if let (key, Some(ids)) = part(keys::EDGE_IDS) {
        one_dimension(key, ids, edges, "one for each edge")?;
        dtype(ids, &[DType::U32, DType::U64]).with_context(|| named(key))?;
    }
    Ok(())
}

fn roles(manifest: &Manifest) -> Result<()> {
    let roles = &manifest.roles;
    let find = |key: &String| manifest.arrays.get(key).ok_or_else(|| missing(key));
    if let Some(key) = &roles.features {
        let features = find(key).context("role `features`")?;
        node_role(key)?;
        dimensions(features, 2).with_context(|| named(key))?;
        if features.row_elements() == 0 {
            return Err(Error::corrupt("rows of no columns")).with_context(|| named(key));
        }
    }
    for (node_type, key) in &roles.typed_features {
        let features = find(key).with_context(|| format!("features of `{node_type}`"))?;
        if !matches!(Group::of(key), Group::Node { node_type: of, .. } if of == node_type) {
            return Err(Error::corrupt(format!(
                "features of `{node_type}`: array `{key}` belongs to another type"
            )));
        }
        dimensions(features, 2).with_context(|| named(key))?;
        if features.row_elements() == 0 {
            return Err(Error::corrupt("rows of no columns")).with_context(|| named(key));
        }
    }
    if let Some(key) = &roles.labels {
        let labels = find(key).context("role `labels`")?;
        node_role(key)?;
        match labels.shape.len() {
            1 => dtype(labels, &[DType::I64, DType::F64]),
            2 => dtype(labels, &[DType::F32, DType::F64]),
            _ => dimensions(labels, 1),
        }
        .with_context(|| named(key))?;
    }
    for (name, key) in &roles.splits {
        let context = || format!("split `{name}`");
        find(key).with_context(context)?;
        if !matches!(Group::of(key), Group::Split { .. }) {
            return Err(Error::corrupt(format!("array `{key}` is not below `splits/`")))
                .with_context(context);
        }
    }
    for key in roles.times.keys() {
        find(key).context("role `times`")?;
    }
    Ok(())
}

fn node_role(key: &str) -> Result<()> {
    if matches!(Group::of(key), Group::Node { .. }) {
        return Ok(());
    }
    Err(Error::corrupt(format!("array `{key}` has a node role but is not below `nodes/`")))
}

fn one_dimension(key: &str, entry: &ArrayEntry, expected: u64, why: &str) -> Result<()> {
    dimensions(entry, 1).and_then(|()| rows(entry, expected, why)).with_context(|| named(key))
}

fn rows(entry: &ArrayEntry, expected: u64, why: &str) -> Result<()> {
    if entry.rows() == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!("{} rows, expected {expected} ({why})", entry.rows())))
}

fn dimensions(entry: &ArrayEntry, expected: usize) -> Result<()> {
    if entry.shape.len() == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!("shape {:?}, expected {expected} dimension(s)", entry.shape)))
}

fn dtype(entry: &ArrayEntry, expected: &[DType]) -> Result<()> {
    if expected.contains(&entry.dtype) {
        return Ok(());
    }
    let names: Vec<_> = expected.iter().map(|dtype| dtype.name()).collect();
    Err(Error::corrupt(format!("type {}, expected {}", entry.dtype, names.join(" or "))))
}

fn missing(key: &str) -> Error {
    Error::corrupt(format!("array `{key}` is not in the manifest"))
}

fn named(key: &str) -> String {
    format!("array `{}`", key.escape_debug())
}

/// Converts to `Corrupt`: the user did not write the names in a manifest, so a bad name means a
/// damaged manifest.
fn as_corrupt(error: Error) -> Error {
    let text = error.to_string();
    Error::corrupt(text.lines().next().unwrap_or_default())
}
