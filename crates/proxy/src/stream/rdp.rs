//! The first packet of a Remote Desktop client, as far as a balancer reads it: the cookies.
//!
//! Sources: RFC 1006 (TPKT), ITU-T X.224 13.3 (the connection request), MS-RDPBCGR 2.2.1.1:
//!
//! ```text
//! TPKT     version 3, reserved, length of the packet in two bytes
//! X.224    length of what follows, code 0xE0, destination, source (two bytes each), class 0
//! cookies  "Cookie: NAME=VALUE\r\n": mstshash, the user's name, or msts, an address that a server has sent
//! negotiation and correlation, in binary
//! ```
//!
//! As in HAProxy, the case of "Cookie" and of names does not count, and blanks may be missing or several.

/// TPKT and the fixed part of X.224.
const FIXED: usize = 11;

/// The longest packet: X.224's length is a byte, and 255 means something else.
pub const LONGEST: usize = 5 + 254;

/// What the first bytes of a client are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// The beginning of a connection request; more has to come.
    Incomplete,
    /// A connection request, whole.
    Request(Request<'a>),
    /// Something else.
    Other,
}

/// A connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    packet: &'a [u8],
}

/// Reads the first bytes. Once it says more than [`First::Incomplete`], what follows does not change that.
pub fn read(bytes: &[u8]) -> First<'_> {
    let is = |at: usize, good: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| good(*byte));
    let plain = is(0, |version| version == 3)
        && is(1, |reserved| reserved == 0)
        && is(2, |high| high <= 1)
        && is(4, |length| (6..255).contains(&length))
        && is(5, |code| code == 0xe0)
        && is(10, |class| class >> 4 == 0);
    let length = match bytes {
        [_, _, high, low, ..] => Some(usize::from(*high) << 8 | usize::from(*low)),
        _ => None,
    };
    let sound = length.is_none_or(|length| (FIXED..=LONGEST).contains(&length));
    // Both lengths are of the same packet.
    let agree = length.zip(bytes.get(4)).is_none_or(|(length, rest)| usize::from(*rest) + 5 == length);
    if !plain || !sound || !agree {
        return First::Other;
    }
    match length.and_then(|length| bytes.get(..length)) {
        Some(packet) => First::Request(Request { packet }),
        None => First::Incomplete,
    }
}

impl<'a> Request<'a> {
    /// The packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.packet
    }

    /// The value of the cookie of this name, if it has one that is not empty.
    pub fn cookie(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut rest = &self.packet[FIXED..];
        loop {
            let (line, behind) = split_line(rest)?;
            let (head, text) = line.split_at_checked(7)?;
            if !head.eq_ignore_ascii_case(b"cookie:") {
                return None;
            }
            let text = text.trim_ascii_start();
            if let Some((found, value)) = text.split_at_checked(name.len())
                && found.eq_ignore_ascii_case(name)
                && let [b'=', value @ ..] = value
            {
                return Some(value).filter(|value| !value.is_empty());
            }
            rest = behind;
        }
    }
}

