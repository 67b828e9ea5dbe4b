//! Each page says what is its own; the shell around it says what all have.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Puts the shell around every page of a folder.
pub fn dress(folder: &Path, shell: &Path) -> Result<()> {
    let shell = fs::read_to_string(shell).with_context(|| format!("{}", shell.display()))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "html") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let page = dressed(&shell, &name, &fs::read_to_string(&path)?)
                .with_context(|| name.clone())?;
            fs::write(&path, page)?;
        }
    }
    Ok(())
}

/// The page in the shell: each `{word}` of that is told by a line `<!-- word: text -->` at the page's top, which may leave out the module.
fn dressed(shell: &str, name: &str, page: &str) -> Result<String> {
    let link = format!("href=\"{name}\"");
    let mut out = shell.replacen(&link, &format!("{link} aria-current=\"page\""), 1);
    let mut rest = page;
    while let Some((line, after)) =
        rest.split_once('\n').filter(|(line, _)| line.starts_with("<!--"))
    {
        let told = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let (word, text) = told
            .and_then(|told| told.split_once(": "))
            .with_context(|| format!("line {line:?}"))?;
        out = out.replace(&format!("{{{word}}}"), text);
        rest = after;
    }
    out = out.replace(" data-module=\"{module}\"", "");
    if let Some(word) =
        ["{title}", "{description}", "{script}"].iter().find(|word| out.contains(**word))
    {
        bail!("the page does not tell its {word}");
    }
    Ok(out.replace("{page}", rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: &str = "{title}|{description}|{script}|<b data-module=\"{module}\">|<a href=\"a.html\">|<a href=\"b.html\">|{page}";

    #[test]
    fn a_page_tells_what_is_its_own() {
        let page = "<!-- title: A -->\n<!-- description: what -->\n<!-- script: a -->\n<!-- module: all -->\n<p>{page}\n";
        let out = dressed(SHELL, "a.html", page).unwrap();
        let nav = "<a href=\"a.html\" aria-current=\"page\">|<a href=\"b.html\">";
        assert_eq!(out, format!("A|what|a|<b data-module=\"all\">|{nav}|<p>{{page}}\n"));
        let out = dressed(SHELL, "c.html", &page.replace("<!-- module: all -->\n", "")).unwrap();
        assert!(out.contains("|<b>|") && !out.contains("aria-current"), "{out}");
        assert!(dressed(SHELL, "a.html", "<p>\n").is_err());
    }
}
