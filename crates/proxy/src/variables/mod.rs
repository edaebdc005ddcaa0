//! The values of variables. They are appended to a buffer; nothing is computed for a request that does not ask.

mod client;
mod fields;
mod files;
mod secure_link;
mod subject;
pub mod trace;
pub mod user_id;

use std::borrow::Cow;

use balanza_config::model::{Level, ServerTokens};
use balanza_config::regex::Regex;
use balanza_config::template::{Part, TcpInfo, Template, Variable};
use balanza_message::{Header, push_decimal};
use balanza_net::clock;

use self::fields::{composed, cookie, joined, request_field, set_cookie};
pub use self::files::map_path;
use self::files::{document_root, real_root};
use crate::VERSION;
use crate::auth;
use crate::exchange::{Exchange, Hedged};
use crate::lookup;
use crate::ssi;
use crate::undecided::Undecided;
use crate::values::{
    attempts, found, nonempty, number, of_peer, of_process, probability, remote_address, seconds, write,
};

/// Appends a template's value.
///
/// # Errors
/// A regular expression is undecided.
pub fn render(template: &Template, x: &mut Exchange, out: &mut Vec<u8>) -> Result<(), Undecided> {
    for part in template.parts() {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Variable(variable) => {
                value(variable, x, out)?;
            }
        }
    }
    Ok(())
}

/// A template's number, such as a rate; 0 when it is none.
///
/// # Errors
/// A regular expression is undecided.
pub fn render_size(template: &Template, x: &mut Exchange) -> Result<u64, Undecided> {
    let mut text = std::mem::take(&mut x.scratch);
    text.clear();
    let rendered = render(template, x, &mut text);
    let size = parse_size(&text).unwrap_or(0);
    x.scratch = text;
    rendered.map(|()| size)
}

/// A size as configurations write it: digits and k, m or g.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.split_last() {
        Some((b'k' | b'K', digits)) => (digits, 1 << 10),
        Some((b'm' | b'M', digits)) => (digits, 1 << 20),
        Some((b'g' | b'G', digits)) => (digits, 1 << 30),
        _ => (text, 1),
    };
    balanza_message::decimal(digits).and_then(|size| size.checked_mul(unit))
}

