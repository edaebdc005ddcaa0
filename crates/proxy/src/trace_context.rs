//! W3C Trace Context: what `traceparent` and `tracestate` say, and the identifiers of a request.

/// Most members of `tracestate`, as its specification has it.
const MOST_MEMBERS: usize = 32;

/// The identifier of a trace.
pub type TraceId = [u8; 16];
/// The identifier of a span.
pub type SpanId = [u8; 8];

/// The trace that a client's request belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace_id: TraceId,
    /// The client's span.
    pub span_id: SpanId,
    /// The client keeps its span.
    pub sampled: bool,
}

/// The trace that a request belongs to, and its span.
#[derive(Debug, Clone)]
pub struct Context {
    /// The trace.
    pub trace_id: TraceId,
    /// The request's span.
    pub span_id: SpanId,
    /// The client's span.
    pub parent: Option<Parent>,
    /// `tracestate` of the client.
    pub state: Vec<u8>,
    /// The request's span is exported.
    pub sampled: bool,
}

impl Context {
    /// That of a request: the client's trace, or a new one.
    pub fn new(parent: Option<(Parent, Vec<u8>)>) -> Context {
        let span_id = random().to_ne_bytes();
        match parent {
            Some((parent, state)) => {
                Context { trace_id: parent.trace_id, span_id, parent: Some(parent), state, sampled: false }
            }
            None => {
                let mut trace_id = TraceId::default();
                trace_id[..8].copy_from_slice(&random().to_ne_bytes());
                trace_id[8..].copy_from_slice(&random().to_ne_bytes());
                Context { trace_id, span_id, parent: None, state: Vec::new(), sampled: false }
            }
        }
    }

    /// `traceparent` for servers.
    pub fn traceparent(&self) -> Vec<u8> {
        let mut text = b"00-".to_vec();
        write_hex(&self.trace_id, &mut text);
        text.push(b'-');
        write_hex(&self.span_id, &mut text);
        text.extend_from_slice(if self.sampled { b"-01" } else { b"-00" });
        text
    }
}

/// A random number that is not 0.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Keyed with the system's randomness and different each time.
    std::collections::hash_map::RandomState::new().build_hasher().finish().max(1)
}

/// Appends bytes as hexadecimal digits.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Reads `traceparent`; none if it is not valid. Of later versions that part is read which this one has.
pub fn parse(text: &[u8]) -> Option<Parent> {
    let (text, rest) = text.split_at_checked(55)?;
    let [version] = hex(&text[..2])?;
    let is_version = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    if !is_version || text[2] != b'-' || text[35] != b'-' || text[52] != b'-' {
        return None;
    }
    let (trace_id, span_id, [flags]) = (hex(&text[3..35])?, hex(&text[36..52])?, hex(&text[53..])?);
    let is_valid = trace_id != TraceId::default() && span_id != SpanId::default();
    is_valid.then_some(Parent { trace_id, span_id, sampled: flags & 1 != 0 })
}

/// Digits in lower case, two for each byte.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// Whether `tracestate` is valid: an invalid one is not passed on.
pub fn is_state(text: &[u8]) -> bool {
    let mut members = 0;
    text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty()).all(|member| {
        members += 1;
        members <= MOST_MEMBERS && is_member(member)
    })
}

fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..equals], &member[equals + 1..]);
    let is_key = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(byte);
    let begins = key.first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_value = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'=';
    begins
        && key.len() <= 256
        && key.iter().all(is_key)
        && (1..=256).contains(&value.len())
        && value.iter().all(is_value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn valid_parents_are_read() {
        let parent = parse(VALID.as_bytes()).unwrap();
        assert_eq!(parent.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!((parent.span_id[7], parent.sampled), (0x31, true));
        let flags = |flags: &str| parse(format!("{}{flags}", &VALID[..53]).as_bytes()).map(|parent| parent.sampled);
        assert_eq!((flags("00"), flags("02"), flags("03")), (Some(false), Some(false), Some(true)));
        // Later versions may have more behind it.
        assert!(parse(VALID.replacen("00", "01", 1).as_bytes()).is_some());
        assert!(parse(format!("{}-more", VALID.replacen("00", "fe", 1)).as_bytes()).is_some());
    }

    #[test]
    fn invalid_parents_are_none() {
        for text in [
            String::new(),
            "00".into(),
            VALID[..54].into(),
            format!("{VALID}-"),
            format!("{VALID}0"),
            format!(" {VALID}"),
            VALID.to_uppercase(),
            VALID.replacen("00", "ff", 1),
            VALID.replacen("00", "0g", 1),
            format!("{}x", VALID.replacen("00", "01", 1)),
            VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            VALID.replace("b7ad6b7169203331", &"0".repeat(16)),
            VALID.replace("b7ad", "b7-d"),
            VALID.replace('-', "_"),
            VALID.replace("-01", "-0 "),
            format!("{}é", &VALID[..53]),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn states_are_lists_of_pairs() {
        for text in ["", "a=b", "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7", "a=b , c=d,,", "t61@tenant=x y", "0*/-_=!"] {
            assert!(is_state(text.as_bytes()), "{text}");
        }
        let long = format!("a={}", "x".repeat(257));
        let many = ["a=b"; 33].join(",");
        for text in ["a", "=b", "a=", "A=b", "a=b=c", "a=b\u{7f}", "_a=b", "a =b", &long, &many] {
            assert!(!is_state(text.as_bytes()), "{text}");
        }
        assert!(is_state(["a=b"; 32].join(",").as_bytes()));
    }

    #[test]
    fn identifiers_are_new_each_time() {
        let of = |parent| Context::new(parent);
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| of(None).trace_id).collect();
        assert_eq!(ids.len(), 1000);
        let parent = parse(VALID.as_bytes()).unwrap();
        let context = of(Some((parent.clone(), b"a=b".to_vec())));
        assert_eq!(context.trace_id, parent.trace_id);
        assert_ne!(context.span_id, parent.span_id);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) {
            let context = Context { trace_id, span_id, parent: None, state: Vec::new(), sampled };
            let expected = Some(Parent { trace_id, span_id, sampled });
            let is_valid = trace_id != TraceId::default() && span_id != SpanId::default();
            prop_assert_eq!(parse(&context.traceparent()), expected.filter(|_| is_valid));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text: Vec<u8>) {
            let _ = is_state(&text);
            prop_assert!(parse(&text).is_none() || text.len() >= 55);
        }

        /// One wrong byte in a valid field: what is read has that byte's meaning and no other.
        #[test]
        fn a_changed_byte_is_refused_or_read(at in 0usize..55, byte: u8) {
            let mut text = VALID.as_bytes().to_vec();
            text[at] = byte;
            if let Some(parent) = parse(&text) {
                let context = Context {
                    trace_id: parent.trace_id, span_id: parent.span_id, parent: None, state: Vec::new(),
                    sampled: parent.sampled,
                };
                // The version and other flags are not kept.
                prop_assert_eq!(&context.traceparent()[2..53], &text[2..53]);
            }
        }
    }
}
