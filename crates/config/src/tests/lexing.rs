//! Words, quotes, escapes, and what is wrong with them.

use proptest::prelude::*;

use crate::lexer::{LexError, Lexer, Token};

/// Tokens in short: words, then ";", "{" or "}"; errors apart.
fn lex(text: &[u8]) -> (Vec<Vec<String>>, Vec<LexError>) {
    let mut lexer = Lexer::new(text, 0, false);
    let (mut tokens, mut errors) = (Vec::new(), Vec::new());
    loop {
        let (words, end) = match lexer.next(&mut errors) {
            Token::Directive(words) => (words, ";"),
            Token::BlockStart(words, _) => (words, "{"),
            Token::BlockEnd(_) => (Vec::new(), "}"),
            Token::End(_) => return (tokens, errors),
        };
        let mut words: Vec<String> = words.iter().map(crate::lexer::Word::text).collect();
        words.push(end.into());
        tokens.push(words);
    }
}

#[test]
fn words() {
    let table: [(&str, &[&[&str]]); 17] = [
        ("a b;", &[&["a", "b", ";"]]),
        ("a b;c d;", &[&["a", "b", ";"], &["c", "d", ";"]]),
        ("a\t\r\n b ;", &[&["a", "b", ";"]]),
        ("a{b c;}", &[&["a", "{"], &["b", "c", ";"], &["}"]]),
        ("a # b ; {\n c;", &[&["a", "c", ";"]]),
        ("a b#c;", &[&["a", "b#c", ";"]]),
        ("a \"b c\" 'd ; {' \"\";", &[&["a", "b c", "d ; {", "", ";"]]),
        (r#"a "b\"c\\d\te\r\nf\g" 'it\'s';"#, &[&["a", "b\"c\\d\te\r\nf\\g", "it's", ";"]]),
        (r"a b\ c\;d\{e;", &[&["a", "b\\ c\\;d\\{e", ";"]]),
        (r"a \\.php$ b\tc;", &[&["a", "\\.php$", "b\tc", ";"]]),
        ("a ${b}c;", &[&["a", "${b}c", ";"]]),
        ("a x${b} {", &[&["a", "x${b}", "{"]]),
        ("a $b{", &[&["a", "$b", "{"]]),
        ("a b'c;", &[&["a", "b'c", ";"]]),
        ("a b\"c d\";", &[&["a", "b\"c", "d\"", ";"]]),
        ("a b}c;", &[&["a", "b}c", ";"]]),
        ("if (\"a\") { }", &[&["if", "(\"a\")", "{"], &["}"]]),
    ];
    for (text, tokens) in table {
        let (found, errors) = lex(text.as_bytes());
        assert!(errors.is_empty(), "{text}: {errors:?}");
        let tokens: Vec<Vec<String>> = tokens.iter().map(|t| t.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(found, tokens, "{text}");
    }
}

#[test]
fn errors() {
    let table = [
        (";", "unexpected \";\"", 0),
        ("{", "unexpected \"{\"", 0),
        ("a \"b\"c;", "unexpected \"c\"", 5),
        ("a b }", "unexpected \"}\"", 4),
        ("a b", "unexpected end of file, expecting \";\" or \"}\"", 0),
        ("a \"b;", "unexpected end of file, expecting \";\" or \"}\"", 2),
        ("a b\\", "unexpected end of file, expecting \";\" or \"}\"", 0),
    ];
    for (text, message, at) in table {
        let (_, errors) = lex(text.as_bytes());
        assert_eq!((errors[0].message.as_str(), errors[0].span.start), (message, at), "{text}");
    }
    for text in ["a \"b;", "a \"b", "a 'b"] {
        assert_eq!(lex(text.as_bytes()).1.len(), 1, "{text}: said once");
    }
    let (tokens, errors) = lex(b"\xEF\xBB\xBFa b;");
    assert_eq!(tokens, [["a", "b", ";"]], "read on behind the mark");
    assert!(errors.len() == 1 && errors[0].message.contains("byte order mark"), "{errors:?}");
    let long = format!("a \"{}", "x".repeat(5000));
    let message = "too long parameter, probably missing terminating \"\"\" character";
    assert_eq!(lex(long.as_bytes()).1.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), [message]);
    let long = format!("a {};", "x".repeat(5000));
    let message = "too long parameter \"xxxxxxxxxx...\" started";
    assert_eq!(lex(long.as_bytes()).1.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), [message]);
    // The longest that NGINX's buffer holds.
    assert!(lex(format!("a \"{}\";", "x".repeat(4000)).as_bytes()).1.is_empty());
}

/// A word in quotes, in a way that the lexer reads back.
fn quote(word: &[u8], mark: u8) -> Vec<u8> {
    let mut out = vec![mark];
    for byte in word {
        if matches!(byte, b'"' | b'\'' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(mark);
    out
}

proptest! {
    #[test]
    fn printed_words_are_read_back(
        directives in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 1..5), 0..6),
        single in any::<bool>(),
    ) {
        let mark = if single { b'\'' } else { b'"' };
        let mut text = Vec::new();
        for words in &directives {
            for word in words {
                text.extend(quote(word, mark));
                text.push(b' ');
            }
            text.extend(b";\n");
        }
        let mut lexer = Lexer::new(&text, 0, false);
        let mut errors = Vec::new();
        for words in &directives {
            let Token::Directive(found) = lexer.next(&mut errors) else { panic!("no directive") };
            let found: Vec<Vec<u8>> = found.into_iter().map(|word| word.value).collect();
            prop_assert_eq!(&found, words);
        }
        prop_assert!(matches!(lexer.next(&mut errors), Token::End(_)));
        prop_assert!(errors.is_empty());
    }

    #[test]
    fn any_bytes_are_lexed(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (tokens, errors) = lex(&text);
        prop_assert!(tokens.len() + errors.len() <= text.len() + 2);
        for error in errors {
            prop_assert!(error.span.start as usize <= text.len() && error.span.end as usize <= text.len() + 1);
        }
    }
}