/// Appends a variable's value; false when it has none.
///
/// # Errors
/// A regular expression is undecided.
pub fn value(variable: &Variable, x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    Ok(match variable {
        Variable::Capture(group) => found(x.values.captures.group(usize::from(*group)), out),
        Variable::User(slot) => match x.values.users.get(*slot) {
            Some(Some(value)) => found(Some(value), out),
            _ => uninitialized(x, *slot),
        },
        Variable::Changed(slot, variable) => match x.values.users.get(*slot) {
            Some(Some(value)) => found(Some(value), out),
            _ => return value(variable, x, out),
        },
        Variable::Map(index) => {
            let running = std::rc::Rc::clone(x.running());
            lookup::value(&running.config.http.maps, *index, x, out)?
        }
        Variable::Client(of_client) => client::value(of_client, x, out)?,
        Variable::Arg(name) => found(argument(&x.route.args, name), out),
        Variable::Cookie(name) => cookie(name, x, out),
        Variable::Http(name) => request_field(name, x, out),
        Variable::SentHttp(name) => sent_field(x, name, out),
        Variable::SentTrailer(name) => composed(&x.reply.trailers, name, out),
        Variable::UpstreamHttp(name) => {
            x.upstream.answered && joined(&x.upstream.response.fields, &x.upstream.response.text, name, b", ", out)
        }
        Variable::UpstreamCookie(name) => x.upstream.answered && found(set_cookie(x, name), out),
        Variable::UpstreamTrailer(name) => composed(&x.upstream.trailers, name, out),
        Variable::UpstreamAddr => attempts(&x.upstream.attempts, out, |attempt, out| {
            out.extend_from_slice(attempt.address.as_deref().unwrap_or_default().as_bytes());
            true
        }),
        Variable::UpstreamStatus => attempts(&x.upstream.attempts, out, |attempt, out| {
            push_decimal(out, u64::from(attempt.status));
            attempt.status != 0
        }),
        Variable::UpstreamConnectTime => {
            attempts(&x.upstream.attempts, out, |attempt, out| seconds(attempt.connect_time, out))
        }
        Variable::UpstreamHeaderTime => {
            attempts(&x.upstream.attempts, out, |attempt, out| seconds(attempt.header_time, out))
        }
        Variable::UpstreamLastAddr => {
            found(x.upstream.attempts.last().and_then(|attempt| attempt.server_address()).map(str::as_bytes), out)
        }
        Variable::UpstreamLastServerName => server_name(x, out),
        Variable::UpstreamHedge => match x.upstream.hedged {
            Hedged::No | Hedged::Refused => false,
            Hedged::Lost => found(Some(b"lost"), out),
            Hedged::Won => found(Some(b"won"), out),
        },
        Variable::UpstreamExperiment => {
            attempts(&x.upstream.attempts, out, |attempt, out| found(attempt.arm.as_deref().map(str::as_bytes), out))
        }
        Variable::UpstreamPickReason => {
            attempts(&x.upstream.attempts, out, |attempt, out| found(attempt.reason().map(str::as_bytes), out))
        }
        Variable::UpstreamChoiceProbability => {
            attempts(&x.upstream.attempts, out, |attempt, out| probability(attempt.probability(), out))
        }
        Variable::UpstreamShadow(name) => {
            attempts(&x.upstream.attempts, out, |attempt, out| found(attempt.shadow(name), out))
        }
        Variable::UpstreamQueueTime => {
            attempts(&x.upstream.attempts, out, |attempt, out| seconds(attempt.queue_time, out))
        }
        Variable::UpstreamResponseTime => {
            attempts(&x.upstream.attempts, out, |attempt, out| seconds(attempt.response_time, out))
        }
        Variable::UpstreamResponseLength => {
            attempts(&x.upstream.attempts, out, |attempt, out| number(attempt.response_length, out))
        }
        Variable::UpstreamBytesReceived => {
            attempts(&x.upstream.attempts, out, |attempt, out| number(attempt.bytes_received, out))
        }
        Variable::UpstreamBytesSent => {
            attempts(&x.upstream.attempts, out, |attempt, out| number(attempt.bytes_sent, out))
        }
        Variable::Args => {
            out.extend_from_slice(&x.route.args);
            // NGINX has it "not found" only in requests without a query.
            !x.route.args.is_empty()
        }
        Variable::IsArgs => {
            if !x.route.args.is_empty() {
                out.push(b'?');
            }
            true
        }
        Variable::Uri => {
            out.extend_from_slice(&x.route.uri);
            true
        }
        Variable::RequestUri => request_uri(x, out),
        Variable::Request => {
            nonempty(x.text(x.request.line), out) || !x.head_complete && nonempty(request_line(x), out)
        }
        Variable::RequestPort => found(request_port(x), out),
        Variable::IsRequestPort => {
            if request_port(x).is_some() {
                out.push(b':');
            }
            true
        }
        Variable::RequestMethod if is_asked_as_get(x) => found(Some(b"GET"), out),
        Variable::RequestMethod => nonempty(x.text(x.request.method_name), out),
        Variable::ServerProtocol => nonempty(protocol(x), out),
        Variable::Scheme if x.client().speaks_tls() => found(Some(b"https"), out),
        Variable::Scheme => found(Some(b"http"), out),
        Variable::Http2 if !has_come_by_http2(x) => false,
        Variable::Http2 if x.client().tls.get().is_some() => found(Some(b"h2"), out),
        Variable::Http2 => found(Some(b"h2c"), out),
        Variable::Https if x.client().speaks_tls() => found(Some(b"on"), out),
        Variable::Https => true,
        Variable::Ssl(variable) => x.client().tls_value(*variable, out),
        Variable::GzipRatio => gzip_ratio(x, out),
        Variable::Host => {
            host(x, out);
            true
        }
        Variable::RemoteAddr | Variable::BinaryRemoteAddr | Variable::RemotePort => of_peer(variable, x.peer(), out),
        Variable::RemoteUser => found(auth::credentials(x).map(|given| given.user).as_deref(), out),
        Variable::ServerAddr => match x.local_address() {
            Some(address) => write(out, format_args!("{}", address.ip())),
            None => match &x.listener().address {
                balanza_config::model::ListenAddress::Unix(path) => write(out, format_args!("unix:{}", path.display())),
                balanza_config::model::ListenAddress::Inet(address)
                | balanza_config::model::ListenAddress::Udp(address) => write(out, format_args!("{}", address.ip())),
            },
        },
        Variable::ServerPort => match x.local_address() {
            Some(address) => number(u64::from(address.port()), out),
            None => true,
        },
        Variable::ServerName => found(Some(x.server().name.as_bytes()), out),
        Variable::ContentLength => match x.request.body {
            _ if !x.head_complete => false,
            balanza_message::Length::Known(length) => number(length, out),
            balanza_message::Length::Unknown if x.body.buffered => number(x.body.received, out),
            _ => found(x.request_field(Header::ContentLength), out),
        },
        Variable::ContentType => found(x.request_field(Header::ContentType), out),
        Variable::Connection => number(x.client().serial, out),
        Variable::Connections(which) => number(x.running().connections().number(*which), out),
        Variable::TcpInfo(which) => tcp_info(x, *which).is_some_and(|value| number(u64::from(value), out)),
        Variable::Trace(which) => trace::value(*which, x, out),
        Variable::CacheStatus => false,
        Variable::ConnectionRequests => number(x.ordinal, out),
        Variable::ConnectionTime => seconds(Some(clock::now() - x.client().accepted), out),
        Variable::Msec
        | Variable::TimeLocal
        | Variable::TimeIso8601
        | Variable::Hostname
        | Variable::NginxVersion
        | Variable::Pid => of_process(variable, out),
        Variable::RequestTime => seconds(Some(clock::now() - x.started), out),
        Variable::RequestLength => number(x.head_length + x.body.wire, out),
        Variable::RequestCompletion => {
            if x.sent.is_complete() {
                out.extend_from_slice(b"OK");
            }
            true
        }
        Variable::RequestId => {
            out.extend_from_slice(x.values.request_id.get_or_insert_with(request_id));
            true
        }
        Variable::RequestBody => request_body(x, out),
        Variable::RequestBodyFile => match &x.body.store {
            crate::body::Store::File(temporary) => write(out, format_args!("{}", temporary.path.display())),
            _ => false,
        },
        Variable::RequestFilename => {
            map_path(x, out)?;
            true
        }
        Variable::DateGmt | Variable::DateLocal => {
            let format = x.values.time_format.as_deref().unwrap_or(ssi::TIME_FORMAT);
            crate::dates::write_page_time(format, *variable == Variable::DateGmt, out)
        }
        Variable::DocumentRoot => document_root(x, out)?,
        Variable::RealpathRoot => real_root(x, out)?,
        Variable::LimitConnStatus => found(x.checks.connections.map(|status| status.text().as_bytes()), out),
        Variable::LimitReqStatus => found(x.checks.requests.map(|status| status.text().as_bytes()), out),
        Variable::LimitRate => number(x.sent.rate.limit, out),
        Variable::Status => match x.status {
            // Before there is a response, it is that of the error whose page is made.
            0 => write(out, format_args!("{:03}", x.route.error_status().unwrap_or(0))),
            status => write(out, format_args!("{status:03}")),
        },
        Variable::BytesSent => number(x.sent.bytes, out),
        Variable::BodyBytesSent => number(x.sent.body_bytes, out),
        Variable::Pipe => found(Some(if x.values.pipelined { b"p" } else { b"." }), out),
        Variable::ProxyHost => nonempty(&x.upstream.target.host, out),
        Variable::ProxyPort => x.upstream.target.port != 0 && number(u64::from(x.upstream.target.port), out),
        Variable::ProxyAddXForwardedFor => {
            if request_field(b"x_forwarded_for", x, out) {
                out.extend_from_slice(b", ");
            }
            remote_address(x.peer(), out)
        }
        Variable::BytesReceived
        | Variable::Protocol
        | Variable::RdpCookie(_)
        | Variable::SessionTime
        | Variable::UpstreamFirstByteTime
        | Variable::UpstreamSessionTime => false,
    })
}

