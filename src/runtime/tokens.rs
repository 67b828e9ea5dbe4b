//! WGSL as words.

/// Splits text into identifiers and numbers (`true`), and the text between them (`false`). Every
/// character beyond ASCII counts as part of an identifier.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let is_identifier_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_identifier = is_identifier_byte(*rest.as_bytes().first()?);
        let end = rest.bytes().position(|byte| is_identifier_byte(byte) != is_identifier);
        let (token, tail) = rest.split_at(end.unwrap_or(rest.len()));
        rest = tail;
        Some((token, is_identifier))
    })
}
