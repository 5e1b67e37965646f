//! Compares the layer table of `ARCHITECTURE.md` with the imports of the crates.
//!
//! The table is read from the document, so the document cannot be outdated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates that may contain `unsafe`; all others forbid it.
const MAY_BE_UNSAFE: [&str; 3] = ["outercore-io", "outercore-fabric", "outercore-py"];

/// The layer of a crate in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// A numbered row.
    Number(u32),
    /// The row `dev`: above all other layers, and imported only by tests.
    Development,
}

struct Crate {
    name: String,
    manifest: PathBuf,
    /// Imported crates of this workspace, and whether only tests import them.
    imports: Vec<(String, bool)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rows `| layer | crates | ...` whose first cell is a number or `dev`.
fn layer_table() -> BTreeMap<String, Layer> {
    let path = root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).expect("ARCHITECTURE.md at the root of the repository");
    let mut table = BTreeMap::new();
    for line in text.lines() {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let layer = match cells.next() {
            Some("dev") => Layer::Development,
            Some(cell) => match cell.parse() {
                Ok(number) => Layer::Number(number),
                Err(_) => continue,
            },
            None => continue,
        };
        let crates = cells.next().unwrap_or_default();
        for name in crates.split('`').filter(|part| part.starts_with("outercore-")) {
            let twice = table.insert(name.to_owned(), layer);
            assert_eq!(twice, None, "`{name}` stands twice in the layer table");
        }
    }
    table
}

fn workspace() -> Vec<Crate> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| Crate {
            name: text(&package["name"]),
            manifest: text(&package["manifest_path"]).into(),
            imports: list(&package["dependencies"])
                .iter()
                .filter(|dependency| text(&dependency["name"]).starts_with("outercore-"))
                .map(|dependency| (text(&dependency["name"]), dependency["kind"] == "dev"))
                .collect(),
        })
        .collect()
}

#[test]
fn the_layer_table_lists_exactly_the_crates_of_the_workspace() {
    let listed: Vec<String> = layer_table().into_keys().collect();
    let mut found: Vec<String> = workspace().into_iter().map(|package| package.name).collect();
    found.sort();
    assert_eq!(found, listed);
}

#[test]
fn imports_go_down_only_and_siblings_never_import_each_other() {
    let table = layer_table();
    for package in workspace() {
        let own = table[&package.name];
        for (import, test_only) in package.imports {
            let layer = table[&import];
            let allowed = layer < own || (test_only && layer == Layer::Development);
            assert!(
                allowed,
                "`{}` ({own:?}) imports `{import}` ({layer:?}): expected a lower layer",
                package.name
            );
        }
    }
}

#[test]
fn every_crate_without_need_of_unsafe_forbids_it() {
    for package in workspace() {
        let library = package.manifest.with_file_name("src").join("lib.rs");
        let text = fs::read_to_string(&library).expect("a library crate");
        let forbids = text.lines().any(|line| line == "#![forbid(unsafe_code)]");
        let may = MAY_BE_UNSAFE.contains(&package.name.as_str());
        assert_eq!(!forbids, may, "`{}`: `#![forbid(unsafe_code)]` in src/lib.rs", package.name);
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in workspace() {
        let manifest = fs::read_to_string(&package.manifest).expect("Cargo.toml");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.manifest.display());
    }
}