/// The name of the server that was tried last; that of the URL where a variable gave its address.
fn server_name(x: &Exchange, out: &mut Vec<u8>) -> bool {
    let Some(attempt) = x.upstream.attempts.last() else { return false };
    let of_url = || Some(&x.upstream.target.host[..]).filter(|_| attempt.server_address().is_some());
    found(attempt.server_name().map(str::as_bytes).or_else(of_url), out)
}

/// The value of an argument, not decoded; names ignore case.
pub fn argument<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|byte| *byte == b'&').find_map(|pair| {
        let (found, value) = pair.split_at_checked(name.len())?;
        if found.eq_ignore_ascii_case(name) { value.strip_prefix(b"=") } else { None }
    })
}

/// Appends a field that the client is sent, those included that its protocol adds.
fn sent_field(x: &Exchange, name: &[u8], out: &mut Vec<u8>) -> bool {
    match name {
        // No reply has been composed.
        _ if x.reply.fields.is_empty() => false,
        b"content_length" if !x.sent.chunked => x.reply.length.is_some_and(|length| number(length, out)),
        b"transfer_encoding" if x.sent.chunked => found(Some(b"chunked"), out),
        b"connection" => found(
            Some(match (x.reply.upgrade, x.sent.keeps_connection()) {
                (Some(_), _) => b"upgrade",
                (None, true) => b"keep-alive",
                (None, false) => b"close",
            }),
            out,
        ),
        b"keep_alive" if x.sent.keeps_connection() => {
            x.keepalive_header().is_some_and(|seconds| write(out, format_args!("timeout={seconds}")))
        }
        _ => composed(&x.reply.fields, name, out),
    }
}

