//! The format of a log: a `log_format` of nginx.conf, or JSON with the variables' names as keys.

use std::fmt;

/// `combined` and what is needed of the servers, as an operator would add it.
pub const BUILT_IN: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
     \"$http_referer\" \"$http_user_agent\" $msec $request_time \
     \"$upstream_addr\" \"$upstream_response_time\" \"$upstream_header_time\" \"$upstream_status\"";

/// The beginning of the lines of `combined`, and of logs that add something to it.
pub(crate) const COMMON: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent";

/// The line for nginx.conf that a refused format is answered with.
pub const ADVICE: &str = "log_format upstreams '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent '\n\
     \x20                    '\"$http_referer\" \"$http_user_agent\" $msec $request_time '\n\
     \x20                    '\"$upstream_addr\" \"$upstream_response_time\" \"$upstream_header_time\" \"$upstream_status\"';";

/// How values are written: `escape=` of `log_format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Escape {
    /// `\xXX` for what could end a value.
    #[default]
    Default,
    /// As in JSON's strings.
    Json,
    /// As they are.
    None,
}

/// A variable that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "NGINX's names")]
pub enum Variable {
    Msec,
    TimeIso8601,
    TimeLocal,
    RequestTime,
    UpstreamAddr,
    UpstreamResponseTime,
    UpstreamHeaderTime,
    UpstreamConnectTime,
    UpstreamStatus,
    Status,
    Request,
    RequestMethod,
    RequestUri,
    Uri,
    RemoteAddr,
    RequestId,
    Connection,
    UpstreamPickReason,
    UpstreamChoiceProbability,
}

/// How many variables are read.
pub const VARIABLES: usize = 19;

const NAMES: [(&str, Variable); 21] = {
    use Variable::*;
    [
        ("msec", Msec),
        ("time_iso8601", TimeIso8601),
        ("time_local", TimeLocal),
        ("request_time", RequestTime),
        ("upstream_addr", UpstreamAddr),
        ("upstream_response_time", UpstreamResponseTime),
        ("upstream_header_time", UpstreamHeaderTime),
        ("upstream_connect_time", UpstreamConnectTime),
        ("upstream_status", UpstreamStatus),
        ("status", Status),
        ("request", Request),
        ("request_method", RequestMethod),
        ("request_uri", RequestUri),
        ("uri", Uri),
        ("remote_addr", RemoteAddr),
        ("binary_remote_addr", RemoteAddr),
        ("request_id", RequestId),
        ("http_x_request_id", RequestId),
        ("connection", Connection),
        ("upstream_pick_reason", UpstreamPickReason),
        ("upstream_choice_probability", UpstreamChoiceProbability),
    ]
};

/// The variable of this name, if it is read.
pub(crate) fn variable(name: &[u8]) -> Option<Variable> {
    NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, variable)| *variable)
}

/// What a variable's value looks like, where that says where it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Anything up to the text that follows.
    Free,
    /// One token, or several with `, ` or ` : ` between: an attempt each.
    List,
    /// 26 bytes with one space: `24/Nov/2026:21:53:30 +0000`.
    Local,
}

/// What is wanted of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// Which servers were asked, and how long they took.
    Servers,
    /// What was asked for, and when.
    Requests,
}

/// A part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    Text(Vec<u8>),
    Value(Option<Variable>, Shape),
}

/// How the lines of a log are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) escape: Escape,
    /// Objects of JSON, whatever the order of their members.
    pub(crate) json: bool,
}

/// Why a format is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacking(pub String);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; log with this format, and with \"access_log PATH upstreams;\":\n{ADVICE}", self.0)
    }
}

impl Format {
    /// A log of JSON objects, one a line, whose members have the names of variables.
    pub fn json() -> Format {
        Format { pieces: Vec::new(), escape: Escape::Json, json: true }
    }

    /// The format of a `log_format`: its text, with the strings joined.
    ///
    /// # Errors
    /// It lacks a variable that is needed, or two values have nothing between them.
    pub fn new(text: &str, escape: Escape) -> Result<Format, Lacking> {
        Format::with(text, escape, Needs::Servers)
    }

    /// The format of a `log_format` that has what is needed.
    pub(crate) fn with(text: &str, escape: Escape, needs: Needs) -> Result<Format, Lacking> {
        let format = Format::of_any_log(text, escape);
        format.check(needs)?;
        Ok(format)
    }

    /// The format of a `log_format` that may be about something else than servers.
    pub fn of_any_log(text: &str, escape: Escape) -> Format {
        Format { pieces: pieces(text.as_bytes()), escape, json: false }
    }

    /// How values are written.
    pub fn escape(&self) -> Escape {
        self.escape
    }

    /// Whether lines have the value of a variable.
    pub fn has(&self, wanted: Variable) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Value(Some(is), _) if *is == wanted))
    }

    fn check(&self, needs: Needs) -> Result<(), Lacking> {
        use Variable::{Msec, Request, RequestUri, TimeIso8601, TimeLocal, UpstreamAddr, UpstreamResponseTime, Uri};
        let servers = needs == Needs::Servers;
        let mut lacks = Vec::new();
        if !self.has(Msec) && !self.has(TimeIso8601) && !self.has(TimeLocal) {
            lacks.push("$msec (when a request ended)");
        }
        if servers && !self.has(UpstreamAddr) {
            lacks.push("$upstream_addr (which server served it)");
        }
        if servers && !self.has(UpstreamResponseTime) {
            lacks.push("$upstream_response_time (how long the server took)");
        }
        if !servers && ![Request, RequestUri, Uri].into_iter().any(|variable| self.has(variable)) {
            lacks.push("$request (what was asked for)");
        }
        if !lacks.is_empty() {
            return Err(Lacking(format!("the log format lacks {}", lacks.join(" and "))));
        }
        let touching = |pair: &[Piece]| matches!(pair, [Piece::Value(..), Piece::Value(..)]);
        if self.pieces.windows(2).any(touching) {
            return Err(Lacking(
                "the log format has variables with nothing between them, so that they cannot be told apart".into(),
            ));
        }
        Ok(())
    }

    /// Whether times are exact to the millisecond.
    pub fn is_exact(&self) -> bool {
        self.json || self.has(Variable::Msec)
    }
}

fn pieces(text: &[u8]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let add_text = |pieces: &mut Vec<Piece>, bytes: &[u8]| match pieces.last_mut() {
        _ if bytes.is_empty() => {}
        Some(Piece::Text(before)) => before.extend_from_slice(bytes),
        _ => pieces.push(Piece::Text(bytes.to_vec())),
    };
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'$', rest) {
        add_text(&mut pieces, &rest[..at]);
        rest = &rest[at + 1..];
        let braced = rest.first() == Some(&b'{');
        let from = usize::from(braced);
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest[from..].iter().take_while(|byte| is_name(byte)).count();
        let name = &rest[from..from + length];
        if length == 0 {
            add_text(&mut pieces, b"$");
            continue;
        }
        rest = &rest[from + length..];
        if braced && rest.first() == Some(&b'}') {
            rest = &rest[1..];
        }
        let shape = match name {
            b"time_local" => Shape::Local,
            // A reason has spaces.
            b"upstream_pick_reason" => Shape::Free,
            _ if name.starts_with(b"upstream_") && !name.starts_with(b"upstream_http_") => Shape::List,
            _ => Shape::Free,
        };
        pieces.push(Piece::Value(variable(name), shape));
    }
    add_text(&mut pieces, rest);
    pieces
}
