//! Messages of name servers: no panic, and what does not repeat the question is no answer to it.
#![no_main]

use balanza_resolver::{Kind, Question, Reading};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in [Kind::V4, Kind::V6, Kind::Service] {
        let question = Question::new("app.example.com", kind).unwrap();
        let _ = question.read(bytes);
        // The same with the question's own number, name (in random letters) and type, so that it may be the answer.
        let own = question.bytes();
        let mut message = bytes.to_vec();
        for place in [0..2, 12..33] {
            if let (Some(to), Some(from)) = (message.get_mut(place.clone()), own.get(place)) {
                to.copy_from_slice(from);
            }
        }
        if let Reading::Answer(response) = question.read(&message) {
            assert!(response.addresses.len() <= message.len() && response.targets.len() <= message.len());
        }
    }
});