/// By how much the body was compressed, with two digits behind the point.
fn gzip_ratio(x: &Exchange, out: &mut Vec<u8>) -> bool {
    let totals = x.sent.filters.as_ref().and_then(|chain| chain.totals());
    let Some((taken, made)) = totals.filter(|(_, made)| *made > 0) else { return false };
    // Rounded by the third digit, as NGINX does.
    let thousandths = u128::from(taken) * 1000 / u128::from(made);
    let hundredths = thousandths / 10 + u128::from(thousandths % 10 > 4);
    write(out, format_args!("{}.{:02}", hundredths / 100, hundredths % 100))
}

/// Appends the target of the request as the client sent it; false when there is none.
pub fn request_uri(x: &Exchange, out: &mut Vec<u8>) -> bool {
    if !x.head_complete {
        return false;
    }
    if x.request.empty_path {
        out.push(b'/');
    }
    nonempty(x.text(x.request.origin), out) || x.request.empty_path
}

/// The request line of a request that was refused: what arrived of it.
fn request_line(x: &Exchange) -> &[u8] {
    let bytes = &x.request.text[..];
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    &bytes[..end]
}

/// A value of `$tcpinfo_…`.
fn tcp_info(x: &Exchange, which: TcpInfo) -> Option<u32> {
    let info = x.tcp_info()?;
    Some(match which {
        TcpInfo::Rtt => info.rtt,
        TcpInfo::RttVariation => info.rtt_variation,
        TcpInfo::CongestionWindow => info.congestion_window,
        TcpInfo::ReceiveSpace => info.receive_space,
    })
}

/// The port behind the name of the host that is asked for.
fn request_port(x: &Exchange) -> Option<&[u8]> {
    let host = x.request.host.filter(|_| x.head_complete)?;
    let behind = x.request.text.get(host.end as usize..)?;
    let port = behind.strip_prefix(b".").unwrap_or(behind).strip_prefix(b":")?;
    let length = port.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(&port[..length]).filter(|port| !port.is_empty())
}

/// Whether the client's request is answered as a GET. The method of a subrequest has no variable.
fn is_asked_as_get(x: &Exchange) -> bool {
    if x.route.subrequest { x.route.main_is_get } else { x.route.method_is_get }
}

fn has_come_by_http2(x: &Exchange) -> bool {
    match x.route.subrequest {
        true => x.request.version == balanza_message::Version::Http2,
        false => x.downstream.is_http2(),
    }
}

/// Appends the version of HTTP: "1.1".
pub fn flavor(x: &Exchange, out: &mut Vec<u8>) -> bool {
    found(protocol(x).strip_prefix(b"HTTP/"), out)
}

fn protocol(x: &Exchange) -> &'static [u8] {
    match x.request.version {
        _ if !x.head_complete => b"HTTP/1.0",
        balanza_message::Version::Http10 => b"HTTP/1.0",
        balanza_message::Version::Http11 => b"HTTP/1.1",
        balanza_message::Version::Http2 => b"HTTP/2.0",
    }
}

