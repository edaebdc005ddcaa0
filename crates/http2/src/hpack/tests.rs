//! The examples of RFC 7541 (Appendix C), invalid input, and round trips.

use balanza_message::Header;
use proptest::prelude::*;

use super::*;

type Pair = (Vec<u8>, Vec<u8>);

fn pairs(list: &[(&str, &str)]) -> Vec<Pair> {
    list.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// Decodes a block that arrives in pieces of `piece` bytes.
fn read(decoder: &mut Decoder, block: &[u8], piece: usize) -> Result<Vec<Pair>, Invalid> {
    let (mut text, mut fields, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    decoder.begin();
    for piece in block.chunks(piece.max(1)) {
        rest.extend_from_slice(piece);
        let done = decoder.decode(&rest, &mut text, true, |text, begin, name_end| {
            fields.push((text[begin..name_end].to_vec(), text[name_end..].to_vec()));
            true
        })?;
        rest.drain(..done);
    }
    if rest.is_empty() { Ok(fields) } else { Err(Invalid) }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(balanza_message::hex_digit).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The requests of C.3, and the same with Huffman codes (C.4).
#[test]
fn requests_of_the_standard() {
    let expected = [
        pairs(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]),
        pairs(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ]),
        pairs(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ]),
    ];
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        for piece in [1, 2, 3, 7, 100] {
            let mut decoder = Decoder::default();
            for (block, expected) in blocks.iter().zip(&expected) {
                assert_eq!(read(&mut decoder, &hex(block), piece).as_ref(), Ok(expected));
            }
        }
    }
}

/// The responses of C.5 and C.6, with a table of 256 bytes, so that fields are evicted.
#[test]
fn responses_of_the_standard() {
    let (date, later) = ("Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = "https://www.example.com";
    let expected = [
        pairs(&[(":status", "302"), ("cache-control", "private"), ("date", date), ("location", location)]),
        pairs(&[(":status", "307"), ("cache-control", "private"), ("date", date), ("location", location)]),
        pairs(&[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", later),
            ("location", location),
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ]),
    ];
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d \
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f \
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b \
         2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        // Sets the size of the table to 256 bytes.
        let size = hex("3fe1 01");
        assert_eq!(read(&mut decoder, &size, 100), Ok(Vec::new()));
        for (block, expected) in blocks.iter().zip(&expected) {
            assert_eq!(read(&mut decoder, &hex(block), 100).as_ref(), Ok(expected));
        }
        // Evicted fields are gone: three fields are left.
        assert!(read(&mut decoder, &hex("c0"), 100).is_ok());
        assert_eq!(read(&mut decoder, &hex("c1"), 100), Err(Invalid));
    }
}

#[test]
fn what_is_invalid_is_refused() {
    for wrong in [
        // Index 0, an index without an entry, numbers that do not end.
        "80",
        "be",
        "ff ffffffffff",
        "7f ffffffff0f",
        "00 7fffffffffff",
        // A table larger than announced, and a size update after a field.
        "3f e21f",
        "82 20",
        // A Huffman code with the end-of-string code in it, and one with a whole byte of padding.
        "00 0161 84ffffffff",
        "00 0161 8207ff",
        // Incomplete fields.
        "00",
        "00 01",
        "00 0161",
        "00 0161 05 61",
        "ff 80",
    ] {
        assert_eq!(read(&mut Decoder::default(), &hex(wrong), 100), Err(Invalid), "{wrong}");
    }
    // The largest size that was announced.
    assert_eq!(read(&mut Decoder::default(), &hex("3f e11f 82"), 100), Ok(pairs(&[(":method", "GET")])));
}

