use proptest::prelude::*;

use super::super::probe::{Outcome, run};
use super::*;

const HEAD: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 0x01, b'a'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = frame::Head { length: payload.len(), kind, flags, stream };
    [&head.bytes()[..], payload].concat()
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let pairs = pairs.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(kind::SETTINGS, 0, 0, &pairs.collect::<Vec<_>>())
}

/// Runs a connection that begins correctly.
fn after_settings(frames: &[Vec<u8>]) -> Outcome {
    run(&[settings(&[]), frames.concat()].concat(), &[])
}

/// The frames that were sent after our SETTINGS and the acknowledgment of the client's: type, stream, and the last four
/// bytes as a number.
fn answers(outcome: &Outcome) -> Vec<(u8, u32, u32)> {
    let (mut all, mut rest) = (Vec::new(), &outcome.output[..]);
    while let Some(head) = frame::Head::read(rest) {
        let payload = &rest[frame::HEAD..frame::HEAD + head.length];
        let number = payload.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        all.push((head.kind, head.stream, number));
        rest = &rest[frame::HEAD + head.length..];
    }
    assert!(rest.is_empty());
    assert_eq!((all[0].0, all[1]), (kind::SETTINGS, (kind::SETTINGS, 0, 0)));
    all.split_off(2)
}

fn reset(stream: u32, reason: Reason) -> (u8, u32, u32) {
    (kind::RST_STREAM, stream, reason as u32)
}

fn goaway(reason: Reason) -> (u8, u32, u32) {
    (kind::GOAWAY, 0, reason as u32)
}

const END: u8 = flag::END_HEADERS | flag::END_STREAM;

#[test]
fn what_ends_the_connection() {
    let open = frame(kind::HEADERS, flag::END_HEADERS, 3, POST);
    let cases: &[(&[Vec<u8>], Reason)] = &[
        (&[frame(kind::DATA, 0, 0, b"x")], Reason::ProtocolError),
        (&[frame(kind::DATA, 0, 2, b"x")], Reason::ProtocolError),
        (&[frame(kind::DATA, 0, 7, b"x")], Reason::ProtocolError),
        (&[open.clone(), frame(kind::DATA, flag::PADDED, 3, b"")], Reason::FrameSizeError),
        (&[open.clone(), frame(kind::DATA, flag::PADDED, 3, b"\x03ab")], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END, 0, HEAD)], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END, 2, HEAD)], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END, 1, b"\x80")], Reason::CompressionError),
        (&[frame(kind::HEADERS, END, 1, b"\x82\x00")], Reason::CompressionError),
        (&[frame(kind::HEADERS, END | flag::PADDED, 1, b"\x07\x82")], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END | flag::PRIORITY, 1, b"\0\0\0\0")], Reason::FrameSizeError),
        (&[frame(kind::HEADERS, 0, 1, HEAD), frame(kind::PING, 0, 0, &[0; 8])], Reason::ProtocolError),
        (&[frame(kind::HEADERS, 0, 1, HEAD), frame(kind::CONTINUATION, 4, 3, b"")], Reason::ProtocolError),
        (&[frame(kind::CONTINUATION, 4, 1, HEAD)], Reason::ProtocolError),
        (&[frame(kind::PRIORITY, 0, 0, &[0; 5])], Reason::ProtocolError),
        (&[frame(kind::PRIORITY, 0, 1, &[0; 4])], Reason::FrameSizeError),
        (&[frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0])], Reason::ProtocolError),
        (&[frame(kind::RST_STREAM, 0, 0, &[0; 4])], Reason::ProtocolError),
        (&[frame(kind::RST_STREAM, 0, 1, &[0; 4])], Reason::ProtocolError),
        (&[open.clone(), frame(kind::RST_STREAM, 0, 3, &[0; 3])], Reason::FrameSizeError),
        (&[frame(kind::SETTINGS, 0, 1, b"")], Reason::ProtocolError),
        (&[frame(kind::SETTINGS, 0, 0, b"12345")], Reason::FrameSizeError),
        (&[frame(kind::SETTINGS, flag::ACK, 0, &[0; 6])], Reason::FrameSizeError),
        (&[settings(&[(setting::ENABLE_PUSH, 2)])], Reason::ProtocolError),
        (&[settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)])], Reason::FlowControlError),
        (&[settings(&[(setting::MAX_FRAME_SIZE, 16_383)])], Reason::ProtocolError),
        (&[settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)])], Reason::ProtocolError),
        (&[frame(kind::PUSH_PROMISE, 4, 1, &[0; 4])], Reason::ProtocolError),
        (&[frame(kind::PING, 0, 1, &[0; 8])], Reason::ProtocolError),
        (&[frame(kind::PING, 0, 0, &[0; 7])], Reason::FrameSizeError),
        (&[frame(kind::GOAWAY, 0, 0, &[0; 7])], Reason::FrameSizeError),
        (&[frame(kind::GOAWAY, 0, 1, &[0; 8])], Reason::ProtocolError),
        (&[frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4])], Reason::ProtocolError),
        (&[frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3])], Reason::FrameSizeError),
        (&[frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])], Reason::FlowControlError),
        (&[frame(kind::WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1])], Reason::ProtocolError),
        (&[frame(99, 0, 0, &[0; 16_385])], Reason::FrameSizeError),
        // In `run`, stream 1 is answered at once. Stream 3 was skipped.
        (&[frame(kind::HEADERS, END, 1, HEAD), frame(kind::HEADERS, END, 1, HEAD)], Reason::StreamClosed),
        (&[frame(kind::HEADERS, END, 5, HEAD), frame(kind::HEADERS, END, 3, HEAD)], Reason::ProtocolError),
    ];
    for (frames, reason) in cases {
        let outcome = after_settings(frames);
        assert_eq!(answers(&outcome).last(), Some(&goaway(*reason)), "{frames:?} {:?}", outcome.error);
        assert!(outcome.error.is_some());
    }
    for first in [frame(kind::PING, 0, 0, &[0; 8]), frame(kind::SETTINGS, flag::ACK, 0, b""), frame(99, 0, 0, b"")] {
        assert_eq!(run(&first, &[]).error, Some("client sent another http2 frame before SETTINGS"));
    }
}

