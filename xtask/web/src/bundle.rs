//! Builds the pages: compiles the WebAssembly modules and copies the static files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

use crate::tools::{npm_packages, root, run_command, target_dir};
use crate::{pages, sizes, toolchain};

/// The kind of a build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BuildKind {
    /// The published pages, in `web/dist`.
    Release,
    /// The pages for the tests, with the library's op cases and the example page, in the target
    /// folder.
    Test,
}

impl BuildKind {
    /// Returns the output folder.
    pub fn folder(self) -> PathBuf {
        match self {
            Self::Release => root().join("web/dist"),
            Self::Test => target_dir().join("web-checks"),
        }
    }
}

/// A WebAssembly module: a package with some of its features.
struct Module {
    name: &'static str,
    package: &'static str,
    features: &'static [&'static str],
}

/// The modules of the pages. `gpu` trains the digits on a GPU; `all` adds the CPU backend and the
/// other demos; `text` has both backends and language models. The attribute `data-module` of a page names the module
/// that it loads first.
const MODULES: [Module; 3] = [
    Module { name: "gpu", package: "burn-wgsl-web", features: &[] },
    Module { name: "all", package: "burn-wgsl-web", features: &["cpu", "demos"] },
    Module { name: "text", package: "burn-wgsl-web", features: &["cpu", "text"] },
];

/// The module of `examples/page`, which only the tests use.
const EXAMPLE: Module = Module { name: "page", package: "page", features: &[] };

/// The WebAssembly features beyond version 1.0 that every browser with WebGPU supports. wasm-opt's
/// `--all-features` would enable features that Chromium rejects.
const WASM_FEATURES: [&str; 7] = [
    "bulk-memory",
    "nontrapping-float-to-int",
    "sign-ext",
    "mutable-globals",
    "reference-types",
    "multivalue",
    "simd",
];

/// Builds the pages and returns their folder.
///
/// # Errors
///
/// Returns an error if a tool is missing, the build fails, or a page exceeds its size budget.
pub fn build(kind: BuildKind) -> Result<PathBuf> {
    let folder = kind.folder();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for module in MODULES {
        module.compile(kind)?;
        module.generate(kind, &folder.join("pkg"))?;
    }
    if kind == BuildKind::Test {
        let example = folder.join("example");
        EXAMPLE.generate(kind, &example.join("pkg"))?;
        fs::copy(root().join("examples/page/index.html"), example.join("index.html"))
            .context("cannot copy examples/page/index.html")?;
    }
    copy_folder(&root().join("web/pages"), &folder)?;
    pages::apply_shell(&folder, &root().join("web/shell.html"))?;
    pages::write_profile_page(&folder, &root().join("src"))?;
    let terser = npm_packages("xtask/web")?.join("terser/bin/terser");
    minify_scripts(&folder, &terser)?;
    let sizes = sizes::measure(&folder)?;
    let json = serde_json::to_string_pretty(&sizes::to_json(&sizes))? + "\n";
    fs::write(folder.join("sizes.json"), json)?;
    sizes::print(&sizes);
    println!("    built {}", folder.display());
    sizes::check_budget(&sizes)?;
    Ok(folder)
}

impl Module {
    /// Writes the optimised module and its JavaScript bindings to `folder`. The module must be
    /// compiled.
    fn generate(&self, kind: BuildKind, folder: &Path) -> Result<()> {
        let wasm = target_dir()
            .join(toolchain::TARGET)
            .join("web")
            .join(self.package.replace('-', "_") + ".wasm");
        let mut bindgen = Bindgen::new();
        bindgen
            .input_path(&wasm)
            .web(true)?
            .typescript(false)
            .omit_default_module_path(false)
            .out_name(self.name);
        bindgen.remove_name_section(true).remove_producers_section(true);
        bindgen.generate(folder).context("wasm-bindgen failed")?;
        // The size of modules that are only tested does not matter.
        let flags: &[&str] = match (self.optimises_size(kind), self.name) {
            // `-Oz` makes the file a tenth smaller, but what is downloaded, which is compressed,
            // larger.
            (true, "gpu") => {
                &["--remove-unused-module-elements", "--duplicate-function-elimination", "--vacuum"]
            }
            (true, _) => &["-Oz"],
            (false, _) => &["-O1"],
        };
        optimise(&folder.join(format!("{}_bg.wasm", self.name)), flags)
    }

    /// Compiles the module; for `gpu` in a test build, the module of `examples/page` as well.
    fn compile(&self, kind: BuildKind) -> Result<()> {
        let toolchain = toolchain::find()?;
        let mut cargo = toolchain.cargo();
        cargo.args([
            "build",
            "--locked",
            "--package",
            self.package,
            "--profile",
            "web",
            "--target",
            toolchain::TARGET,
        ]);
        let checks =
            (kind == BuildKind::Test && self.features.contains(&"demos")).then_some("checks");
        let features: Vec<&str> = self.features.iter().copied().chain(checks).collect();
        cargo.arg("--no-default-features").args(["--features", &features.join(",")]);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rust_flags().join("\u{1f}"));
        if kind == BuildKind::Test && self.features.is_empty() {
            // One cargo run compiles the common dependencies once.
            cargo.args(["--package", EXAMPLE.package]);
        }
        run_command(&mut cargo)
    }

    /// Returns whether the module is optimised for size, as it is published. A test build does so
    /// only for `gpu`, the module of the page with a size budget.
    fn optimises_size(&self, kind: BuildKind) -> bool {
        kind == BuildKind::Release || self.name == "gpu"
    }
}

/// Returns the compiler flags: SIMD, which every browser with WebGPU supports, the source of random numbers, and path
/// prefixes to remove from panic messages, which would otherwise show local paths.
fn rust_flags() -> Vec<String> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let crates = cargo_home.map(|home| home.join("registry/src"));
    let removed_prefixes = crates
        .into_iter()
        .chain([root()])
        .map(|folder| format!("--remap-path-prefix={}=", folder.display()));
    // The tokens of language models take random numbers from getrandom 0.3, which asks for this flag.
    let flags = ["-C", "target-feature=+simd128", "--cfg", "getrandom_backend=\"wasm_js\""];
    flags.map(str::to_owned).into_iter().chain(removed_prefixes).collect()
}

/// Optimises a WebAssembly file in place with Binaryen's wasm-opt.
fn optimise(wasm: &Path, flags: &[&str]) -> Result<()> {
    let wasm_opt = npm_packages("xtask/web")?.join("binaryen/bin/wasm-opt");
    let mut node = Command::new("node");
    node.arg(wasm_opt).arg(wasm).arg("-o").arg(wasm).args(flags);
    node.args(WASM_FEATURES.map(|feature| format!("--enable-{feature}")));
    run_command(&mut node).context("wasm-opt failed")
}

/// Minifies the scripts in a folder and its subfolders in place.
fn minify_scripts(folder: &Path, terser: &Path) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            minify_scripts(&path, terser)?;
        } else if path.extension().is_some_and(|extension| extension == "js") {
            let mut node = Command::new("node");
            node.arg(terser).args(["--module", "--compress", "--mangle"]).arg("--output");
            run_command(node.arg(&path).arg("--").arg(&path)).context("terser failed")?;
        }
    }
    Ok(())
}

/// Copies a folder with its subfolders.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let destination = to.join(entry.file_name());
        let file_type = entry.file_type()?;
        if file_type.is_dir() {
            copy_folder(&entry.path(), &destination)?;
        } else if file_type.is_file() {
            fs::copy(entry.path(), destination)?;
        } else {
            bail!("{} is neither a file nor a folder", entry.path().display());
        }
    }
    Ok(())
}
