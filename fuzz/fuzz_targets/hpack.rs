//! Header blocks: no panic, the same fields however the bytes are cut, and what is read is read again from what we write.
#![no_main]

use balanza_http2::fuzzing::{Decoder, Invalid, field};
use balanza_message::Header;
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The fields of a block in pieces of these sizes, over and over.
fn read(decoder: &mut Decoder, block: &[u8], sizes: &[u8]) -> Result<Fields, Invalid> {
    let (mut text, mut fields, mut rest, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut sizes = sizes.iter().cycle();
    decoder.begin();
    while at < block.len() {
        let size = sizes.next().map_or(block.len(), |&size| usize::from(size) + 1).min(block.len() - at);
        rest.extend_from_slice(&block[at..at + size]);
        at += size;
        let done = decoder.decode(&rest, &mut text, true, |text, begin, name_end| {
            fields.push((text[begin..name_end].to_vec(), text[name_end..].to_vec()));
            text.truncate(begin);
            true
        })?;
        rest.drain(..done);
    }
    if rest.is_empty() { Ok(fields) } else { Err(Invalid) }
}

fuzz_target!(|input: (Vec<u8>, Vec<Vec<u8>>)| {
    let (sizes, blocks) = input;
    let (mut whole, mut pieces) = (Decoder::default(), Decoder::default());
    for block in blocks {
        let fields = read(&mut whole, &block, &[]);
        assert_eq!(fields, read(&mut pieces, &block, &sizes));
        let Ok(fields) = fields else { return };
        let (mut again, mut expected) = (Vec::new(), fields);
        for (name, value) in &mut expected {
            name.make_ascii_lowercase();
            field(&mut again, Header::recognise(name), name, value);
        }
        assert_eq!(read(&mut Decoder::default(), &again, &[]), Ok(expected));
    }
});
