//! A snapshot as an HTML page.

/// The page. `SNAPSHOT` stands for the snapshot as JSON.
const PAGE: &str = include_str!("page.html");

/// Returns the page of a snapshot.
pub(super) fn html(json: &str) -> String {
    // Nothing in a string may end the script.
    PAGE.replace("SNAPSHOT", &json.replace("</", "<\\/"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_cannot_end_the_script() {
        let html = super::html(r#"{"device":"</script><b>"}"#);
        assert!(html.contains(r#"{"device":"<\/script><b>"}"#));
        assert_eq!(super::PAGE.matches("SNAPSHOT").count(), 1);
    }
}