/// A line without its end, and what is behind it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A connection request with these lines and a negotiation request behind them.
    fn request(lines: &[u8]) -> Vec<u8> {
        let rest = [lines, &[1, 0, 8, 0, 3, 0, 0, 0]].concat();
        let total = FIXED + rest.len();
        let head = [3, 0, (total >> 8) as u8, total as u8, (total - 5) as u8, 0xe0, 0, 0, 0, 0, 0];
        [&head[..], &rest].concat()
    }

    fn cookie(lines: &[u8], name: &str) -> Option<Vec<u8>> {
        match read(&request(lines)) {
            First::Request(request) => request.cookie(name.as_bytes()).map(<[u8]>::to_vec),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cookies_of_real_clients() {
        // The connection request of MS-RDPBCGR 4.1.1.
        let packet =
            b"\x03\x00\x00\x2c\x27\xe0\x00\x00\x00\x00\x00Cookie: mstshash=eltons\r\n\x01\x00\x08\x00\x00\x00\x00\x00";
        let First::Request(request) = read(packet) else { panic!("not a request") };
        assert_eq!(request.cookie(b"mstshash"), Some(&b"eltons"[..]));
        assert_eq!(request.cookie(b"msts"), None);
        assert_eq!(cookie(b"Cookie: msts=3640205228.15629.0000\r\n", "msts").unwrap(), b"3640205228.15629.0000");
    }

    #[test]
    fn cookies_are_found_as_haproxy_finds_them() {
        assert_eq!(cookie(b"COOKIE:MstsHash=A b\r\n", "mstshash").unwrap(), b"A b");
        assert_eq!(cookie(b"Cookie:   mstshash=x\r\n", "mstshash").unwrap(), b"x");
        assert_eq!(cookie(b"Cookie: msts=1\r\nCookie: mstshash=u\r\n", "mstshash").unwrap(), b"u");
        assert_eq!(cookie(b"Cookie: a=b=c\r\n", "a").unwrap(), b"b=c");
        for lines in
            [&b""[..], b"Cookie: mstshash=\r\n", b"Cookie: mstshash\r\n", b"Cookie: mstshash=x", b"tsv://x\r\n"]
        {
            assert_eq!(cookie(lines, "mstshash"), None, "{lines:?}");
        }
        assert_eq!(cookie(b"Cookie: mstshashes=x\r\n", "mstshash"), None);
        assert_eq!(cookie(b"Cookie: xmstshash=x\r\n", "mstshash"), None);
    }

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        for bytes in
            [&b"G"[..], b"\x16\x03\x01", b"\x03\x01", b"\x03\x00\x02", b"\x03\x00\x00\x0a", b"\x03\x00\x00\x0b\x05"]
        {
            assert_eq!(read(bytes), First::Other, "{bytes:?}");
        }
        // Lengths that contradict each other, another code, another class.
        for (at, byte) in [(4, 0x26), (4, 0xff), (5, 0xd0), (10, 0x20), (3, 0xff)] {
            let mut packet = request(b"Cookie: mstshash=x\r\n");
            packet[at] = byte;
            assert_eq!(read(&packet), First::Other, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_read_whole_and_not_before(name in "[a-z]{1,9}", value in "[!-~]{1,60}", behind: Vec<u8>) {
            let packet = request(format!("Cookie: {name}={value}\r\n").as_bytes());
            for end in 0..packet.len() {
                prop_assert_eq!(read(&packet[..end]), First::Incomplete);
            }
            let bytes = [&packet[..], &behind].concat();
            let First::Request(request) = read(&bytes) else { panic!("not a request") };
            prop_assert_eq!(request.bytes(), &packet[..]);
            prop_assert_eq!(request.cookie(name.as_bytes()), Some(value.as_bytes()));
            prop_assert_eq!(request.cookie(name.to_uppercase().as_bytes()), Some(value.as_bytes()));
        }

        #[test]
        fn a_cookie_is_a_part_of_its_packet(text in proptest::collection::vec(
            prop_oneof![Just(b"Cookie: a=".to_vec()), Just(b"\r\n".to_vec()), proptest::collection::vec(any::<u8>(), 0..20)],
            0..8,
        )) {
            let packet = request(&text.concat()[..text.concat().len().min(200)]);
            let First::Request(request) = read(&packet) else { panic!("not a request") };
            if let Some(value) = request.cookie(b"a") {
                prop_assert!(!value.is_empty() && !value.windows(2).any(|pair| pair == b"\r\n"));
                let line = [b"a=", value, b"\r\n"].concat();
                prop_assert!(packet.windows(line.len()).any(|piece| piece == line));
            }
        }

        #[test]
        fn a_verdict_stands(
            head in prop_oneof![Just(request(b"Cookie: a=b\r\n")), proptest::collection::vec(any::<u8>(), 0..12)],
            at in 0usize..12,
            byte: u8,
            behind: Vec<u8>,
        ) {
            let mut bytes = head;
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let verdict = read(&bytes);
            let longer = [&bytes[..], &behind].concat();
            match verdict {
                First::Incomplete => prop_assert!(bytes.len() < LONGEST),
                verdict => prop_assert_eq!(read(&longer), verdict),
            }
        }
    }
}
