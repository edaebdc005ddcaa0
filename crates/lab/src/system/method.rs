//! The text of an algorithm, `NAME [param=value …] [key=TEXT]`, and NGINX's own spelling of it.

use balanza_balancing::registry::{self, Key, MethodError, Spec};

/// An algorithm with its parameters and the key that it goes by.
#[derive(Clone, Debug)]
pub struct Method {
    /// What the registry knows of it.
    pub spec: Spec,
    /// `key=`: what is hashed, with NGINX's variables.
    pub key: Option<String>,
    /// The parameters as written.
    given: Vec<String>,
}

impl Method {
    /// Reads the text. Errors say what may be meant.
    pub fn parse(text: &str) -> Result<Method, MethodError> {
        let method = registry::Method::parse(text)?;
        if let Some(error) = method.lacks_key() {
            return Err(error);
        }
        let key = method.key.map(|(_, key)| key.to_owned());
        let parameters = text.split_whitespace().enumerate().skip(1);
        let parameters = parameters.filter(|(number, _)| method.key.is_none_or(|(word, _)| word != *number));
        Ok(Method { spec: method.spec, key, given: parameters.map(|(_, word)| word.to_owned()).collect() })
    }

    /// Its name in the registry.
    pub fn name(&self) -> &'static str {
        self.spec.entry().name
    }

    /// What it goes by, if it goes by a key: the client's address unless the text says otherwise.
    pub fn key(&self) -> Option<&str> {
        match self.spec.entry().key {
            Key::Any => Some(self.key.as_deref().unwrap_or("$remote_addr")),
            Key::ClientAddress | Key::None => None,
        }
    }

    /// NGINX's directive, without the semicolon; "" where that is none. `None`: NGINX has no words for it.
    pub fn of_nginx(&self) -> Option<String> {
        let spec = &self.spec;
        match self.name() {
            "round_robin" => Some(String::new()),
            name @ ("least_conn" | "ip_hash" | "random") => Some(name.into()),
            "hash" if spec.number("balance_factor") == 0 => {
                let consistent = if spec.switch("consistent") { " consistent" } else { "" };
                self.key().map(|key| format!("hash {}{consistent}", word(key)))
            }
            "two_choices" if spec.number("choices") == 2 => Some(match spec.choice("by") {
                "least_conn" => "random two least_conn".into(),
                by => format!("random two least_time={by}"),
            }),
            "least_time" => {
                let inflight = if spec.switch("inflight") { " inflight" } else { "" };
                Some(format!("least_time {}{inflight}", spec.choice("by")))
            }
            _ => None,
        }
    }

    /// Balanza's directive, without the semicolon.
    pub fn of_balanza(&self) -> String {
        let mut text = format!("balance {}", self.name());
        for parameter in &self.given {
            text += &format!(" {}", word(parameter));
        }
        if let Some(key) = &self.key {
            text += &format!(" {}", word(&format!("key={key}")));
        }
        text
    }
}

/// A word of nginx.conf, in quotes where it needs them.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-$./:=,%?&@+~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings() {
        let cases = [
            ("round_robin", Some(""), "balance round_robin"),
            ("wrr", Some(""), "balance round_robin"),
            ("lc", Some("least_conn"), "balance least_conn"),
            ("ip_hash", Some("ip_hash"), "balance ip_hash"),
            ("random", Some("random"), "balance random"),
            ("p2c", Some("random two least_conn"), "balance two_choices"),
            ("two_choices by=header", Some("random two least_time=header"), "balance two_choices by=header"),
            ("two_choices choices=3", None, "balance two_choices choices=3"),
            (
                "least_time by=last_byte inflight",
                Some("least_time last_byte inflight"),
                "balance least_time by=last_byte inflight",
            ),
            ("hash key=$request_uri", Some("hash $request_uri"), "balance hash key=$request_uri"),
            ("hash  key=$uri  consistent", Some("hash $uri consistent"), "balance hash consistent key=$uri"),
            ("hash key=${uri};x", Some("hash \"${uri};x\""), "balance hash \"key=${uri};x\""),
            ("hash key=$uri balance_factor=150", None, "balance hash balance_factor=150 key=$uri"),
            ("bounded_load", None, "balance bounded_hash"),
            ("maglev key=$arg_user", None, "balance maglev key=$arg_user"),
            ("first", None, "balance first"),
        ];
        for (text, nginx, balanza) in cases {
            let method = Method::parse(text).unwrap();
            assert_eq!(method.of_nginx().as_deref(), nginx, "{text}");
            assert_eq!(method.of_balanza(), balanza, "{text}");
        }
        assert_eq!(Method::parse("maglev").unwrap().key(), Some("$remote_addr"));
        assert_eq!(Method::parse("ip_hash").unwrap().key(), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_may_be_meant() {
        let texts = [
            "",
            "lest_conn",
            "nothing",
            "least_conn key=$uri",
            "hash",
            "hash key=",
            "maglev key=a key=b",
            "hash consistnt key=a",
            "two_choices header",
            "two_choices choices=1",
            "two_choices rate=1",
            "random two",
            "maglev kay=$uri",
        ];
        let said: Vec<String> =
            texts.iter().map(|text| format!("{text}\n    {}", Method::parse(text).unwrap_err())).collect();
        insta::assert_snapshot!(said.join("\n"));
    }

    #[test]
    fn words_are_quoted_where_they_must_be() {
        assert_eq!(word("$request_uri"), "$request_uri");
        assert_eq!(word("/a b"), "\"/a b\"");
        assert_eq!(word(r#"a"b\"#), r#""a\"b\\""#);
        assert_eq!(word(""), "\"\"");
    }
}
