//! Texts with values of the request: `%[src]`, `%[req.hdr(Host)]`, `%ci`.

use super::nginx;

/// Whether a text can be a part of a variable's name. A second argument or a converter cannot.
fn is_name(text: &str, other: char) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || char == other)
}

/// The name of a field as a variable's name has it; none if it cannot.
pub fn field(name: &str) -> Option<String> {
    is_name(name, '-').then(|| name.to_ascii_lowercase().replace('-', "_"))
}

/// The variable of a fetch without its converters; none if there is no counterpart.
pub fn variable(fetch: &str) -> Option<String> {
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')')?.trim_matches('"').trim())),
        None => (fetch, None),
    };
    let header = |prefix: &str| Some(format!("{prefix}{}", field(argument?)?));
    let plain = |prefix: &str| argument.filter(|it| is_name(it, '_')).map(|it| format!("{prefix}{it}"));
    match name {
        "hdr" | "req.hdr" | "req.fhdr" => header("$http_"),
        "res.hdr" | "res.fhdr" | "shdr" => header("$upstream_http_"),
        "cook" | "req.cook" => plain("$cookie_"),
        "url_param" | "urlp" => plain("$arg_"),
        _ if argument.is_some() => None,
        "path" => Some("$request_path".into()),
        "url" | "capture.req.uri" | "pathq" => Some("$request_uri".into()),
        "base" => Some("$http_host$request_path".into()),
        "query" => Some("$args".into()),
        "method" | "capture.req.method" => Some("$request_method".into()),
        "src" => Some("$remote_addr".into()),
        "src_port" => Some("$remote_port".into()),
        "dst" => Some("$server_addr".into()),
        "dst_port" => Some("$server_port".into()),
        "ssl_fc_sni" => Some("$ssl_server_name".into()),
        "req.ssl_sni" | "req_ssl_sni" => Some("$ssl_preread_server_name".into()),
        "ssl_fc_protocol" => Some("$ssl_protocol".into()),
        "ssl_fc_cipher" => Some("$ssl_cipher".into()),
        "ssl_c_s_dn" => Some("$ssl_client_s_dn".into()),
        "hostname" => Some("$hostname".into()),
        "unique-id" | "uuid" => Some("$request_id".into()),
        "status" => Some("$status".into()),
        _ => None,
    }
}

/// The variable of a letter, as in `%ci`.
fn letters(name: &str) -> Option<&'static str> {
    let known = [
        ("ci", "$remote_addr"),
        ("cp", "$remote_port"),
        ("fi", "$server_addr"),
        ("fp", "$server_port"),
        ("HM", "$request_method"),
        ("HP", "$request_path"),
        ("HU", "$request_uri"),
        ("ID", "$request_id"),
        ("H", "$hostname"),
    ];
    known.iter().find(|(letters, _)| *letters == name).map(|(_, variable)| *variable)
}

/// A text of HAProxy as one with NGINX's variables; none if a part of it has no counterpart.
pub fn text(format: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find(['%', '$']) {
        out.push_str(&rest[..at]);
        let from = &rest[at..];
        if from.starts_with('$') {
            // nginx.conf has no way to write a dollar in a text with variables.
            return None;
        }
        if let Some(after) = from.strip_prefix("%%") {
            out.push('%');
            rest = after;
        } else if let Some(after) = from.strip_prefix("%[") {
            let (fetch, after) = after.split_once(']')?;
            out.push_str(&braced(&variable(fetch)?, after));
            rest = after;
        } else {
            let name: String = from[1..].chars().take_while(char::is_ascii_alphabetic).collect();
            let after = &from[1 + name.len()..];
            out.push_str(&braced(letters(&name)?, after));
            rest = after;
        }
    }
    out.push_str(rest);
    Some(out)
}

/// A variable before a text that would be taken for a part of its name.
fn braced(variable: &str, after: &str) -> String {
    let runs_on = after.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_');
    match variable.strip_prefix('$').filter(|name| runs_on && !name.contains('$')) {
        Some(name) => format!("${{{name}}}"),
        None => variable.to_string(),
    }
}

/// The same as a word of nginx.conf.
pub fn word(format: &str) -> Option<String> {
    text(format).map(|text| nginx::quoted(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_variables() {
        for (format, expected) in [
            ("plain", Some("plain")),
            ("%[src]", Some("$remote_addr")),
            ("https://%[req.hdr(Host)]%[path]", Some("https://$http_host$request_path")),
            ("100%%", Some("100%")),
            ("%ci:%cp", Some("$remote_addr:$remote_port")),
            ("%[method]x", Some("${request_method}x")),
            ("%[hdr(X-Forwarded-For)]", Some("$http_x_forwarded_for")),
            ("%[rand(100)]", None),
            ("%[src,lower]", None),
            ("%[hdr(host),regsub(a,b)]", None),
            ("%[hdr(x-forwarded-for,-1)]", None),
            ("%[hdr_ip(x-forwarded-for)]", None),
            ("%[hdr()]", None),
            ("%zz", None),
            ("costs $5", None),
            ("%[src", None),
        ] {
            assert_eq!(text(format).as_deref(), expected, "{format}");
        }
    }
}
