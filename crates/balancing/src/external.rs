//! The lines that `external` exchanges with its program, for every host of the algorithm: a question
//! `pick ID KEY INDEX:WEIGHT:IN_FLIGHT:NAME …`, and its answer `ID INDEX`, or `ID -` to leave the choice to least_conn.

use std::io::Write as _;

use crate::Nanos;
use crate::driver::Driver;
use crate::tried::Tried;

/// Appends the question which server gets a request. False, and nothing, if none can be chosen.
pub fn write_question(id: u64, key: &[u8], driver: &Driver, now: Nanos, tried: &Tried, out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "pick {id} ");
    write_key(key, out);
    let servers = out.len();
    for candidate in driver.candidates(now, tried) {
        // In units of the configuration, with what is left of the 256ths.
        let weight = candidate.weight as f64 / 256.0;
        let name = &driver.fleet().server(candidate.member).name;
        let _ = write!(out, " {}:{weight:.4}:{}:{name}", candidate.member.0, candidate.in_flight);
    }
    if out.len() == servers {
        out.truncate(begin);
        return false;
    }
    out.push(b'\n');
    true
}

/// A key in the characters of a URL; "-" for none.
fn write_key(key: &[u8], out: &mut Vec<u8>) {
    if key.is_empty() {
        out.push(b'-');
    }
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~:/".contains(byte) {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// What an answer says: the number of its question, and the index of a server if it names one. None if the line is no answer.
pub fn read_answer(line: &[u8]) -> Option<(u64, Option<u32>)> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (Some(id), Some(choice), None) = (words.next(), words.next(), words.next()) else { return None };
    let index = match choice {
        b"-" => None,
        number => Some(decimal(number)?.try_into().ok()?),
    };
    Some((decimal(id)?, index))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // `parse` would take a sign.
    let number = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert_eq!(read_answer(b"7 3"), Some((7, Some(3))));
        assert_eq!(read_answer(b" 7   - "), Some((7, None)));
        for wrong in [&b""[..], b"7", b"7 3 1", b"7 x", b"+7 3", b"7 -3", b"7 4294967296", b"\xff 3"] {
            assert_eq!(read_answer(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn keys() {
        let written = |key: &[u8]| {
            let mut out = Vec::new();
            write_key(key, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(b""), "-");
        assert_eq!(written(b"/a b%\n"), "/a%20b%25%0A");
    }
}
