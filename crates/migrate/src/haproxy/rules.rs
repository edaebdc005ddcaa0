//! `http-request`, `http-response`, `redirect` and `tcp-request`.

use super::condition::{self, Condition};
use super::fields::Change;
use super::format;
use super::lines::Line;
use super::nginx::quoted;

/// What is done with a request or a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Answers: the arguments of `return`.
    Return(String),
    /// Another value of a field of the request.
    RequestField(Change),
    /// Another value of a field of the response.
    ResponseField(Change),
    /// Closes connections from these addresses, or from all others.
    Reject,
    /// Ends the rules of the connection.
    Accept,
}

/// A rule and its condition.
///
/// # Errors
/// What has no counterpart.
pub fn read(line: &Line) -> Result<(Rule, Option<Condition>), String> {
    let at = line.words.iter().position(|word| word == "if" || word == "unless").unwrap_or(line.words.len());
    let words: Vec<&str> = line.words[..at].iter().map(String::as_str).collect();
    if let ["tcp-request", "content", "accept"] = words[..] {
        return Ok((Rule::Accept, None));
    }
    let condition = condition::read(line.from(at))?;
    let change = |name: &str, value: Option<&str>, adds| {
        let value = value.map(|value| format::text(value).ok_or("a part of the text has no counterpart"));
        Ok::<_, String>(Change { name: name.into(), value: value.transpose()?, adds })
    };
    let rule = match words[..] {
        ["http-request", "deny", ref rest @ ..] => Rule::Return(denied(rest)?),
        ["http-request", "tarpit", ..] => Rule::Return("429".into()),
        ["http-request", "return", ref rest @ ..] => Rule::Return(answer(rest)?),
        ["http-request", "redirect", ref rest @ ..] | ["redirect", ref rest @ ..] => Rule::Return(redirect(rest)?),
        ["http-request", kind @ ("set-header" | "add-header"), name, value] => {
            Rule::RequestField(change(name, Some(value), kind == "add-header")?)
        }
        ["http-request", "del-header", name] => Rule::RequestField(change(name, None, false)?),
        ["http-response", kind @ ("set-header" | "add-header"), name, value] => {
            Rule::ResponseField(change(name, Some(value), kind == "add-header")?)
        }
        ["http-response", "del-header", name] => Rule::ResponseField(change(name, None, false)?),
        ["tcp-request", "connection" | "content", "reject"] => Rule::Reject,
        _ => return Err("has no counterpart".into()),
    };
    Ok((rule, condition))
}

/// `deny [deny_status N]`.
fn denied(words: &[&str]) -> Result<String, String> {
    match words {
        [] => Ok("403".into()),
        ["deny_status" | "status", status, ..] => number(status),
        _ => Err("has no counterpart".into()),
    }
}

fn number(text: &str) -> Result<String, String> {
    text.parse::<u16>().map(|status| status.to_string()).map_err(|_| format!("the status \"{text}\" is wrong"))
}

/// `return [status N] [content-type T] [string S | lf-string S]`.
fn answer(words: &[&str]) -> Result<String, String> {
    let (mut status, mut text) = ("200".to_string(), None);
    for pair in words.chunks(2) {
        match pair {
            ["status", value] => status = number(value)?,
            // The default type is text/plain.
            ["content-type", _] => {}
            ["string", value] if !value.contains('$') => text = Some(quoted(value)),
            ["lf-string", value] => text = Some(format::word(value).ok_or("a part of the text has no counterpart")?),
            _ => return Err("has no counterpart".into()),
        }
    }
    Ok(text.map_or(status.clone(), |text| format!("{status} {text}")))
}

/// `redirect scheme S | location L | prefix P [code N] [drop-query] …`.
fn redirect(words: &[&str]) -> Result<String, String> {
    let (mut code, mut target, mut query) = ("302".to_string(), None, true);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "code" => code = number(rest.next().copied().unwrap_or_default())?,
            "drop-query" => query = false,
            kind @ ("scheme" | "location" | "prefix") => {
                let value = rest.next().copied().unwrap_or_default();
                target = Some((kind, format::text(value).ok_or("a part of the text has no counterpart")?));
            }
            other => return Err(format!("\"{other}\" has no counterpart")),
        }
    }
    let (kind, value) = target.filter(|(_, value)| !value.is_empty()).ok_or("a redirect without a target")?;
    let uri = if query { "$request_uri" } else { "$request_path" };
    let target = match kind {
        "scheme" => format!("{value}://$host{uri}"),
        "prefix" if value == "/" => uri.to_string(),
        "prefix" => format!("{value}{uri}"),
        _ => value,
    };
    Ok(format!("{code} {}", quoted(&target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Rule, String> {
        let words = text.split(' ').map(str::to_string).collect();
        read(&Line { words, ..Line::default() }).map(|(rule, _)| rule)
    }

    #[test]
    fn rules_are_directives() {
        let returned = |text: &str| Ok(Rule::Return(text.into()));
        assert_eq!(of("http-request deny if a"), returned("403"));
        assert_eq!(of("http-request deny deny_status 429"), returned("429"));
        assert_eq!(
            of("http-request redirect scheme https code 301 unless { ssl_fc }"),
            returned("301 https://$host$request_uri")
        );
        assert_eq!(of("redirect prefix https://b.test"), returned("302 https://b.test$request_uri"));
        assert_eq!(of("redirect location /new code 307 if x"), returned("307 /new"));
        assert_eq!(of("http-request return status 200 content-type text/plain string ok"), returned("200 ok"));
        assert_eq!(
            of("http-request set-header X-Real %[src]"),
            Ok(Rule::RequestField(Change { name: "X-Real".into(), value: Some("$remote_addr".into()), adds: false }))
        );
        assert_eq!(
            of("http-response del-header Server"),
            Ok(Rule::ResponseField(Change { name: "Server".into(), value: None, adds: false }))
        );
        for wrong in [
            "http-request lua.x",
            "http-request deny hdr a b",
            "redirect location",
            "http-request set-header A %[rand]",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
