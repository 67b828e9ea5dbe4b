//! Measures the download size of each page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The page with a size budget, and its maximum download in brotli-compressed bytes.
const BUDGET: (&str, u64) = ("train.html", 487_000);

/// Sizes in bytes: uncompressed and compressed.
#[derive(Clone, Copy, Default)]
pub struct Size {
    raw: u64,
    gzip: u64,
    brotli: u64,
}

/// Returns the size of each page in `folder`, including all files that it downloads.
pub fn measure(folder: &Path) -> Result<BTreeMap<String, Size>> {
    let mut file_sizes: BTreeMap<PathBuf, Size> = BTreeMap::new();
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let page = entry?.path();
        if page.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        let mut total = Size::default();
        for file in downloads(&page)? {
            let size = match file_sizes.get(&file) {
                Some(size) => *size,
                None => *file_sizes.entry(file.clone()).or_insert(size_of(&file)?),
            };
            total.raw += size.raw;
            total.gzip += size.gzip;
            total.brotli += size.brotli;
        }
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pages.insert(name, total);
    }
    Ok(pages)
}

/// Returns the files that a page downloads: the page, its first module, and every file named in
/// the page, its styles or its scripts. Other pages are not followed.
fn downloads(page: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::from([page.to_path_buf()]);
    let mut pending = vec![page.to_path_buf()];
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    if let Some(module) =
        text.split("data-module=\"").nth(1).and_then(|rest| rest.split('"').next())
    {
        let script = page.with_file_name("pkg").join(format!("{module}.js")).canonicalize()?;
        found.insert(script.clone());
        pending.push(script);
    }
    while let Some(file) = pending.pop() {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        for token in text.split(['"', '\'', '`', '(', ')']) {
            let token = token.split('?').next().unwrap_or(token);
            let is_download =
                [".js", ".css", ".wasm", ".svg"].iter().any(|extension| token.ends_with(extension));
            if !is_download || token.contains(char::is_whitespace) {
                continue;
            }
            let Ok(path) = folder.join(token).canonicalize() else {
                continue;
            };
            if found.insert(path.clone()) {
                pending.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns the size of a file.
fn size_of(file: &Path) -> Result<Size> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&bytes)?;
    let mut brotli = brotli::CompressorWriter::new(Vec::new(), 1 << 16, 11, 24);
    brotli.write_all(&bytes)?;
    Ok(Size {
        raw: bytes.len() as u64,
        gzip: gzip.finish()?.len() as u64,
        brotli: brotli.into_inner().len() as u64,
    })
}

/// Returns the sizes as a JSON object with one entry per page, in bytes.
pub fn to_json(sizes: &BTreeMap<String, Size>) -> serde_json::Value {
    let entry = |size: &Size| {
        let Size { raw, gzip, brotli } = size;
        serde_json::json!({ "raw": raw, "gzip": gzip, "brotli": brotli })
    };
    sizes
        .iter()
        .map(|(page, size)| (page.clone(), entry(size)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Prints the sizes as a table.
pub fn print(sizes: &BTreeMap<String, Size>) {
    println!(
        "    {:<16} {:>9} {:>9} {:>9}   (kB, with all files that the page downloads)",
        "page", "raw", "gzip", "brotli"
    );
    for (page, Size { raw, gzip, brotli }) in sizes {
        let kb = |bytes: &u64| *bytes as f64 / 1e3;
        println!("    {page:<16} {:>9.1} {:>9.1} {:>9.1}", kb(raw), kb(gzip), kb(brotli));
    }
}

/// Checks the size of the page with a budget.
///
/// # Errors
///
/// Returns an error if the page is missing or larger than its budget.
pub fn check_budget(sizes: &BTreeMap<String, Size>) -> Result<()> {
    let (page, budget) = BUDGET;
    match sizes.get(page) {
        Some(size) if size.brotli > budget => {
            bail!(
                "{page} downloads {} bytes (brotli), {} above its budget of {budget}",
                size.brotli,
                size.brotli - budget
            )
        }
        Some(_) => Ok(()),
        None => bail!("{page} was not built, so its size cannot be checked"),
    }
}
