//! The text that selects an algorithm: `NAME [PARAMETER[=VALUE] …] [key=TEXT]`, for all programs that read one.

use super::nearest::nearest;
use crate::registry::{self, PROGRAM};
use crate::spec::{Entry, Key, Kind, ParameterError, Spec};

/// The parameter with the key.
const KEY: &str = "key";

/// An algorithm as a user has selected it.
#[derive(Clone, Debug)]
pub struct Method<'a> {
    /// The algorithm with its parameters.
    pub spec: Spec,
    /// The text after `key=`, which is not empty, and the number of its word.
    pub key: Option<(usize, &'a str)>,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct MethodError {
    /// The number of the word that is wrong, the name's is 0; `None` if something is missing.
    pub word: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl<'a> Method<'a> {
    /// Reads a text whose words are separated by spaces. The error is the first one.
    pub fn parse(text: &'a str) -> Result<Method<'a>, MethodError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Method::of_words(&words).map_err(|mut errors| errors.swap_remove(0))
    }

    /// Reads a text in words, the name first. All errors are reported; there is at least one.
    pub fn of_words(words: &[&'a str]) -> Result<Method<'a>, Vec<MethodError>> {
        let Some((name, rest)) = words.split_first() else {
            return Err(vec![missing("an algorithm is missing", "an example is least_conn")]);
        };
        let entry = registry::find(name).ok_or_else(|| vec![unknown(name)])?;
        let (mut errors, mut key, mut given) = (Vec::new(), None, Vec::new());
        for (number, word) in (1..).zip(rest) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name != KEY {
                given.push((number, name, value));
            } else if let Err((message, hint)) = check_key(entry, key, value) {
                errors.push(MethodError { word: Some(number), message, hint });
            } else {
                key = Some((number, value));
            }
        }
        let spec = loop {
            let parameters: Vec<(&str, &str)> = given.iter().map(|(_, name, value)| (*name, *value)).collect();
            let error = match Spec::new(entry, &parameters) {
                Ok(spec) => break spec,
                Err(error) => error,
            };
            // The wrong parameter is reported and left out, until the others are right.
            let (at, hint) = match &error {
                ParameterError::Unknown { name, .. } => {
                    (given.iter().position(|given| *given.1 == **name), Some(known_parameters(entry, name)))
                }
                ParameterError::Invalid { name, .. } => (given.iter().position(|given| given.1 == *name), None),
                ParameterError::Duplicate(name) => (given.iter().rposition(|given| given.1 == *name), None),
            };
            let word = at.map(|at| given.remove(at).0);
            errors.push(MethodError { word, message: error.to_string(), hint });
            if word.is_none() {
                return Err(errors);
            }
        };
        if errors.is_empty() && spec.lacks_program() {
            let hint = format!("add the program: \"{PROGRAM}=/path/to/program argument\"");
            errors.push(missing(&format!("\"{}\" needs a \"{PROGRAM}\"", entry.name), &hint));
        }
        errors.sort_by_key(|error| error.word);
        if errors.is_empty() { Ok(Method { spec, key }) } else { Err(errors) }
    }

    /// The error of an algorithm that needs a key and has none. Programs that have keys of their own do not ask.
    pub fn lacks_key(&self) -> Option<MethodError> {
        let entry = self.spec.entry();
        (entry.needs_key && self.key.is_none()).then(|| {
            let hint = "add what is hashed: key=$request_uri, key=$cookie_session, …";
            missing(&format!("\"{}\" needs a \"{KEY}\"", entry.name), hint)
        })
    }
}

fn missing(message: &str, hint: &str) -> MethodError {
    MethodError {
        word: None,
        message: message.into(),
        hint: Some(hint.into()).filter(|hint: &String| !hint.is_empty()),
    }
}

/// The error for a name that no algorithm has, with the nearest name.
pub fn unknown(name: &str) -> MethodError {
    let word = name.to_lowercase().replace('-', "_");
    let names = || registry::entries().iter().map(|entry| entry.name);
    let aliases = registry::entries().iter().flat_map(|entry| entry.aliases.iter().copied());
    let near = registry::find(&word).map(|_| word.as_str()).or_else(|| nearest(&word, names().chain(aliases)));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
    };
    MethodError { word: Some(0), message: format!("unknown balancing algorithm \"{name}\""), hint: Some(hint) }
}

/// Whether `value` may be the algorithm's key.
fn check_key(entry: &Entry, before: Option<(usize, &str)>, value: &str) -> Result<(), (String, Option<String>)> {
    let hint = match entry.key {
        Key::Any if before.is_some() => return Err((format!("duplicate parameter \"{KEY}\""), None)),
        Key::Any if value.is_empty() => return Err(("the key is empty".into(), None)),
        Key::Any => return Ok(()),
        Key::ClientAddress => "its key is always the client's address",
        Key::None => "it does not use a key",
    };
    Err((format!("{} takes no key", entry.name), Some(hint.into())))
}

/// What may be meant by an unknown parameter.
fn known_parameters(entry: &Entry, name: &str) -> String {
    let of_choice = entry.parameters.iter().find(|p| matches!(p.kind, Kind::Choice(words) if words.contains(&name)));
    if let Some(parameter) = of_choice {
        return format!("did you mean `{}={name}`?", parameter.name);
    }
    let key = (entry.key == Key::Any).then_some(KEY);
    if let Some(near) = nearest(name, entry.parameters.iter().map(|parameter| parameter.name).chain(key)) {
        return format!("did you mean `{near}`?");
    }
    let parameters = entry.parameters.iter().map(|parameter| match parameter.kind {
        Kind::Switch => parameter.name.to_string(),
        _ => format!("{}={}", parameter.name, parameter.default),
    });
    let list: Vec<String> = parameters.chain(key.map(|_| format!("{KEY}=$remote_addr"))).collect();
    match list.as_slice() {
        [] => "it has no parameters".to_string(),
        _ => format!("it has {}", list.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parameters_and_a_key_are_read() {
        let method = Method::parse("  lc ").unwrap();
        assert_eq!((format!("{:?}", method.spec), method.key), ("least_conn".into(), None));
        let method = Method::parse("hash consistent key=$a=b balance_factor=150").unwrap();
        let spec = "hash consistent=on balance_factor=150";
        assert_eq!((format!("{:?}", method.spec), method.key), (spec.into(), Some((2, "$a=b"))));
        assert_eq!(method.lacks_key(), None);
        let error = Method::parse("hash").unwrap().lacks_key().unwrap();
        assert_eq!((error.word, error.message.as_str()), (None, "\"hash\" needs a \"key\""));
        assert_eq!(Method::parse("maglev").unwrap().lacks_key(), None, "its key is the client's address");
    }

    /// Errors have the place, the message and the hint.
    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        for (text, word, error) in [
            ("", None, "an algorithm is missing; an example is least_conn"),
            ("lest_conn", Some(0), "unknown balancing algorithm \"lest_conn\"; did you mean `least_conn`?"),
            ("Least-Conn", Some(0), "unknown balancing algorithm \"Least-Conn\"; did you mean `least_conn`?"),
            ("least_conn key=$uri", Some(1), "least_conn takes no key; it does not use a key"),
            ("ip_hash key=$uri", Some(1), "ip_hash takes no key; its key is always the client's address"),
            ("hash key=", Some(1), "the key is empty"),
            ("maglev key=a key=b", Some(2), "duplicate parameter \"key\""),
            ("maglev kay=$uri", Some(1), "maglev has no parameter \"kay\"; did you mean `key`?"),
            ("hash key=a consistnt", Some(2), "hash has no parameter \"consistnt\"; did you mean `consistent`?"),
            ("two_choices header", Some(1), "two_choices has no parameter \"header\"; did you mean `by=header`?"),
            ("two_choices rate=1", Some(1), "two_choices has no parameter \"rate\"; it has by=least_conn, choices=2"),
            ("random two", Some(1), "random has no parameter \"two\"; it has no parameters"),
            ("two_choices choices=1", Some(1), "invalid value \"1\" of \"choices\": a number from 2 to 16 expected"),
            ("two_choices by=header choices=3 by=header", Some(3), "duplicate parameter \"by\""),
            (
                "external",
                None,
                "\"external\" needs a \"program\"; add the program: \"program=/path/to/program argument\"",
            ),
        ] {
            let found = Method::parse(text).unwrap_err();
            assert_eq!((found.word, found.to_string().as_str()), (word, error), "{text}");
        }
        assert!(Method::parse("nonsense").unwrap_err().hint.unwrap().starts_with("there are: round_robin, "));
    }

    #[test]
    fn all_errors_are_reported() {
        let errors = Method::of_words(&["two_choices", "rate=1", "by=header", "key=a", "choices=1", "by=header"]);
        let errors: Vec<_> = errors.unwrap_err().iter().map(|error| error.word).collect();
        assert_eq!(errors, [Some(1), Some(3), Some(4), Some(5)]);
    }
}
