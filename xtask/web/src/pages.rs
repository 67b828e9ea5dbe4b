//! Inserts each page into the shell, the HTML that all pages share.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Replaces every HTML file in `folder` with the shell that contains it.
///
/// # Errors
///
/// Returns an error if a file cannot be read or written, or a page lacks a required property.
pub fn apply_shell(folder: &Path, shell: &Path) -> Result<()> {
    let shell =
        fs::read_to_string(shell).with_context(|| format!("cannot read {}", shell.display()))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "html") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let page = render(&shell, &name, &fs::read_to_string(&path)?)
                .with_context(|| format!("invalid page {name}"))?;
            fs::write(&path, page)?;
        }
    }
    Ok(())
}

/// What `profile.html` shows: the profile that another page left in the storage of the session.
const STORED_PROFILE: &str = concat!(
    r#"JSON.parse(sessionStorage.getItem("profile") ?? '{"device":"There is no profile yet","wall":0,"#,
    r#""launches":[],"host":[],"memory":[],"peaks":null}')"#
);

/// Writes the page that shows a profile: the one of the library, with other data. `sources` is the
/// folder of the library's source code.
///
/// # Errors
///
/// Returns an error if a file cannot be read or written.
pub fn write_profile_page(folder: &Path, sources: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let page = read("profiler/page.html")?
        .replacen("STYLE", &read("pages/style.css")?, 1)
        .replacen("HELPERS", &read("pages/helpers.js")?, 1)
        .replacen("DATA", STORED_PROFILE, 1);
    fs::write(folder.join("profile.html"), page).context("cannot write profile.html")
}

/// Returns the shell with the page in place of `{page}`.
///
/// The page starts with lines `<!-- key: value -->`. Each one replaces `{key}` in the shell by its
/// value. The keys `title`, `description` and `script` are required; `module` is optional.
fn render(shell: &str, name: &str, page: &str) -> Result<String> {
    let link = format!("href=\"{name}\"");
    let mut out = shell.replacen(&link, &format!("{link} aria-current=\"page\""), 1);
    let mut body = page;
    while let Some((line, rest)) =
        body.split_once('\n').filter(|(line, _)| line.starts_with("<!--"))
    {
        let property = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let (key, value) = property
            .and_then(|property| property.split_once(": "))
            .with_context(|| format!("expected `<!-- key: value -->`, found {line:?}"))?;
        out = out.replace(&format!("{{{key}}}"), value);
        body = rest;
    }
    out = out.replace(" data-module=\"{module}\"", "");
    let required = ["{title}", "{description}", "{script}"];
    if let Some(missing) = required.iter().find(|placeholder| out.contains(**placeholder)) {
        bail!("no value for {missing}; add a line `<!-- key: value -->` at the top of the page");
    }
    Ok(out.replace("{page}", body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: &str = "{title}|{description}|{script}|<b data-module=\"{module}\">|\
                         <a href=\"a.html\">|<a href=\"b.html\">|{page}";

    #[test]
    fn render_fills_the_shell_with_the_page() {
        let page = "<!-- title: A -->\n<!-- description: what -->\n<!-- script: a -->\n\
                    <!-- module: all -->\n<p>{page}\n";
        let out = render(SHELL, "a.html", page).unwrap();
        let nav = "<a href=\"a.html\" aria-current=\"page\">|<a href=\"b.html\">";
        assert_eq!(out, format!("A|what|a|<b data-module=\"all\">|{nav}|<p>{{page}}\n"));
        let out = render(SHELL, "c.html", &page.replace("<!-- module: all -->\n", "")).unwrap();
        assert!(out.contains("|<b>|") && !out.contains("aria-current"), "{out}");
        assert!(render(SHELL, "a.html", "<p>\n").is_err());
    }
}
