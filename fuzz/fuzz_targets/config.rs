//! Configurations: no panic, a configuration exactly if there is no error, and every problem can be printed. A line
//! "\0NAME" starts another file, so that `include` is reached too.
#![no_main]

use balanza_config::{Bundle, Options, Severity, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut files = Bundle::default();
    let mut name = "/n.conf".to_string();
    let mut text: Vec<u8> = Vec::new();
    let mut others = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if let Some(next) = line.strip_prefix(b"\0") {
            files.add_file(name, std::mem::take(&mut text));
            name = format!("/{}", String::from_utf8_lossy(next).trim());
            others.push(name.clone().into());
        } else {
            text.extend_from_slice(line);
        }
    }
    files.add_file(name, text);
    files.add_glob("/*.conf", others);
    files.add_host("localhost", vec![[127, 0, 0, 1].into(), [0u16, 0, 0, 0, 0, 0, 0, 1].into()]);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(config.is_some(), !failed);
    for problem in &problems {
        assert!(!problem.render(true).is_empty() && !problem.to_string().is_empty());
    }
});
