//! Helpers that alter the bytes or the manifest of a data set.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use outercore_format::Checksum;
use serde_json::{Value, json};

/// Offset of the data in a file.
const DATA: u64 = 4096;

/// Overwrites bytes at an offset of an array's data.
pub fn put(root: &Path, key: &str, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(root.join(format!("{key}.npy"))).unwrap();
    file.write_all_at(bytes, DATA + offset).unwrap();
}

/// Overwrites bytes and updates the manifest, as a faulty writer would.
pub fn put_as_written(root: &Path, key: &str, offset: u64, bytes: &[u8]) {
    put(root, key, offset, bytes);
    let data = fs::read(root.join(format!("{key}.npy"))).unwrap();
    let checksum = Checksum::of(&data[DATA as usize..]);
    edit(root, |json| json["arrays"][key]["checksum"] = json!(checksum));
}

/// Changes the manifest, which then has no checksum.
pub fn edit(root: &Path, change: impl FnOnce(&mut Value)) {
    let path = root.join("graph.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("checksum");
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}