/// `$host`: from the request's target, its Host field, or the server's name; lower case, without the port.
pub fn host(x: &Exchange, out: &mut Vec<u8>) {
    let begin = out.len();
    match x.request.host {
        Some(host) if x.head_complete && !host.is_empty() => out.extend_from_slice(x.text(host)),
        _ => out.extend_from_slice(x.server().name.as_bytes()),
    }
    out[begin..].make_ascii_lowercase();
}

/// The user name of Basic credentials.
fn request_body(x: &Exchange, out: &mut Vec<u8>) -> bool {
    match &x.body.store {
        crate::body::Store::Input(range) => nonempty(&x.body.input_bytes()[range.clone()], out),
        crate::body::Store::Memory(bytes) => nonempty(bytes, out),
        crate::body::Store::Nowhere | crate::body::Store::File(_) => false,
    }
}

/// 32 hexadecimal digits of randomness.
fn request_id() -> [u8; 32] {
    use std::hash::{BuildHasher, Hasher};
    let mut id = [0; 32];
    for half in id.chunks_mut(16) {
        // Keyed with the system's randomness and different each time.
        let bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
        for (index, digit) in half.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(bits >> (4 * index) & 15) as usize];
        }
    }
    id
}

/// Puts the named groups of the expression that has just matched into their variables.
pub fn keep_named_groups(regex: &Regex, x: &mut Exchange) {
    for (group, slot) in regex.named() {
        let value = x.values.captures.group(*group).map(<[u8]>::to_vec);
        set_user(x, *slot, value);
    }
}

/// A variable that has no value yet: one of `set` gets an empty one, with a warning. False for those of expressions.
#[cold]
fn uninitialized(x: &mut Exchange, slot: usize) -> bool {
    let running = std::rc::Rc::clone(x.running());
    let Some(Some(name)) = running.config.http.set_names.get(slot) else { return false };
    if x.location().settings.uninitialized_variable_warn {
        x.report(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
    }
    set_user(x, slot, Some(Vec::new()));
    true
}

/// Sets a user variable.
pub fn set_user(x: &mut Exchange, slot: usize, value: Option<Vec<u8>>) {
    lookup::set_user(&mut x.values.users, slot, value);
}

/// What the Server field says.
pub fn server_signature(x: &mut Exchange) -> Cow<'static, [u8]> {
    match x.location().settings.server_tokens {
        ServerTokens::Text(_) => Cow::Owned(own_signature(x)),
        ServerTokens::Off => Cow::Borrowed(b"balanza"),
        _ => Cow::Borrowed(VERSION.as_bytes()),
    }
}

/// A text of the configuration; nothing where it is undecided, or cannot stand in a field.
#[cold]
fn own_signature(x: &mut Exchange) -> Vec<u8> {
    let location = x.location().clone();
    let mut text = Vec::new();
    if let ServerTokens::Text(template) = &location.settings.server_tokens
        && (render(template, x, &mut text).is_err() || text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)))
    {
        text.clear();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::decode_base64;

    #[test]
    fn arguments_are_found_by_their_whole_name() {
        assert_eq!(argument(b"a=1&ab=2&b", b"ab"), Some(&b"2"[..]));
        assert_eq!(argument(b"a=1&ab=2&b", b"a"), Some(&b"1"[..]));
        assert_eq!(argument(b"A=1", b"a"), Some(&b"1"[..]));
        assert_eq!(argument(b"xa=1", b"a"), None);
        assert_eq!(argument(b"b", b"b"), None);
        assert_eq!(argument(b"", b"b"), None);
    }

    #[test]
    fn base64_is_decoded_or_refused() {
        assert_eq!(decode_base64(b"dXNlcjpwYXNz").as_deref(), Some(&b"user:pass"[..]));
        assert_eq!(decode_base64(b"dTpw").as_deref(), Some(&b"u:p"[..]));
        assert_eq!(decode_base64(b"dXU6cA==").as_deref(), Some(&b"uu:p"[..]));
        assert_eq!(decode_base64(b"%%%%"), None);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size(b"10k"), Some(10_240));
        assert_eq!(parse_size(b"2m"), Some(2 << 20));
        assert_eq!(parse_size(b"7"), Some(7));
        assert_eq!(parse_size(b"x"), None);
    }
}