#[test]
fn what_ends_a_stream() {
    let open = frame(kind::HEADERS, flag::END_HEADERS, 3, POST);
    let with_length = [POST, b"\x0f\x0d\x014"].concat();
    let sized = frame(kind::HEADERS, flag::END_HEADERS, 3, &with_length);
    let cases: &[(&[Vec<u8>], Reason)] = &[
        // A field name with a capital letter, a missing pseudo-field.
        (&[frame(kind::HEADERS, END, 3, &[HEAD, b"\x00\x01A\x01b"].concat())], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END, 3, b"\x82\x86")], Reason::ProtocolError),
        // A stream that depends on itself.
        (&[frame(kind::HEADERS, END | flag::PRIORITY, 3, &[b"\0\0\0\x03\0", HEAD].concat())], Reason::ProtocolError),
        (&[open.clone(), frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 3, 0])], Reason::ProtocolError),
        // A second head, trailers without END_STREAM, trailers with pseudo-fields.
        (&[open.clone(), frame(kind::HEADERS, flag::END_HEADERS, 3, b"\x00\x01a\x01b")], Reason::ProtocolError),
        (&[open.clone(), frame(kind::HEADERS, END, 3, b"\x84")], Reason::ProtocolError),
        // A body that is not as long as announced.
        (&[sized.clone(), frame(kind::DATA, 1, 3, b"123")], Reason::ProtocolError),
        (&[sized.clone(), frame(kind::DATA, 0, 3, b"12345")], Reason::ProtocolError),
        (&[sized.clone(), frame(kind::DATA, 0, 3, b"123"), frame(kind::HEADERS, END, 3, b"")], Reason::ProtocolError),
        (&[frame(kind::HEADERS, END, 3, &with_length)], Reason::ProtocolError),
        // Frames after the end of the request.
        (&[open.clone(), frame(kind::DATA, 1, 3, b""), frame(kind::DATA, 0, 3, b"x")], Reason::StreamClosed),
        (&[open.clone(), frame(kind::DATA, 1, 3, b""), frame(kind::HEADERS, END, 3, b"")], Reason::StreamClosed),
        (&[open.clone(), frame(kind::RST_STREAM, 0, 3, &[0; 4]), frame(kind::DATA, 0, 3, b"x")], Reason::StreamClosed),
        // Windows.
        (&[open.clone(), frame(kind::WINDOW_UPDATE, 0, 3, &[0; 4])], Reason::ProtocolError),
        (&[open.clone(), frame(kind::WINDOW_UPDATE, 0, 3, &[0x7f, 255, 255, 255])], Reason::FlowControlError),
        (
            &[frame(kind::SETTINGS, flag::ACK, 0, b""), open.clone(), frame(kind::DATA, 0, 3, &[0; 1001])],
            Reason::FlowControlError,
        ),
    ];
    for (frames, reason) in cases {
        let outcome = after_settings(frames);
        assert_eq!(answers(&outcome), [reset(3, *reason)], "{frames:?}");
        assert_eq!(outcome.error, None);
    }
}

