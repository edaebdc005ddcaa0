//! Conversion between character sets by tables (`charset_map`).

use balanza_config::model::{CharsetTable, decode_utf8};

use super::{Broken, Filter, Flow, Step};

/// The longest text that one character becomes: `&#1114111;`.
const LONGEST: usize = 10;

/// Converts a body.
pub struct Charset {
    table: std::sync::Arc<CharsetTable>,
    /// The beginning of a character whose rest is in the next piece.
    begun: Vec<u8>,
}

impl Charset {
    /// A conversion by this table.
    pub fn new(table: std::sync::Arc<CharsetTable>) -> Charset {
        Charset { table, begun: Vec::new() }
    }
}

impl Filter for Charset {
    fn step(&mut self, input: &[u8], _: Flow, out: &mut [u8]) -> Result<Step, Broken> {
        let Charset { table, begun } = self;
        let (mut taken, mut made) = (0, 0);
        match &**table {
            CharsetTable::Bytes(table) => {
                made = input.len().min(out.len());
                for (out, byte) in out.iter_mut().zip(input) {
                    *out = table[usize::from(*byte)];
                }
                taken = made;
            }
            CharsetTable::ToUtf8(table) => {
                while taken < input.len() && made + LONGEST <= out.len() {
                    let [length, bytes @ ..] = table[usize::from(input[taken])];
                    let length = usize::from(length).min(bytes.len());
                    out[made..made + length].copy_from_slice(&bytes[..length]);
                    made += length;
                    taken += 1;
                }
            }
            CharsetTable::FromUtf8(pages) => {
                while taken < input.len() && made + LONGEST <= out.len() {
                    let byte = input[taken];
                    if byte < 0x80 && begun.is_empty() {
                        out[made] = byte;
                        made += 1;
                        taken += 1;
                        continue;
                    }
                    begun.push(byte);
                    taken += 1;
                    let Some((character, used)) = decode_utf8(begun) else { continue };
                    // What was looked at and not used begins the next character.
                    taken -= begun.len() - used;
                    begun.clear();
                    made += write_character(character, pages, &mut out[made..]);
                }
            }
        }
        Ok(Step { taken, made, done: taken == input.len() })
    }
}

/// Writes a decoded character: by the table, else as an entity; "?" for what is no character.
fn write_character(character: Option<u32>, pages: &[Option<Box<[u8; 256]>>], out: &mut [u8]) -> usize {
    let Some(character) = character.filter(|character| *character <= 0x10_ffff) else {
        out[0] = b'?';
        return 1;
    };
    let page = pages.get((character >> 8) as usize).and_then(Option::as_deref);
    if let Some(byte) = page.map(|page| page[(character & 0xff) as usize]).filter(|byte| *byte != 0) {
        out[0] = byte;
        return 1;
    }
    let mut entity = Vec::with_capacity(LONGEST);
    entity.extend_from_slice(b"&#");
    balanza_message::push_decimal(&mut entity, u64::from(character));
    entity.push(b';');
    out[..entity.len()].copy_from_slice(&entity);
    entity.len()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::Chain;
    use super::super::tests::run;
    use super::*;

    fn converted(table: CharsetTable, body: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut chain = Chain::default();
        chain.add(Charset::new(Arc::new(table)));
        run(&mut chain, body, cuts, Flow::More).unwrap()
    }

    /// A page for the letters а to я, as KOI8-R would have them if it were in order.
    fn pages() -> Vec<Option<Box<[u8; 256]>>> {
        let mut pages = vec![None; 256];
        let mut page = Box::new([0; 256]);
        for (offset, byte) in page[0x30..0x50].iter_mut().enumerate() {
            *byte = 0xc0 + offset as u8;
        }
        pages[4] = Some(page);
        pages
    }

    proptest! {
        #[test]
        fn bytes_are_looked_up(body: Vec<u8>, cuts: Vec<usize>, table: [u8; 32]) {
            let table: [u8; 256] = std::array::from_fn(|index| table[index % 32] ^ index as u8);
            let expected: Vec<u8> = body.iter().map(|byte| table[usize::from(*byte)]).collect();
            prop_assert_eq!(converted(CharsetTable::Bytes(Box::new(table)), &body, &cuts), expected);
        }

        #[test]
        fn bytes_become_utf8(body: Vec<u8>, cuts: Vec<usize>) {
            // Latin 1.
            let table = std::array::from_fn(|index| {
                let mut text = [0; 4];
                let length = char::from(index as u8).encode_utf8(&mut text).len();
                [length as u8, text[0], text[1], text[2]]
            });
            let expected: String = body.iter().map(|byte| char::from(*byte)).collect();
            prop_assert_eq!(converted(CharsetTable::ToUtf8(Box::new(table)), &body, &cuts), expected.into_bytes());
        }

        #[test]
        fn utf8_becomes_bytes_or_entities(body in "[ -~а-яА-Я€\u{1f600}]{0,80}", cuts: Vec<usize>) {
            let mut expected = Vec::new();
            for character in body.chars() {
                match character {
                    'а'..='я' => expected.push((character as u32 - 'а' as u32) as u8 + 0xc0),
                    '\0'..='\x7f' => expected.push(character as u8),
                    _ => expected.extend_from_slice(format!("&#{};", character as u32).as_bytes()),
                }
            }
            prop_assert_eq!(converted(CharsetTable::FromUtf8(pages()), body.as_bytes(), &cuts), expected);
        }

        /// Whatever comes, the cuts make no difference.
        #[test]
        fn cuts_make_no_difference(body: Vec<u8>, cuts: Vec<usize>) {
            let whole = converted(CharsetTable::FromUtf8(pages()), &body, &[]);
            prop_assert_eq!(converted(CharsetTable::FromUtf8(pages()), &body, &cuts), whole);
        }
    }

    #[test]
    fn what_is_no_utf8_becomes_a_question_mark() {
        let convert = |body: &[u8]| converted(CharsetTable::FromUtf8(pages()), body, &[]);
        assert_eq!(convert(b"a\xffb\x80c"), b"a?b?c");
        assert_eq!(convert(b"\xc0\x80"), b"??");
        assert_eq!(convert(b"\xd0Xy"), b"?y");
        // A character that never ends is left out.
        assert_eq!(convert(b"end\xe2\x82"), b"end");
    }
}
