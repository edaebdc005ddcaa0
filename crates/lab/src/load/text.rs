//! The bytes of a request.

use std::io::Write;
use std::sync::Arc;

use super::schedule::Schedule;

/// A request for a page or one of a log, written into the same memory again and again.
#[derive(Debug)]
pub(super) struct RequestText {
    what: What,
    text: Vec<u8>,
}

#[derive(Debug)]
enum What {
    /// What is before and after the number of the page; nothing to put between if there is no second.
    Page { before: Vec<u8>, after: Option<Vec<u8>> },
    /// The requests, and what follows method and path.
    Log { schedule: Arc<Schedule>, fields: String },
}

impl RequestText {
    /// A request for `path`, in which `{}` stands for the number of the page.
    pub fn new(host: &str, path: &str, keep_alive: bool) -> Self {
        let fields = fields(host, keep_alive);
        let (before, after) = match path.split_once("{}") {
            None => (format!("GET {path}{fields}\r\n"), None),
            Some((before, after)) => (format!("GET {before}"), Some(format!("{after}{fields}\r\n").into_bytes())),
        };
        Self { what: What::Page { before: before.into_bytes(), after }, text: Vec::new() }
    }

    /// The requests of a log.
    pub fn of_log(host: &str, schedule: &Arc<Schedule>, keep_alive: bool) -> Self {
        let what = What::Log { schedule: Arc::clone(schedule), fields: fields(host, keep_alive) };
        Self { what, text: Vec::new() }
    }

    /// Whether it makes a difference which page is asked for.
    pub fn has_pages(&self) -> bool {
        matches!(self.what, What::Page { after: Some(_), .. })
    }

    /// Whether the answer to this one has no body.
    pub fn is_head(&self, number: u32) -> bool {
        match &self.what {
            What::Page { .. } => false,
            What::Log { schedule, .. } => schedule.asked(number).is_some_and(|asked| asked.method == "HEAD"),
        }
    }

    /// The request for a page, or the one that the log has under this number.
    pub fn of(&mut self, number: u32) -> &[u8] {
        let text = &mut self.text;
        text.clear();
        // Writing into memory does not fail.
        let _ = match &self.what {
            What::Page { before, after: None } => return before,
            What::Page { before, after: Some(after) } => {
                text.extend_from_slice(before);
                let written = write!(text, "{number}");
                text.extend_from_slice(after);
                written
            }
            What::Log { schedule, fields } => match schedule.asked(number) {
                Some(asked) => {
                    // A log has no bodies.
                    let has_body = ["POST", "PUT", "PATCH"].contains(&asked.method.as_str());
                    let length = if has_body { "Content-Length: 0\r\n" } else { "" };
                    write!(text, "{} {}{fields}{length}\r\n", asked.method, asked.uri)
                }
                None => Ok(()),
            },
        };
        text
    }
}

fn fields(host: &str, keep_alive: bool) -> String {
    let close = if keep_alive { "" } else { "Connection: close\r\n" };
    format!(" HTTP/1.1\r\nHost: {host}\r\nUser-Agent: balanza-lab\r\nAccept: */*\r\n{close}")
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