#[test]
fn what_is_ignored() {
    let open = frame(kind::HEADERS, flag::END_HEADERS, 3, POST);
    let outcome = after_settings(&[
        frame(99, 255, 77, b"anything"),
        frame(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 0]),
        settings(&[(99, 1), (setting::MAX_HEADER_LIST_SIZE, 0)]),
        open,
        frame(kind::RST_STREAM, 0, 1, &[0; 4]),
        frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(kind::GOAWAY, 0, 0, &[0; 8]),
        frame(kind::DATA, flag::PADDED, 3, b"\x02body\0\0"),
        frame(kind::DATA, 1, 3, b""),
    ]);
    assert_eq!(answers(&outcome), [(kind::SETTINGS, 0, 0)]);
    assert_eq!(outcome.bodies, [(3, b"body".to_vec(), true)]);
}

#[test]
fn frames_of_streams_that_we_gave_up_are_ignored() {
    // In `run`, stream 5 is reset at once, and stream 1 is answered before its body has arrived.
    for (stream, answer) in
        [(5, vec![reset(5, Reason::InternalError)]), (1, vec![(kind::HEADERS, 1, 0), reset(1, Reason::NoError)])]
    {
        let outcome = after_settings(&[
            frame(kind::HEADERS, flag::END_HEADERS, stream, POST),
            frame(kind::DATA, 0, stream, &[0; 300]),
            frame(kind::WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]),
            frame(kind::HEADERS, END, stream, &[0x40, 1, b'a', 1, b'b']),
            frame(kind::HEADERS, END, 7, &[HEAD, &[0xbf]].concat()),
        ]);
        assert_eq!(answers(&outcome), answer);
        assert!(outcome.heads[1].1.ends_with(b"ab"), "the ignored head was decoded");
    }
}

#[test]
fn more_requests_than_allowed_are_refused() {
    let streams = [3, 7, 9, 13, 15].map(|stream| frame(kind::HEADERS, END, stream, HEAD));
    let outcome = after_settings(&streams);
    assert_eq!(answers(&outcome), [reset(15, Reason::RefusedStream)]);
    assert_eq!(outcome.heads.len(), 4);
}

#[test]
fn a_client_that_only_makes_errors_loses_its_connection() {
    let mut frames = Vec::new();
    for stream in 0..2000 {
        frames.push(frame(kind::HEADERS, END, 2 * stream + 1, b"\x82"));
    }
    let outcome = after_settings(&frames);
    let answers = answers(&outcome);
    assert_eq!((answers.len(), answers.last()), (1026, Some(&goaway(Reason::EnhanceYourCalm))));
    // Requests that are reset before they can be processed.
    let frames: Vec<_> = (0..100u32)
        .flat_map(|n| [frame(kind::HEADERS, END, 16 * n + 3, HEAD), frame(kind::RST_STREAM, 0, 16 * n + 3, &[0; 4])])
        .collect();
    let outcome = after_settings(&frames);
    assert_eq!((outcome.heads.len(), outcome.error), (8, Some("http2 flood detected")));
}

#[test]
fn heads_that_are_too_large() {
    // Fields that refer to an entry of the dynamic table.
    let first = [HEAD, b"\x40\x01a\x7f\xa1\x06", &[b'x'; 928]].concat();
    let bomb = [&first[..], &[0xbe; 15_000]].concat();
    let outcome =
        after_settings(&[frame(kind::HEADERS, END, 3, &bomb), frame(kind::HEADERS, flag::END_HEADERS, 7, &bomb)]);
    // The fields are decoded and dropped, and the response is 431.
    let status = u32::from_be_bytes(*b"\x03431");
    let answered = [(kind::HEADERS, 3, status), (kind::HEADERS, 7, status), reset(7, Reason::NoError)];
    assert_eq!(answers(&outcome), answered);
    // A head that does not end: many frames, or one field that does not end.
    let piece = frame(kind::CONTINUATION, 0, 3, &[0x82; 10]);
    let outcome = after_settings(&[vec![frame(kind::HEADERS, 0, 3, HEAD)], vec![piece; 10]].concat());
    assert_eq!(outcome.error, Some("client sent too many CONTINUATION frames"));
    let field = frame(kind::HEADERS, 0, 3, &[b"\x00\x01a\x7f\xff\xff\x03", &[b'x'; 5000][..]].concat());
    assert_eq!(after_settings(&[field]).error, Some("client sent too large header field"));
}

