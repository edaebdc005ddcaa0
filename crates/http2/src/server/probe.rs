//! Feeds a connection with bytes in pieces of any size, for tests and fuzzing. The result must not depend on the sizes.

use super::Settings;
use super::core::{Arrived, Core};
use super::frame::Reason;
use super::streams::Key;

/// The result of some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The heads of requests, with their stream numbers.
    pub heads: Vec<(u32, Vec<u8>)>,
    /// The received part of each body, and whether it is complete.
    pub bodies: Vec<(u32, Vec<u8>, bool)>,
    /// The frames that were sent to the client.
    pub output: Vec<u8>,
    /// Why the connection was closed.
    pub error: Option<&'static str>,
    /// Bytes that were processed.
    pub read: usize,
}

/// Feeds these bytes in pieces of these sizes, which repeat. A request's answer depends only on its stream number.
///
/// # Panics
/// The connection holds more streams or bytes than it may.
pub fn run(input: &[u8], sizes: &[usize]) -> Outcome {
    let mut core = Core::new(Settings { streams: 4, window: 1000, head: 4000 });
    let mut outcome = Outcome::default();
    let mut keys: Vec<(u32, Key)> = Vec::new();
    let (mut given, mut sizes) = (0, sizes.iter().cycle());
    drain(&mut core, &mut outcome.output);
    while given < input.len() && outcome.error.is_none() && !core.is_over() {
        let size = sizes.next().copied().unwrap_or(usize::MAX).max(1);
        given = given.saturating_add(size).min(input.len());
        loop {
            match core.receive(&input[outcome.read..given]) {
                Ok((read, arrived)) => {
                    outcome.read += read;
                    let is_stuck = read == 0 && arrived.is_none();
                    if let Some(arrived) = arrived {
                        serve(&mut core, arrived, &mut outcome, &mut keys);
                    }
                    drain(&mut core, &mut outcome.output);
                    if is_stuck || core.is_over() {
                        break;
                    }
                }
                Err(fatal) => {
                    outcome.error = Some(fatal.text);
                    // How many bytes were processed before the faulty frame depends on the sizes.
                    outcome.read = 0;
                    core.fail(fatal);
                    drain(&mut core, &mut outcome.output);
                    break;
                }
            }
        }
        assert!(core.streams.len() <= 8, "more streams than allowed");
        assert!(
            given - outcome.read < 9 + 16_384 || outcome.error.is_some() || core.is_over(),
            "a whole frame is left"
        );
    }
    for (id, key) in keys {
        if let Some(stream) = core.streams.at(key).filter(|stream| !stream.reset) {
            assert!(stream.unread().len() <= 65_535, "more than the window");
            outcome.bodies.push((id, stream.unread().to_vec(), stream.received));
        }
        core.close(key);
    }
    assert_eq!(core.streams.len(), 0);
    assert_eq!(core.streams.open, 0);
    outcome
}

fn serve(core: &mut Core, arrived: Arrived, outcome: &mut Outcome, keys: &mut Vec<(u32, Key)>) {
    let Arrived { head, key, id, .. } = arrived;
    outcome.heads.push((id, head.text));
    match id % 16 {
        // Answered at once, even if the body has not arrived.
        1 | 11 => {
            core.output.block(id, &[0x88], true);
            core.finish(key);
            core.close(key);
        }
        5 => core.give_up(id, Reason::InternalError),
        _ => keys.push((id, key)),
    }
    if id % 16 == 5 {
        core.close(key);
    }
}

fn drain(core: &mut Core, output: &mut Vec<u8>) {
    while !core.output.is_empty() {
        let length = core.output.first().len();
        output.extend_from_slice(core.output.first());
        core.output.wrote(length);
    }
}
