//! What each page downloads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What the page of the main demo may download at most, in brotli bytes.
const BUDGET: (&str, u64) = ("train.html", 400_000);

/// Bytes as they are and as a server would send them.
#[derive(Clone, Copy, Default)]
pub struct Size {
    raw: u64,
    gzip: u64,
    brotli: u64,
}

/// The sizes of each page, with everything it downloads.
pub fn measure(folder: &Path) -> Result<BTreeMap<String, Size>> {
    let mut of_file: BTreeMap<PathBuf, Size> = BTreeMap::new();
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let page = entry?.path();
        if page.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        let mut total = Size::default();
        for file in downloads(&page)? {
            let size = match of_file.get(&file) {
                Some(size) => *size,
                None => *of_file.entry(file.clone()).or_insert(size_of(&file)?),
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

/// The page, the module that it begins with, and every file that it, its styles and its scripts name, but for links to other pages.
fn downloads(page: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::from([page.to_path_buf()]);
    let mut open = vec![page.to_path_buf()];
    let text = fs::read_to_string(page).with_context(|| format!("{}", page.display()))?;
    if let Some(module) =
        text.split("data-module=\"").nth(1).and_then(|rest| rest.split('"').next())
    {
        let script = page.with_file_name("pkg").join(format!("{module}.js")).canonicalize()?;
        found.insert(script.clone());
        open.push(script);
    }
    while let Some(file) = open.pop() {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        for word in text.split(['"', '\'', '`', '(', ')']) {
            let word = word.split('?').next().unwrap_or(word);
            let loaded = [".js", ".css", ".wasm", ".svg"].iter().any(|end| word.ends_with(end));
            if !loaded || word.contains(char::is_whitespace) {
                continue;
            }
            let Ok(path) = folder.join(word).canonicalize() else {
                continue;
            };
            if found.insert(path.clone()) {
                open.push(path);
            }
        }
    }
    Ok(found)
}

fn size_of(file: &Path) -> Result<Size> {
    let bytes = fs::read(file).with_context(|| format!("{}", file.display()))?;
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

pub fn json(sizes: &BTreeMap<String, Size>) -> serde_json::Value {
    let one = |size: &Size| serde_json::json!({ "raw": size.raw, "gzip": size.gzip, "brotli": size.brotli });
    sizes
        .iter()
        .map(|(page, size)| (page.clone(), one(size)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub fn print(sizes: &BTreeMap<String, Size>) {
    println!(
        "    {:<16} {:>9} {:>9} {:>9}   KB with everything it downloads",
        "page", "raw", "gzip", "brotli"
    );
    for (page, Size { raw, gzip, brotli }) in sizes {
        let kb = |bytes: &u64| *bytes as f64 / 1e3;
        println!("    {page:<16} {:>9.1} {:>9.1} {:>9.1}", kb(raw), kb(gzip), kb(brotli));
    }
}

pub fn within_budget(sizes: &BTreeMap<String, Size>) -> Result<()> {
    let (page, most) = BUDGET;
    match sizes.get(page) {
        Some(size) if size.brotli > most => {
            bail!(
                "{page} downloads {} bytes (brotli), {} more than it may",
                size.brotli,
                size.brotli - most
            )
        }
        Some(_) => Ok(()),
        None => bail!("there is no {page}"),
    }
}
