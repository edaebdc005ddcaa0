//! How an explanation is shown.

use std::fmt::Write as _;

use balanza_plot::{columns, percent};
use serde_json::{Value, json};

use super::account::{Account, Attempt, seconds};
use super::logs::Record;
use crate::operate::Server;

/// Text of clients and servers, which may not write to the terminal what it likes.
fn printable(text: impl AsRef<str>) -> String {
    let shown = |char: char| if char.is_control() { char.escape_default().to_string() } else { char.to_string() };
    text.as_ref().chars().map(shown).collect()
}

type Servers = anyhow::Result<Vec<Server>>;

/// The server of an attempt, as it is now.
fn now<'a>(attempt: &Attempt, servers: &'a Servers) -> Option<&'a Server> {
    let of_address = |server: &&Server| server.address == attempt.server || server.name == attempt.server;
    servers.as_ref().ok()?.iter().find(of_address)
}

/// For people.
pub fn text(record: &Record, account: &Account, errors: &[String], servers: &Servers, colour: bool) -> String {
    let mut out = String::new();
    let heading = |name: &str| if colour { format!("\x1b[1m{name}\x1b[0m\n") } else { format!("{name}\n") };
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_string(), printable);
    out.push_str(&heading("request"));
    let mut rows = vec![
        ("request", or_none(&record.request)),
        ("client", or_none(&record.client)),
        ("answer", record.status.map_or_else(|| "-".to_string(), |status| status.to_string())),
        ("ended", or_none(&record.ended)),
        ("took", record.time.map_or_else(|| "-".to_string(), seconds)),
    ];
    rows.retain(|(_, value)| value != "-");
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![format!("  {name}"), value]).collect();
    out.push_str(&columns(&rows, 2));
    if !account.attempts.is_empty() {
        out.push_str(&heading("servers"));
        let has_probability = account.attempts.iter().any(|attempt| attempt.probability.is_some());
        let mut head = vec!["  server", "now", "reason", "status", "connected", "head", "end"];
        if has_probability {
            head.insert(3, "probability");
        }
        let mut rows = vec![head.into_iter().map(str::to_string).collect::<Vec<String>>()];
        let time = |time: Option<u64>| time.map_or_else(|| "-".to_string(), seconds);
        for attempt in &account.attempts {
            let state = now(attempt, servers).map_or("-", |server| server.state.as_str());
            let mut row = vec![
                format!("  {}", printable(&attempt.server)),
                state.to_string(),
                attempt.reason.as_deref().map_or_else(|| "-".to_string(), printable),
                attempt.status.map_or_else(|| "-".to_string(), |status| status.to_string()),
                time(attempt.connect),
                time(attempt.header),
                time(attempt.response),
            ];
            if has_probability {
                row.insert(3, attempt.probability.map_or_else(|| "-".to_string(), percent));
            }
            rows.push(row);
        }
        out.push_str(&columns(&rows, 3));
        if servers.is_err() {
            out.push_str(
                "  How the servers are now is not known: the API cannot be reached (--url names another address).\n",
            );
        }
        if account.attempts.iter().all(|attempt| attempt.reason.is_none()) {
            out.push_str("  Reasons are in the log if its format has $upstream_pick_reason.\n");
        }
    }
    if !account.words.is_empty() {
        out.push_str(&heading("what happened"));
        for sentence in &account.words {
            let _ = writeln!(out, "  {}", printable(sentence));
        }
    }
    if !errors.is_empty() {
        out.push_str(&heading("error log, lines of this connection"));
        for line in errors {
            let _ = writeln!(out, "  {}", printable(line));
        }
    }
    out
}

/// For programs.
pub fn json(record: &Record, account: &Account, errors: &[String], servers: &Servers) -> Value {
    let seconds = |micros: Option<u64>| micros.map(|micros| micros as f64 / 1e6);
    let attempts: Vec<Value> = account
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "server": attempt.server,
                "status": attempt.status,
                "connect_time": seconds(attempt.connect),
                "header_time": seconds(attempt.header),
                "response_time": seconds(attempt.response),
                "reason": attempt.reason,
                "probability": attempt.probability,
                "state_now": now(attempt, servers).map(|server| &server.state),
            })
        })
        .collect();
    json!({
        "request": record.request,
        "client": record.client,
        "status": record.status,
        "ended": record.ended,
        "request_time": seconds(record.time),
        "attempts": attempts,
        "explanation": account.words,
        "error_log": errors,
        "log": record.log,
        "line": record.line,
    })
}
