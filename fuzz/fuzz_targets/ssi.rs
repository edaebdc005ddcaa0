//! Pages of server-side includes: no panic, and the same commands and texts wherever the pieces are cut.
#![no_main]

use balanza_proxy::page_commands::{Found, Parser};
use libfuzzer_sys::fuzz_target;

/// What is in a page: texts, commands and errors, one behind the other.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Found> {
    let mut parser = Parser::new(64);
    let (mut found, mut text) = (Vec::new(), Vec::new());
    let mut texts = Vec::new();
    for piece in pieces {
        let mut at = 0;
        loop {
            match parser.next(piece, &mut at) {
                Found::Nothing => break,
                Found::Text(held, range) => {
                    text.extend_from_slice(held);
                    text.extend_from_slice(&piece[range]);
                }
                other => {
                    texts.push(std::mem::take(&mut text));
                    found.push(other);
                }
            }
        }
        assert_eq!(at, piece.len());
    }
    text.extend_from_slice(parser.end());
    texts.push(text);
    // A text is told by its bytes, not by where they are.
    found.extend(texts.iter().map(|text| Found::Malformed(String::from_utf8_lossy(text).into_owned())));
    found
}

fuzz_target!(|input: (&[u8], u8)| {
    let (page, size) = input;
    let whole = read(std::iter::once(page));
    assert_eq!(read(page.chunks(usize::from(size).max(1))), whole);
    for command in &whole {
        if let Found::Command(command) = command {
            assert!(command.name.len() <= 32 && command.parameters.len() <= 17);
            assert!(command.parameters.iter().all(|(name, value)| name.len() <= 32 && value.len() <= 64));
        }
    }
});
