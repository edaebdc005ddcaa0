//! Lines of any log_format give back the values that were written.
#![allow(missing_docs, reason = "tests")]

use balanza_recommend::format::{Escape, Format, Variable};
use balanza_recommend::line::{Splitter, Values, unescaped};
use proptest::prelude::*;

/// NGINX's escaping of a value in a log.
fn escaped(value: &[u8], escape: Escape) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in value {
        match (escape, byte) {
            (Escape::Default, b'"' | b'\\' | 0..=31 | 127..) => out.extend(format!("\\x{byte:02X}").bytes()),
            (Escape::Json, b'"' | b'\\') => out.extend([b'\\', *byte]),
            (Escape::Json, b'\n') => out.extend(b"\\n"),
            (Escape::Json, 0..=31) => out.extend(format!("\\u{byte:04X}").bytes()),
            _ => out.push(*byte),
        }
    }
    out
}

/// A variable with its name and a value that the format can hold.
#[derive(Clone, Debug)]
struct Part {
    name: &'static str,
    variable: Option<Variable>,
    value: Vec<u8>,
    braced: bool,
}

fn attempts(one: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let list = prop::collection::vec((one, prop::bool::ANY), 1..4);
    list.prop_map(|parts| {
        let mut text = Vec::new();
        for (index, (part, comma)) in parts.into_iter().enumerate() {
            if index > 0 {
                text.extend_from_slice(if comma { b", " } else { b" : " });
            }
            text.extend(part.bytes());
        }
        text
    })
}

fn part() -> impl Strategy<Value = Part> {
    use Variable::{Msec, RemoteAddr, Request, TimeLocal, UpstreamAddr, UpstreamResponseTime, UpstreamStatus};
    let bytes = || prop::collection::vec(any::<u8>(), 0..20).boxed();
    let word = "[a-zA-Z0-9./?=&%-]{0,12}";
    let of = |name, variable, value: BoxedStrategy<Vec<u8>>| {
        (value, any::<bool>()).prop_map(move |(value, braced)| Part { name, variable, value, braced }).boxed()
    };
    prop_oneof![
        of("msec", Some(Msec), "[0-9]{1,10}\\.[0-9]{3}".prop_map(String::into_bytes).boxed()),
        of("upstream_addr", Some(UpstreamAddr), attempts("(10\\.0\\.0\\.[0-9]:80|\\[::1\\]:8[0-9]|unix:/s)").boxed()),
        of("upstream_response_time", Some(UpstreamResponseTime), attempts("([0-9]\\.[0-9]{3}|-)").boxed()),
        of("upstream_status", Some(UpstreamStatus), attempts("(200|502|-)").boxed()),
        of("time_local", Some(TimeLocal), Just(b"24/Nov/2026:21:53:30 +0000".to_vec()).boxed()),
        of("remote_addr", Some(RemoteAddr), word.prop_map(String::into_bytes).boxed()),
        of("request", Some(Request), bytes()),
        of("http_user_agent", None, bytes()),
    ]
}

proptest! {
    /// Values in quotes may be anything; values without may have no spaces, unless they are lists of attempts or times.
    #[test]
    fn what_is_written_is_read(
        parts in prop::collection::vec(part(), 1..9),
        separators in prop::collection::vec(prop_oneof![Just(" "), Just(" | "), Just(" rt="), Just("\t")], 9),
        front in "[a-z:= ]{0,6}",
        json in any::<bool>(),
    ) {
        let escape = if json { Escape::Json } else { Escape::Default };
        let mut text = "$upstream_addr\t$upstream_response_time\t$msec\t".to_string();
        let mut line = b"10.0.0.1:80\t0.001\t1.000\t".to_vec();
        text.push_str(&front);
        line.extend(front.bytes());
        for (part, separator) in parts.iter().zip(&separators) {
            let quoted = matches!(part.name, "request" | "http_user_agent");
            let quote = if quoted { "\"" } else { "" };
            let name = if part.braced { format!("${{{}}}", part.name) } else { format!("${}", part.name) };
            text.push_str(&format!("{quote}{name}{quote}{separator}"));
            line.extend(quote.bytes());
            line.extend(escaped(&part.value, escape));
            line.extend(quote.bytes());
            line.extend(separator.bytes());
        }
        text.push('!');
        line.push(b'!');
        let format = Format::new(&text, escape).unwrap();
        let mut values = Values::default();
        prop_assert!(Splitter::new(&format).split(&line, &mut values), "{} {}", text, line.escape_ascii());
        for (index, part) in parts.iter().enumerate() {
            let Some(variable) = part.variable else { continue };
            if parts[index + 1..].iter().any(|later| later.variable == Some(variable)) {
                continue;
            }
            let found = values.get(variable).map(|value| unescaped(value, escape).into_owned());
            let wanted = Some(part.value.clone()).filter(|value| !value.is_empty() && value != b"-");
            prop_assert_eq!(found, wanted, "{} of {} in {}", part.name, text, line.escape_ascii());
        }
    }

    /// No line ends the reader, whatever it is.
    #[test]
    fn any_line_is_read_or_not(format in "(\\$(msec|upstream_addr|request|x|time_local)[ a\"\\[]{0,3}){0,6}", line in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = format!("$msec $upstream_addr $upstream_response_time {format}");
        if let Ok(format) = Format::new(&text, Escape::Default) {
            let mut values = Values::default();
            Splitter::new(&format).split(&line, &mut values);
        }
        Splitter::new(&Format::json()).split(&line, &mut Values::default());
    }
}

#[test]
fn json_in_any_order() {
    let line = br#"{"status":200,"upstream_addr":"10.0.0.1:80, 10.0.0.2:80","x":[1],"msec":1700000000.25,"upstream_response_time":"0.1, 0.2"}"#;
    let mut values = Values::default();
    assert!(Splitter::new(&Format::json()).split(line, &mut values));
    assert_eq!(values.get(Variable::UpstreamAddr), Some(&b"10.0.0.1:80, 10.0.0.2:80"[..]));
    assert_eq!(values.get(Variable::Status), Some(&b"200"[..]));
    assert!(!Splitter::new(&Format::json()).split(b"{\"msec\":1} x", &mut Values::default()));
}

#[test]
fn formats_that_lack_something_are_refused_with_the_line_to_use() {
    let wrong = |text: &str| Format::new(text, Escape::Default).unwrap_err().to_string();
    let said = wrong("$remote_addr [$time_local] \"$request\" $status");
    assert!(said.contains("lacks $upstream_addr") && said.contains("log_format upstreams '"), "{said}");
    assert!(!said.contains("$msec (when"), "a time is there: {said}");
    assert!(wrong("$upstream_addr $upstream_response_time").contains("$msec (when a request ended)"));
    assert!(wrong("$msec$upstream_addr $upstream_response_time").contains("nothing between them"));
    // The advice is a format that is accepted.
    let advice: String = balanza_recommend::format::ADVICE.split('\'').skip(1).step_by(2).collect();
    assert_eq!(advice, balanza_recommend::format::BUILT_IN);
    Format::new(&advice, Escape::Default).unwrap();
}
