//! The bytes of a request.

use std::io::Write;

/// A request for a page, written into the same memory again and again.
#[derive(Debug)]
pub(super) struct RequestText {
    /// What is before and after the number of the page; nothing to put between if there is no second.
    before: Vec<u8>,
    after: Option<Vec<u8>>,
    text: Vec<u8>,
}

impl RequestText {
    /// A request for `path`, in which `{}` stands for the number of the page.
    pub fn new(host: &str, path: &str, keep_alive: bool) -> Self {
        let close = if keep_alive { "" } else { "Connection: close\r\n" };
        let fields = format!(" HTTP/1.1\r\nHost: {host}\r\nUser-Agent: balanza-lab\r\nAccept: */*\r\n{close}\r\n");
        let (before, after) = match path.split_once("{}") {
            None => (format!("GET {path}{fields}"), None),
            Some((before, after)) => (format!("GET {before}"), Some(format!("{after}{fields}").into_bytes())),
        };
        Self { before: before.into_bytes(), after, text: Vec::new() }
    }

    /// Whether it makes a difference which page is asked for.
    pub fn has_pages(&self) -> bool {
        self.after.is_some()
    }

    /// The request for a page.
    pub fn of(&mut self, page: u32) -> &[u8] {
        let Some(after) = &self.after else { return &self.before };
        self.text.clear();
        self.text.extend_from_slice(&self.before);
        // Writing into memory does not fail.
        let _ = write!(self.text, "{page}");
        self.text.extend_from_slice(after);
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_complete() {
        let mut text = RequestText::new("lab:80", "/", true);
        let expected = "GET / HTTP/1.1\r\nHost: lab:80\r\nUser-Agent: balanza-lab\r\nAccept: */*\r\n\r\n";
        assert_eq!(std::str::from_utf8(text.of(3)).unwrap(), expected);
        assert!(!text.has_pages());
        let mut text = RequestText::new("lab", "/page/{}?x", false);
        for page in [7, 12] {
            let text = std::str::from_utf8(text.of(page)).unwrap().to_owned();
            assert!(text.starts_with(&format!("GET /page/{page}?x HTTP/1.1\r\nHost: lab\r\n")), "{text}");
            assert!(text.ends_with("\r\nConnection: close\r\n\r\n"), "{text}");
        }
    }
}