#[test]
fn an_end_in_order() {
    let mut core = Core::new(Settings { streams: 4, window: 70_000, head: 4000 });
    let give = |core: &mut Core, frames: &[Vec<u8>]| core.receive(&frames.concat()).unwrap().1;
    let arrived = give(&mut core, &[settings(&[]), frame(kind::HEADERS, END, 1, HEAD)]).unwrap();
    core.end_gracefully();
    core.end_gracefully();
    // A request that the client sent before it received our GOAWAY.
    let late = give(&mut core, &[frame(kind::HEADERS, END, 3, HEAD)]).unwrap();
    assert!(give(&mut core, &[frame(kind::PING, flag::ACK, 0, &PING)]).is_none());
    assert!(!core.is_over());
    // A request that it sent after receiving it, with a body.
    let ignored = [frame(kind::HEADERS, flag::END_HEADERS, 5, POST), frame(kind::DATA, 1, 5, b"x")];
    assert!(give(&mut core, &ignored).is_none());
    for arrived in [arrived, late] {
        assert!(!core.is_over());
        core.output.block(arrived.id, &[0x88], true);
        core.finish(arrived.key);
        core.close(arrived.key);
    }
    assert!(core.is_over() && core.error().is_none());
    let mut outcome = Outcome::default();
    outcome.output.extend_from_slice(core.output.first());
    let kinds = [(kind::WINDOW_UPDATE, 0), (kind::SETTINGS, 0), (kind::GOAWAY, 0), (kind::PING, 0), (kind::GOAWAY, 0)];
    let mut sent = Vec::new();
    let mut rest = &outcome.output[..];
    while let Some(head) = frame::Head::read(rest) {
        sent.push((head.kind, head.stream));
        rest = &rest[frame::HEAD + head.length..];
    }
    let expected = [&[(kind::SETTINGS, 0)], &kinds[..], &[(kind::HEADERS, 1), (kind::HEADERS, 3)]].concat();
    assert_eq!(sent, expected);
}

#[test]
fn a_client_that_acknowledges_nothing_is_told_the_last_request_too() {
    let mut core = Core::new(Settings { streams: 4, window: 70_000, head: 4000 });
    let mut served = Vec::new();
    for id in (1..100).step_by(2) {
        let begin = if id == 1 { settings(&[]) } else { Vec::new() };
        let arrived = core.receive(&[begin, frame(kind::HEADERS, END, id, HEAD)].concat()).unwrap().1;
        if id == 1 {
            core.end_gracefully();
        }
        let Some(arrived) = arrived else { break };
        served.push(id);
        core.output.block(arrived.id, &[0x88], true);
        core.finish(arrived.key);
        core.close(arrived.key);
    }
    // Its first one, as many as it may have at once, and as many again.
    assert_eq!(served, (1..=17).step_by(2).collect::<Vec<u32>>());
    assert!(core.is_over() && core.error().is_none());
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Core>() <= 512, "{}", size_of::<Core>());
}

/// Frames that are often valid.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0u32..8).prop_map(|n| 2 * n + 1), 1 => 0u32..4];
    let block = prop::collection::vec(
        prop_oneof![
            4 => Just(HEAD.to_vec()),
            2 => Just(b"\x40\x03x-a\x02bc".to_vec()),
            1 => Just(vec![0xbe]),
            1 => Just(b"\x0f\x0d\x015".to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..6),
        ],
        0..4,
    );
    let one = (stream, any::<u8>(), block, prop::collection::vec(any::<u8>(), 0..40), 0u8..24).prop_map(
        |(stream, flags, block, bytes, kind)| match kind {
            0..8 => frame(kind::HEADERS, END & (flags | flag::END_HEADERS), stream, &block.concat()),
            8..14 => frame(kind::DATA, flags & 9, stream, &bytes),
            14 => frame(kind::RST_STREAM, 0, stream, &[0; 4]),
            15 => settings(&[(flags.into(), 70_000)]),
            16 => frame(kind::PING, flags & 1, 0, &[flags; 8]),
            17 => frame(kind::WINDOW_UPDATE, 0, stream, &[0, 0, flags, 1]),
            18 => [frame(kind::HEADERS, 0, stream, &block.concat()), frame(kind::CONTINUATION, flags, stream, &bytes)]
                .concat(),
            _ => frame(kind % 12, flags, stream, &bytes),
        },
    );
    prop::collection::vec(one, 0..30).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(frames in frames(), sizes in prop::collection::vec(1usize..60, 1..8)) {
        let input = [settings(&[]), frames].concat();
        let whole = run(&input, &[]);
        prop_assert_eq!(&run(&input, &sizes), &whole);
        prop_assert_eq!(&run(&input, &[1]), &whole);
    }
}
