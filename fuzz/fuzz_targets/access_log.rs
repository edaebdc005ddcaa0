//! Formats and lines of access logs: no panic, and no endless search.
#![no_main]

use balanza_recommend::format::{Escape, Format};
use balanza_recommend::log::{KeyOf, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == b'\n');
    let (format, lines) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    let escape = [Escape::Default, Escape::Json, Escape::None][usize::from(first % 3)];
    let text = String::from_utf8_lossy(format);
    let format = if first & 0x80 != 0 { Ok(Format::json()) } else { Format::new(&text, escape) };
    let Ok(format) = format else { return };
    let mut reader = Reader::new(&format, KeyOf::Uri, &[]);
    for line in lines.split(|byte| *byte == b'\n') {
        reader.line(line);
    }
    let log = reader.finish();
    assert!(log.attempts.len() as u64 >= log.requests);
});
