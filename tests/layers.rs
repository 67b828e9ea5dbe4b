//! The layers of the crate, and the pairs of launchers and shaders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers in `src/`, lowest first. A layer uses itself and lower layers.
const LAYERS: [&str; 12] = [
    "device", "runtime", "pages", "memory", "profiler", "tensor", "kernels", "cpu", "backend",
    "autodiff", "custom", "interop",
];
/// Groups of crates, and the layers that may use them.
const CRATES: [(&[&str], &[&str]); 6] = [
    (&["ash"], &["device"]),
    (&["wgpu"], &["device", "runtime", "interop"]),
    (&["burn_flex", "burn_ir", "burn_std"], &["cpu", "backend", "autodiff"]),
    (&["burn_backend"], &["cpu", "backend", "autodiff", "custom", "interop"]),
    (&["burn_tensor"], &["custom", "interop"]),
    (&["burn_autodiff"], &["autodiff", "custom"]),
];

#[test]
fn a_layer_uses_only_lower_layers() {
    let mut violations = Vec::new();
    for (position, layer) in LAYERS.iter().enumerate() {
        let files = files_in(&format!("src/{layer}"), "rs");
        assert!(!files.is_empty(), "src/{layer} has no source files");
        for file in files {
            let text = fs::read_to_string(&file).expect("source files are UTF-8");
            let found = violations_in(&text, layer, &LAYERS[position + 1..]);
            violations.extend(found.into_iter().map(|found| format!("{}:{found}", file.display())));
        }
    }
    assert!(violations.is_empty(), "see ARCHITECTURE.md:\n{}", violations.join("\n"));
}

/// Returns the lines that use a higher layer, or a crate that the layer may not use.
fn violations_in(text: &str, layer: &str, higher: &[&str]) -> Vec<String> {
    let mut forbidden: Vec<String> = higher.iter().map(|layer| format!("crate::{layer}")).collect();
    // Grouped imports would hide the names of layers.
    forbidden.push("crate::{".to_owned());
    for (crates, layers) in CRATES {
        if !layers.contains(&layer) {
            forbidden.extend(crates.iter().map(|name| format!("{name}::")));
        }
    }
    // `hash::` is not `ash::`.
    let begins_word = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let uses = |code: &str| {
        let mut found = forbidden.iter().flat_map(|name| code.match_indices(name.as_str()));
        found.any(|(at, _)| begins_word(&code[..at]))
    };
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let lines = text.lines().enumerate().filter(|(_, line)| uses(&code(line)));
    lines.map(|(index, line)| format!("{}: {}", index + 1, line.trim())).collect()
}

#[test]
fn violations_are_found_in_code_but_not_in_comments() {
    let found = |text| violations_in(text, "runtime", &["kernels"]).len();
    assert_eq!(found("use crate::kernels::cast;"), 1);
    assert_eq!(found("use crate::{device, kernels};"), 1);
    assert_eq!(found("let data: burn_std::Shape = x;"), 1);
    assert_eq!(found("use ash::vk;\nuse std::hash::Hash;"), 1);
    assert_eq!(found("// See crate::kernels.\n/// [`crate::kernels`]"), 0);
    assert_eq!(found("use crate::device::Limits;\nuse wgpu::Buffer;"), 0);
}

#[test]
fn a_launcher_and_its_shaders_have_the_same_name() {
    let stems = |files: Vec<PathBuf>| -> BTreeSet<String> {
        let stem = |file: PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into();
        files.into_iter().map(stem).collect()
    };
    let mut launchers = stems(files_in("src/kernels", "rs"));
    // Files in the folders below `src/kernels` have no shaders.
    for folder in ["common", "composed", "fusion"] {
        for helper in stems(files_in(&format!("src/kernels/{folder}"), "rs")) {
            if !root().join(format!("src/kernels/{helper}.rs")).exists() {
                launchers.remove(&helper);
            }
        }
    }
    launchers.remove("mod");
    let mut folders = BTreeSet::new();
    for shader in files_in("shaders", "wgsl") {
        let folder = shader.parent().and_then(Path::file_name).unwrap_or_default();
        let folder = folder.to_string_lossy().into_owned();
        let name = shader.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if folder == "lib" {
            continue;
        }
        assert!(
            name == folder || name.starts_with(&format!("{folder}_")),
            "{} should be named {folder}.wgsl or {folder}_*.wgsl",
            shader.display()
        );
        folders.insert(folder);
    }
    assert_eq!(launchers, folders, "src/kernels/NAME.rs launches shaders/NAME/*.wgsl");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the sorted files with an extension in a folder and its subfolders.
fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|suffix| suffix == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
