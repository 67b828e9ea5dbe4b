//! The layers of the crate, circles of files, and the pairs of launchers and shaders.

mod uses;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use uses::{Crate, Uses, circles};

/// The layers in `src/`, lowest first. A layer uses itself and lower layers.
const LAYERS: [&str; 22] = [
    "variables",
    "device",
    "runtime",
    "pages",
    "memory",
    "profiler",
    "tensor",
    "kernels",
    "cpu",
    "autocast",
    "backend",
    "autodiff",
    "custom",
    "interop",
    "vision",
    "generate",
    "serve",
    "scaler",
    "timing",
    "train",
    "parallel",
    "bin",
];
/// The layers in `src/kernels/`, lowest first. All others are the layer above these.
const KERNEL_LAYERS: [&[&str]; 6] = [
    &["ops"],
    &["policy"],
    &["fusion"],
    &["launch"],
    &["elementwise", "transpose", "copy", "create", "cast", "views", "gather", "reduce", "random"],
    &["gemm", "conv::", "attention::"],
];
/// Groups of crates, and the layers that may use them.
const CRATES: [(&[&str], &[&str]); 7] = [
    (&["ash"], &["device"]),
    (&["wgpu"], &["device", "runtime", "interop"]),
    (&["burn_flex"], &["cpu", "vision"]),
    (&["burn_ir", "burn_std"], &["cpu", "backend", "autodiff", "vision"]),
    (
        &["burn_backend"],
        &[
            "autocast", "cpu", "backend", "autodiff", "custom", "interop", "scaler", "vision",
            "timing",
        ],
    ),
    (&["burn_tensor"], &["custom", "generate", "interop", "scaler", "vision"]),
    (&["burn_autodiff"], &["autodiff", "custom"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn library() -> Crate {
    Crate::read(&root().join("src"), "bin")
}

/// Returns the position of a module in a list of layers; the layer above them if it is in none.
fn position(module: &str, layers: &[&[&str]]) -> usize {
    let is_in = |name: &&str| match name.strip_suffix("::") {
        Some(_) => module.starts_with(name),
        None => module == *name || module.starts_with(&format!("{name}::")),
    };
    layers.iter().position(|layer| layer.iter().any(is_in)).unwrap_or(layers.len())
}

/// Returns the uses of a module of a higher layer, of the modules in `folder`.
fn upward(uses: &Uses, folder: &str, layers: &[&[&str]]) -> Vec<String> {
    let inside = |module: &str| {
        let rest = module.strip_prefix(folder)?;
        Some(rest.strip_prefix("::").unwrap_or(rest).to_owned()).filter(|name| !name.is_empty())
    };
    let pairs = uses.iter().flat_map(|(user, used)| used.iter().map(move |used| (user, used)));
    let pairs = pairs.filter_map(|(user, used)| Some((inside(user)?, inside(used)?)));
    let upward = pairs.filter(|(user, used)| position(user, layers) < position(used, layers));
    upward.map(|(user, used)| format!("{user} uses {used}")).collect()
}

#[test]
fn a_layer_uses_only_lower_layers() {
    let uses = library().uses();
    let layers: Vec<&[&str]> = LAYERS.iter().map(std::slice::from_ref).collect();
    let known = |module: &&String| position(module, &layers) < layers.len() || module.is_empty();
    let unknown: Vec<_> = uses.keys().filter(|module| !known(module)).collect();
    assert!(unknown.is_empty(), "not in a layer: {unknown:?}");
    let is_there = |folder: &str, name: &str| {
        let path = format!("{folder}{}", name.trim_end_matches("::"));
        uses.keys().any(|module| *module == path || module.starts_with(&format!("{path}::")))
    };
    let kernels = KERNEL_LAYERS.iter().copied().flatten().map(|name| ("kernels::", *name));
    let names = LAYERS.iter().filter(|name| **name != "bin").map(|name| ("", *name)).chain(kernels);
    let missing: Vec<_> = names.filter(|(folder, name)| !is_there(folder, name)).collect();
    assert!(missing.is_empty(), "there is nothing in {missing:?}");
    let upward = [upward(&uses, "", &layers), upward(&uses, "kernels", &KERNEL_LAYERS)].concat();
    assert!(upward.is_empty(), "see ARCHITECTURE.md:\n{}", upward.join("\n"));
}

#[test]
fn a_layer_uses_only_its_crates() {
    let library = library();
    let mut violations = Vec::new();
    for module in library.uses().keys() {
        let layer = module.split("::").next().unwrap_or_default();
        let names = library.first_names(module);
        for (crates, layers) in CRATES {
            let foreign = crates.iter().filter(|name| names.contains(*name));
            let may_use = layers.contains(&layer) || layer.is_empty();
            violations.extend(foreign.filter(|_| !may_use).map(|name| format!("{module}: {name}")));
        }
        // Whatever else there is of Burn, below the layers that know it.
        let is_listed = |name: &&&str| CRATES.iter().any(|(crates, _)| crates.contains(name));
        let of_burn = names.iter().filter(|name| **name == "burn" || name.starts_with("burn_"));
        let others = of_burn.filter(|name| !is_listed(name) && **name != "burn_wgsl");
        let cpu = LAYERS.iter().position(|name| *name == "cpu");
        let is_below = LAYERS.iter().position(|name| *name == layer) < cpu && !layer.is_empty();
        violations.extend(others.filter(|_| is_below).map(|name| format!("{module}: {name}")));
    }
    assert!(violations.is_empty(), "see ARCHITECTURE.md:\n{}", violations.join("\n"));
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    let mut folders: Vec<PathBuf> = ["src/bin/burn-wgsl", "xtask/src", "web/src"]
        .iter()
        .map(|folder| root().join(folder))
        .collect();
    for folder in ["ports", "examples", "xtask"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is readable");
        let sources = entries.map(|entry| entry.expect("the folder is readable").path());
        folders.extend(sources.map(|folder| folder.join("src")).filter(|folder| folder.exists()));
    }
    let others = folders.iter().map(|folder| Crate::read(folder, ""));
    let mut found = Vec::new();
    for uses in others.chain([library()]).map(|files| files.uses()) {
        found.extend(circles(&uses).iter().map(|circle| circle.join(" -> ")));
    }
    assert!(found.is_empty(), "circles:\n{}", found.join("\n"));
}

/// Returns the uses between files with these texts.
fn planted(files: &[(&str, &str)]) -> Uses {
    Crate::parse(files.iter().copied()).uses()
}

#[test]
fn uses_are_found_where_names_come_from() {
    let uses = planted(&[
        ("lib", "pub mod a; pub mod b;"),
        ("a/mod", "mod inner; pub use inner::Name; pub use crate::b::Other;"),
        ("a/inner", "pub struct Name; fn of(value: super::Other) {}"),
        ("b", "pub struct Other; fn of() { crate::a::Name; }"),
    ]);
    let used = |module: &str| uses[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(used("b"), ["a::inner"]);
    assert_eq!(used("a::inner"), ["b"]);
    assert_eq!(used("a"), ["b"]);
    assert_eq!(used(""), [""; 0]);
}

#[test]
fn circles_and_upward_uses_are_found() {
    let with = |text: &str| {
        planted(&[
            ("low", "use crate::middle;"),
            ("middle", text),
            ("high", "//! See crate::low.\nuse crate::middle::{self, Name};"),
        ])
    };
    let layers: [&[&str]; 3] = [&["low"], &["middle"], &["high"]];
    let found = |text: &str| {
        let uses = with(text);
        (circles(&uses).len(), upward(&uses, "", &layers).len())
    };
    // `low` uses `middle` already.
    assert_eq!(found("pub struct Name;"), (0, 1));
    assert_eq!(found("use crate::high; pub struct Name;"), (1, 2));
    assert_eq!(found("fn of() { crate::low::call(); }"), (1, 1));
    assert_eq!(found("run! { crate::low::call() }"), (1, 1));
    assert_eq!(found("#[cfg(test)] mod tests { use crate::low; }"), (0, 1));
    assert_eq!(found("//! See crate::high.\n/// [`crate::high`]\npub struct Name;"), (0, 1));
}

#[test]
fn crates_are_found_in_imports_and_paths() {
    let files = [("a", "use wgpu::Buffer; fn of() -> ash::vk::Image { std::hash::of() }")];
    let parsed = Crate::parse(files);
    let names = parsed.first_names("a");
    assert!(names.contains("wgpu") && names.contains("ash") && !names.contains("hash"));
}

/// The folders of shaders that a file includes.
fn included_folders(text: &str) -> impl Iterator<Item = &str> {
    let paths = text.split("wgsl!(").skip(1).filter_map(|rest| rest.split('"').nth(1));
    paths.filter_map(|path| path.split_once("shaders/")?.1.split('/').next())
}

#[test]
fn a_launcher_and_its_shaders_have_the_same_name() {
    let mut launchers = BTreeSet::new();
    for file in files_in("src/kernels", "rs") {
        let text = fs::read_to_string(&file).expect("source files are UTF-8");
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        for folder in included_folders(&text).filter(|folder| *folder != "lib") {
            assert_eq!(stem, folder, "{} launches shaders/{folder}/", file.display());
            launchers.insert(folder.to_owned());
        }
    }
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
    assert_eq!(launchers, folders, "NAME.rs in src/kernels launches shaders/NAME/*.wgsl");
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
