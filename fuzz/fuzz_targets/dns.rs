//! Messages of name servers: no panic, and what does not repeat the question is no answer to it.
#![no_main]

use balanza_resolver::{Kind, Question, Reading};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in [Kind::V4, Kind::V6, Kind::Service] {
        let question = Question::new("app.example.com", kind).unwrap();
        let _ = question.read(bytes);
        // The same with the question's own number and name in front.
        let mut message = question.bytes();
        let common = message.len().min(bytes.len());
        for (place, byte) in message.iter_mut().zip(&bytes[..common]).skip(2) {
            *place ^= byte;
        }
        message.extend_from_slice(&bytes[common..]);
        if let Reading::Answer(response) = question.read(&message) {
            assert!(response.addresses.len() <= message.len() && response.targets.len() <= message.len());
        }
    }
});
