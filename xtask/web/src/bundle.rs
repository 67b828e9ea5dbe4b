//! From Rust and static files to `web/dist`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

use crate::places::{dist, npm_packages, root, run, target};
use crate::{pages, sizes, toolchain};

/// What is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The pages as they are published.
    Pages,
    /// With the library's op cases in the module, for tests.
    WithChecks,
}

/// A WebAssembly module: a package with some of its features.
struct Module {
    name: &'static str,
    package: &'static str,
    features: &'static [&'static str],
}

/// Those that the worker may load: what needs only a GPU and the digits, and everything. Pages say in `data-module` which one they begin with.
const MODULES: [Module; 2] = [
    Module { name: "gpu", package: "burn-wgsl-web", features: &[] },
    Module { name: "all", package: "burn-wgsl-web", features: &["cpu", "demos"] },
];

/// The example of a page of one's own, which is only tested.
const EXAMPLE: Module = Module { name: "page", package: "page", features: &[] };

/// WebAssembly beyond its first version that every browser with WebGPU has. Never `--all-features`: that takes in what
/// Chromium refuses.
const WASM_FEATURES: [&str; 7] = [
    "bulk-memory",
    "nontrapping-float-to-int",
    "sign-ext",
    "mutable-globals",
    "reference-types",
    "multivalue",
    "simd",
];

/// Builds the pages and returns where they are.
pub fn build(kind: Kind) -> Result<PathBuf> {
    let to = match kind {
        Kind::Pages => dist(),
        Kind::WithChecks => target().join("web-checks"),
    };
    if to.exists() {
        fs::remove_dir_all(&to).with_context(|| format!("{} cannot be replaced", to.display()))?;
    }
    for module in MODULES {
        module.compile(kind)?;
        module.pack(kind, &to.join("pkg"))?;
    }
    if kind == Kind::WithChecks {
        let page = to.join("example");
        EXAMPLE.pack(kind, &page.join("pkg"))?;
        fs::copy(root().join("examples/page/index.html"), page.join("index.html"))
            .context("examples/page/index.html")?;
    }
    copy(&root().join("web/pages"), &to)?;
    pages::dress(&to, &root().join("web/shell.html"))?;
    let sizes = sizes::measure(&to)?;
    fs::write(to.join("sizes.json"), serde_json::to_string_pretty(&sizes::json(&sizes))? + "\n")?;
    sizes::print(&sizes);
    println!("    built {}", to.display());
    sizes::within_budget(&sizes)?;
    Ok(to)
}

impl Module {
    /// What is compiled, with its JavaScript, into a folder.
    fn pack(&self, kind: Kind, folder: &Path) -> Result<()> {
        let wasm = target()
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
        bindgen.generate(folder).context("wasm-bindgen")?;
        // What is only tested need not be small.
        let level = if self.is_measured(kind) { "-Oz" } else { "-O1" };
        optimise(&folder.join(format!("{}_bg.wasm", self.name)), level)
    }

    fn compile(&self, kind: Kind) -> Result<()> {
        let tools = toolchain::find()?;
        let mut cargo = tools.cargo();
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
            (kind == Kind::WithChecks && self.features.contains(&"demos")).then_some("checks");
        let features: Vec<&str> = self.features.iter().copied().chain(checks).collect();
        cargo.arg("--no-default-features").args(["--features", &features.join(",")]);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags().join("\u{1f}"));
        if kind == Kind::WithChecks && self.features.is_empty() {
            // Together, so that what both need is compiled once.
            cargo.args(["--package", EXAMPLE.package]);
        }
        run(&mut cargo)
    }

    /// Whether it is as it will be published: that of the budget is also where only tests read it.
    fn is_measured(&self, kind: Kind) -> bool {
        kind == Kind::Pages || self.name == "gpu"
    }
}

/// SIMD, which every browser with WebGPU has, and messages of panics that do not tell where this machine keeps its files.
fn flags() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let crates = home.map(|home| home.join("registry/src"));
    let hidden = crates
        .into_iter()
        .chain([root()])
        .map(|folder| format!("--remap-path-prefix={}=", folder.display()));
    ["-C".to_owned(), "target-feature=+simd128".to_owned()].into_iter().chain(hidden).collect()
}

fn optimise(wasm: &Path, level: &str) -> Result<()> {
    let tool = npm_packages("xtask/web")?.join("binaryen/bin/wasm-opt");
    let mut node = Command::new("node");
    node.arg(tool).arg(wasm).arg("-o").arg(wasm).arg(level);
    node.args(WASM_FEATURES.map(|feature| format!("--enable-{feature}")));
    run(&mut node).context("wasm-opt")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        } else {
            bail!("{} is neither a file nor a folder", entry.path().display());
        }
    }
    Ok(())
}
