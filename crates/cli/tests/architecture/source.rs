//! Files of Rust, and what of their text is code.

use std::path::Path;

/// A file.
pub struct Source {
    /// Its path below `crates`, with `/`.
    pub path: String,
    pub text: String,
}

/// Adds the files of Rust below a directory.
pub fn read(root: &Path, directory: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            sources.push(Source { path: path.strip_prefix(root).unwrap().to_str().unwrap().into(), text });
        }
    }
}

impl Source {
    /// The text with blanks for comments and for what stands in quotes.
    pub fn code(&self) -> String {
        blanked(&self.text, true)
    }

    /// The text without comments and without modules that only tests have.
    pub fn without_tests(&self) -> String {
        let (code, mut text) = (self.code(), blanked(&self.text, false).into_bytes());
        for range in test_modules(&code) {
            text[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// [`Source::code`] without modules that only tests have.
    pub fn code_without_tests(&self) -> String {
        Source { path: String::new(), text: self.without_tests() }.code()
    }

    /// The path of its module: where its own modules are.
    pub fn directory(&self) -> String {
        let path = self.path.trim_end_matches(".rs");
        let root = ["/mod", "/lib", "/main"].iter().find_map(|root| path.strip_suffix(root));
        root.map_or_else(|| path.to_string(), |path| path.to_string() + "/").trim_end_matches("//").to_string()
    }
}

/// The paths, without their ends, of modules in files of their own that only tests have.
pub fn test_files<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Vec<String> {
    let of_file = |file: &Source| {
        let (code, directory) = (file.code(), file.directory());
        let declared = code.split("#[cfg(test)]").skip(1).filter_map(|rest| rest.trim_start().strip_prefix("mod "));
        let names = declared.filter_map(|rest| rest.split_once([';', '{'])).map(|(name, _)| name.trim());
        names.map(|name| format!("{}/{name}", directory.trim_end_matches('/'))).collect::<Vec<_>>()
    };
    let ends = |path: String| [format!("{path}.rs"), format!("{path}/")];
    sources.into_iter().flat_map(of_file).flat_map(ends).collect()
}

/// Identifiers and numbers.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The bytes of modules with `#[cfg(test)]`.
fn test_modules(code: &str) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    for (start, mark) in code.match_indices("#[cfg(test)]") {
        let rest = &code[start + mark.len()..];
        let end = rest.find(['{', ';']).unwrap_or(rest.len());
        if !words(&rest[..end]).any(|word| word == "mod") || !rest[end..].starts_with('{') {
            continue;
        }
        let mut depth = 0usize;
        let closed = rest[end..].char_indices().find(|(_, c)| {
            depth = match c {
                '{' => depth + 1,
                '}' => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        let length = closed.map_or(rest.len() - end, |(at, _)| at + 1);
        ranges.push(start..start + mark.len() + end + length);
    }
    ranges
}

/// Blanks of the same length for comments, and for what stands in quotes if `quoted`.
fn blanked(text: &str, quoted: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut blank = |from: usize, to: usize| {
        out[from..to.min(bytes.len())].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    };
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let hashes = rest.iter().skip(1).take_while(|byte| **byte == b'#').count();
        let begins_word =
            i == 0 || !bytes[i - 1].is_ascii_alphanumeric() && bytes[i - 1] != b'_' || bytes[i - 1] == b'b';
        if rest.starts_with(b"//") {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            blank(i, i + end);
            i += end;
        } else if rest.starts_with(b"/*") {
            let end = find(rest, b"*/").map_or(rest.len(), |at| at + 2);
            blank(i, i + end);
            i += end;
        } else if rest[0] == b'r' && begins_word && rest.get(1 + hashes) == Some(&b'"') {
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let begin = hashes + 2;
            let end = find(&rest[begin..], &close).map_or(rest.len(), |at| begin + at);
            if quoted {
                blank(i + begin, i + end);
            }
            i += (end + close.len()).min(rest.len());
        } else if rest[0] == b'"' {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            if quoted {
                blank(i + 1, i + end);
            }
            i += end + 1;
        } else if rest[0] == b'\'' {
            // A character in quotes; anything else is a lifetime.
            let end = match rest.get(1) {
                Some(b'\\') => find(&rest[3..], b"'").map(|at| at + 3),
                Some(_) => find(&rest[1..rest.len().min(7)], b"'").map(|at| at + 1).filter(|at| *at > 1),
                None => None,
            };
            let is_char =
                end.filter(|end| rest[1] == b'\\' || String::from_utf8_lossy(&rest[1..*end]).chars().count() == 1);
            if let Some(end) = is_char {
                blank(i + 1, i + end);
            }
            i += is_char.map_or(1, |end| end + 1);
        } else {
            i += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[test]
fn comments_and_quotes_are_blank() {
    let source = |text: &str| Source { path: String::new(), text: text.into() };
    let text = "a // b\nc(\"d \\\" e\", 'f', b'\\'', r#\"g\"#) /* h */ <'i> '\"' \"j\"";
    let code = source(text).code();
    assert_eq!((words(&code).collect::<Vec<_>>(), code.len()), (vec!["a", "c", "b", "r", "i"], text.len()));
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { { \"}\" } }\n}\nfn c() { \"d\" }\n#[cfg(test)]\nmod e;";
    let file = source(text);
    let (left, code) = (file.without_tests(), file.code_without_tests());
    assert_eq!(
        words(&left).filter(|word| *word != "fn").collect::<Vec<_>>(),
        ["a", "c", "d", "cfg", "test", "mod", "e"]
    );
    assert!(!code.contains('b') && !code.contains("\"d\""), "{code}");
    let file = Source { path: "a/src/x.rs".into(), text: text.into() };
    assert_eq!(test_files([&file]), ["a/src/x/tests.rs", "a/src/x/tests/", "a/src/x/e.rs", "a/src/x/e/"]);
}