#[test]
fn a_table_that_is_not_used_is_not_there() {
    let mut decoder = Decoder::default();
    assert!(size_of::<Decoder>() <= 24);
    let field = hex("40 0161 0162");
    for _ in 0..1000 {
        assert_eq!(read(&mut decoder, &field, 100), Ok(pairs(&[("a", "b")])));
    }
    // Each entry counts 34 bytes.
    assert!(read(&mut decoder, &hex("ff 36"), 100).is_ok(), "the 120th");
    assert_eq!(read(&mut decoder, &hex("ff 37"), 100), Err(Invalid), "the 121st");
    assert!(read(&mut decoder, &hex("20"), 100).is_ok());
    assert_eq!(read(&mut decoder, &hex("be"), 100), Err(Invalid));
    // A field that is larger than the table empties it.
    let mut decoder = Decoder::default();
    let large = [hex("40 0161 7f e11f"), vec![b'x'; 4192]].concat();
    assert!(read(&mut decoder, &field, 100).is_ok() && read(&mut decoder, &hex("be"), 100).is_ok());
    assert!(read(&mut decoder, &large, 100).is_ok());
    assert_eq!(read(&mut decoder, &hex("be"), 100), Err(Invalid));
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z][a-z0-9-]{0,40}", Just("set-cookie".into()), Just("content-type".into()), Just("te".into())]
}

/// The `loona-hpack` crate decodes what our encoder writes, and its encoder writes what our decoder reads.
mod oracle {
    use super::*;

    proptest! {
        /// A client that uses the dynamic table freely, over several heads.
        #[test]
        fn what_another_encoder_writes_is_read(
            heads in prop::collection::vec(prop::collection::vec((name(), "[ -~]{0,60}"), 0..20), 1..8),
            piece in 1usize..50,
        ) {
            let mut encoder = loona_hpack::Encoder::new();
            let mut decoder = Decoder::default();
            for head in heads {
                let fields: Vec<Pair> =
                    head.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect();
                let block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
                prop_assert_eq!(read(&mut decoder, &block, piece), Ok(fields));
            }
        }

        #[test]
        fn what_is_written_is_read_by_another(
            fields in prop::collection::vec((name(), prop::collection::vec(any::<u8>(), 0..60)), 0..20),
            code in 100u16..600,
            length: u64,
        ) {
            let (mut block, mut expected) = (Vec::new(), Vec::new());
            size_update(&mut block);
            status(&mut block, code);
            expected.push((b":status".to_vec(), code.to_string().into_bytes()));
            for (name, value) in &fields {
                field(&mut block, Header::recognise(name.as_bytes()), name.to_uppercase().as_bytes(), value);
                expected.push((name.clone().into_bytes(), value.clone()));
            }
            number(&mut block, Header::ContentLength, length);
            expected.push((b"content-length".to_vec(), length.to_string().into_bytes()));
            prop_assert_eq!(loona_hpack::Decoder::new().decode(&block).ok(), Some(expected.clone()));
            prop_assert_eq!(read(&mut Decoder::default(), &block, 100), Ok(expected));
        }

        /// Any input: no panic, and the same result in one piece as in several.
        #[test]
        fn anything_is_read_alike(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4)) {
            let (mut whole, mut pieces) = (Decoder::default(), Decoder::default());
            for block in blocks {
                let read_whole = read(&mut whole, &block, 100);
                prop_assert_eq!(&read_whole, &read(&mut pieces, &block, 1));
                if read_whole.is_err() {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_not_wanted_is_read_but_not_copied() {
    let mut decoder = Decoder::default();
    let mut text = Vec::new();
    let mut block = hex("40 01 61 7f a1 1e");
    block.extend([b'b'; 4000]);
    block.extend([0xbe; 10_000]);
    let mut count = 0;
    let done = decoder.decode(&block, &mut text, true, |text, begin, _| {
        count += 1;
        text.truncate(begin);
        count < 3
    });
    assert_eq!((done, count, text.len()), (Ok(block.len()), 3, 0));
    // Fields for the table are still read, and an index without an entry is still an error.
    let unwanted = |decoder: &mut Decoder, block: &[u8]| decoder.decode(block, &mut Vec::new(), false, |_, _, _| false);
    assert!(unwanted(&mut decoder, &hex("40 01 63 01 64")).is_ok());
    decoder.begin();
    assert_eq!(read(&mut decoder, &hex("be"), 100), Ok(pairs(&[("c", "d")])));
    assert!(unwanted(&mut decoder, &hex("ff 80 01")).is_err());
    // A long name from the table, repeatedly.
    let mut long = hex("40 7f a1 1e");
    long.extend([b'n'; 4000]);
    long.extend(hex("01 61"));
    assert!(unwanted(&mut Decoder::default(), &[long.as_slice(), &hex("7e 00")].concat()).is_err());
}
