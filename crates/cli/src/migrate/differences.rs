//! The rows of docs/nginx-differences.md that a configuration touches.

const PAGE: &str = include_str!("../../../../docs/nginx-differences.md");

/// A row: what behaves otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The behaviour.
    pub what: String,
    /// NGINX's.
    pub nginx: String,
    /// Balanza's.
    pub balanza: String,
}

/// By the beginning of a row: the directives that touch it, or "~" and a part of any word. A row without any holds for
/// all configurations.
const TOUCHED_BY: [(&str, &[&str]); 39] = [
    ("workers", &[]),
    ("reload", &["worker_priority", "worker_rlimit_core", "working_directory", "env"]),
    ("environment of the worker", &["env"]),
    ("core files of processes with keys", &["worker_rlimit_core"]),
    // These are reported one by one.
    ("unsupported directives", &["~\0"]),
    ("`proxy_cache ZONE`", &["proxy_cache"]),
    ("`$upstream_cache_status`", &["~$upstream_cache_status"]),
    ("`open_file_cache`", &["open_file_cache"]),
    ("`open_log_file_cache`", &["open_log_file_cache"]),
    ("`fail_timeout=10s`", &["~fail_timeout="]),
    ("a server without a time in `least_time`", &["least_time"]),
    ("UDP: a server's port is closed", &["~udp"]),
    ("UDP: long answers", &["~udp"]),
    ("UDP without `reuseport`", &["~udp"]),
    ("UDP over a reload", &["~udp"]),
    ("`$bytes_received` with", &["ssl_preread"]),
    ("`error_log memory:`", &["~memory:"]),
    ("`debug_connection`", &["debug_connection"]),
    ("a host in a variable", &["resolver"]),
    ("one of the queries for IPv4 and IPv6", &["resolver"]),
    ("one of several name servers", &["resolver"]),
    ("a name server cannot read a query", &["resolver"]),
    ("first requests after a start with `resolve`", &["resolver"]),
    ("`hash … consistent` of a name", &["resolver"]),
    ("a page of `ssi`", &["ssi"]),
    ("a part of a page whose server", &["ssi"]),
    ("blocks of pages", &["ssi"]),
    ("subrequests of `ssi`", &["ssi"]),
    ("variables that a part of a page sets", &["ssi"]),
    ("`ntlm` and clients of HTTP/2", &["ntlm"]),
    ("`ntlm` and an `Authorization`", &["ntlm"]),
    ("`Server` field", &[]),
    ("`server_tokens \"TEXT\"`", &["server_tokens"]),
    ("built-in pages", &[]),
    ("a field of `add_header` whose value", &["add_header"]),
    ("fields of `add_header` of a 416", &["add_header"]),
    ("`#fragment`", &[]),
    ("a head whose lines end in LF", &[]),
    ("requests whose framing is ambiguous", &[]),
];

/// The rows of the page's first table.
fn rows() -> Vec<Difference> {
    let table =
        PAGE.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    table
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string());
            Some(Difference { what: cells.next()?, nginx: cells.next()?, balanza: cells.next()? })
        })
        .collect()
}

/// Those that these directives touch, of each its words.
pub fn of(statements: &[Vec<String>]) -> Vec<Difference> {
    let touches = |trigger: &&str| match trigger.strip_prefix('~') {
        Some(part) => statements.iter().any(|it| it.iter().any(|word| word.contains(part))),
        None => statements.iter().any(|it| it[0] == **trigger),
    };
    let is_touched = |row: &Difference| match TOUCHED_BY.iter().find(|(start, _)| row.what.starts_with(start)) {
        Some((_, triggers)) => triggers.is_empty() || triggers.iter().any(touches),
        None => true,
    };
    rows().into_iter().filter(is_touched).collect()
}

#[cfg(test)]
mod tests {
    use balanza_config::{Bundle, Options, statements};

    use super::*;

    #[test]
    fn the_table_of_the_page_is_known() {
        let rows = rows();
        assert!(rows.len() > 20, "{}", rows.len());
        for (start, _) in TOUCHED_BY {
            assert!(rows.iter().any(|row| row.what.starts_with(start)), "docs/nginx-differences.md has no row {start}");
        }
        for row in &rows {
            let known = TOUCHED_BY.iter().any(|(start, _)| row.what.starts_with(start));
            assert!(known, "the row \"{}\" of docs/nginx-differences.md needs the directives that touch it", row.what);
        }
    }

    #[test]
    fn rows_are_those_that_are_touched() {
        let of = |text: &str| {
            let mut files = Bundle::default();
            files.add_file("/nginx.conf", text);
            let (statements, _) = statements(&files, &Options::new("/", "/nginx.conf"));
            of(&statements).into_iter().map(|row| row.what).collect::<Vec<_>>()
        };
        let least = of("http { }");
        assert!(least.iter().any(|row| row == "workers") && !least.iter().any(|row| row.contains("UDP")));
        let more =
            of("http { proxy_cache x; upstream a { server b fail_timeout=1s; } } stream { server { listen 53 udp; } }");
        assert_eq!(more.len(), least.len() + 6, "{more:?}");
    }
}
