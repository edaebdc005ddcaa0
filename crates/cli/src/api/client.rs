//! A client for the API: one request on each connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// How long an answer is awaited.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const LONGEST: u64 = 256 << 20;

/// Where an API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host and port.
    authority: String,
    /// The path of the API, without a slash at its end.
    path: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let Some(rest) = text.strip_prefix("http://") else { return Err("it must begin with http://".into()) };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || text.bytes().any(|byte| byte <= b' ') {
            return Err("a host is missing".into());
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Address { authority, path: path.trim_end_matches('/').to_owned() })
    }
}

impl Address {
    /// Sends a request and returns the JSON of the answer; null if it has none.
    ///
    /// # Errors
    /// The API cannot be reached, or refuses the request.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> anyhow::Result<Value> {
        if path.bytes().any(|byte| byte <= b' ') {
            bail!("the path \"{path}\" has a blank");
        }
        let Address { authority, path: prefix } = self;
        let text = self.exchange(method, &format!("{prefix}/{}", path.trim_start_matches('/')), body);
        let text = text.with_context(|| format!("cannot ask the API at http://{authority}{prefix}"))?;
        let (status, content) = split(&text).context("the answer is not one of HTTP")?;
        let value: Value = match content {
            "" => Value::Null,
            content => serde_json::from_str(content).with_context(|| {
                format!("status {status} without JSON: is there an API at http://{authority}{prefix}?")
            })?,
        };
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let (code, why) = (&value["error"]["code"], &value["error"]["text"]);
        bail!("{method} {path}: {status} {} ({})", why.as_str().unwrap_or("?"), code.as_str().unwrap_or("?"))
    }

    fn exchange(&self, method: &str, target: &str, body: Option<&str>) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.unwrap_or_default();
        let fields = format!("Host: {}\r\nContent-Type: application/json\r\nConnection: close\r\n", self.authority);
        // Without chunks, which HTTP/1.0 does not have.
        write!(stream, "{method} {target} HTTP/1.0\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut text = String::new();
        stream.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// The status and the content of an answer.
fn split(text: &str) -> Option<(u16, &str)> {
    let (head, content) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Address>().map(|it| format!("{} {}", it.authority, it.path));
        assert_eq!(read("http://127.0.0.1:8080/api/"), Ok("127.0.0.1:8080 /api".into()));
        assert_eq!(read("http://lb"), Ok("lb:80 ".into()));
        assert_eq!(read("http://[::1]:81/a/b"), Ok("[::1]:81 /a/b".into()));
        assert!(read("https://lb/api").is_err() && read("http:///api").is_err() && read("lb:80").is_err());
    }

    #[test]
    fn answers_are_split() {
        assert_eq!(split("HTTP/1.1 200 OK\r\nA: b\r\n\r\n[]"), Some((200, "[]")));
        assert_eq!(split("nothing"), None);
    }
}
