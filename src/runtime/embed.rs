//! The shaders as text in the program.

/// Embeds a WGSL file, relative to the current file. For browsers, which download the program,
/// without comments and with an indentation of one space.
macro_rules! wgsl {
    ($path:literal) => {{
        const TEXT: &str = include_str!($path);
        if cfg!(target_arch = "wasm32") {
            const LEN: usize = $crate::runtime::embed::shortened::<0>(TEXT).1;
            const BYTES: [u8; LEN] = $crate::runtime::embed::shortened::<LEN>(TEXT).0;
            match std::str::from_utf8(&BYTES) {
                Ok(text) => text,
                Err(_) => panic!("removing comments keeps characters whole"),
            }
        } else {
            TEXT
        }
    }};
}

pub(crate) use wgsl;

/// Returns the first `N` bytes of a shader without comments and with an indentation of one space,
/// and the number of its bytes. Directives and line breaks remain, so that lines keep their
/// numbers.
pub(crate) const fn shortened<const N: usize>(text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let mut out = [0; N];
    let mut len = 0;
    let mut i = 0;
    let mut line_starts = true;
    while i < text.len() {
        // One space remains: a function ends at a bracket that is not indented.
        while line_starts && i + 1 < text.len() && text[i] == b' ' && text[i + 1] == b' ' {
            i += 1;
        }
        line_starts = false;
        let is_comment = text[i] == b'/' && i + 1 < text.len() && text[i + 1] == b'/';
        let is_directive = is_comment && i + 2 < text.len() && text[i + 2] == b'#';
        if is_comment && !is_directive {
            while i < text.len() && text[i] != b'\n' {
                i += 1;
            }
        }
        if is_directive {
            // Up to the slashes: the rest is copied byte by byte.
            if len < N {
                out[len] = b'/';
            }
            len += 1;
            i += 1;
        }
        if i < text.len() {
            line_starts = text[i] == b'\n';
            if len < N {
                out[len] = text[i];
            }
            len += 1;
            i += 1;
        }
    }
    (out, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_indentation_are_removed_and_lines_and_directives_remain() {
        let text = "// a é\n//#if A\nx / y; // b\n  // c\n//#end";
        let expected = "\n//#if A\nx / y; \n \n//#end";
        let (bytes, len) = shortened::<64>(text);
        assert_eq!(std::str::from_utf8(&bytes[..len]), Ok(expected));
        assert_eq!(shortened::<0>(text).1, expected.len());
    }
}
