//! Reports as HTML pages, each one file without anything to load.

/// What all pages share.
const STYLE: &str = include_str!("style.css");
const HELPERS: &str = include_str!("helpers.js");

/// Returns a page. In the template, `STYLE` and `HELPERS` stand for what pages share, and `DATA` for
/// the data as JSON.
pub(crate) fn html(template: &str, json: &str) -> String {
    let page = template.replacen("STYLE", STYLE, 1).replacen("HELPERS", HELPERS, 1);
    // Nothing in a string may end the script.
    page.replacen("DATA", &json.replace('<', "\\u003c"), 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_cannot_end_the_script() {
        let page = super::html("<script>HELPERS\nconst data = DATA;", r#"{"a":"</script><!--"}"#);
        assert!(page.starts_with("<script>\"use strict\""), "{page}");
        assert!(page.contains(r#"{"a":"\u003c/script>\u003c!--"}"#), "{page}");
    }
}
