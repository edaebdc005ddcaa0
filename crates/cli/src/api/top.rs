//! `balanza top`: the servers of all upstreams, again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use balanza_plot::columns;
use clap::Args;
use serde_json::Value;

use super::ADDRESS;
use super::client::Address;
use crate::output;

/// Show the servers of a running balancer, live: rates, failures, requests in flight and times.
///
/// The configuration needs a location with "api;".
#[derive(Args)]
pub struct Options {
    /// Where the API is.
    #[arg(long, value_name = "URL", default_value = ADDRESS)]
    url: Address,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    every: f64,
    /// Print the table once, with the rates of the last minute, and end.
    #[arg(long)]
    once: bool,
}

/// What was counted of a server at the last look.
type Before = HashMap<(String, String, u64), u64>;

/// Shows the table.
///
/// # Errors
/// The API cannot be reached.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let every = Duration::from_secs_f64(options.every.clamp(0.2, 3600.0));
    let mut before: Option<(Instant, Before)> = None;
    loop {
        let mut rows = Vec::new();
        let now = Instant::now();
        let mut counted = Before::new();
        for protocol in ["http", "stream"] {
            let courses = options.url.ask("GET", &format!("balanza/{protocol}/upstreams"), None)?;
            // A balancer without streams has no such path.
            let Ok(upstreams) = options.url.ask("GET", &format!("9/{protocol}/upstreams"), None) else { continue };
            let last = before.as_ref().map(|(then, counts)| (now.duration_since(*then).as_secs_f64(), counts));
            rows.extend(rows_of(protocol, &courses, &upstreams, last, &mut counted));
        }
        let table = table(&rows);
        if options.once {
            return output::print(&table);
        }
        // The screen is cleared where it is one.
        let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        output::print(&format!("{clear}{table}"))?;
        before = Some((now, counted));
        std::thread::sleep(every);
    }
}

/// A server's row: upstream, server, state, weight, in flight, rate, failures, p50, p95, p99.
type Row = [String; 10];

fn rows_of(
    protocol: &str,
    courses: &Value,
    upstreams: &Value,
    last: Option<(f64, &Before)>,
    counted: &mut Before,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (upstream, course) in courses.as_object().into_iter().flatten() {
        let peers = upstreams[upstream]["peers"].as_array();
        for server in course["servers"].as_array().into_iter().flatten() {
            let id = server["id"].as_u64().unwrap_or_default();
            let peer = peers.into_iter().flatten().find(|peer| peer["id"] == server["id"]).unwrap_or(&Value::Null);
            let requests = peer["requests"].as_u64().or(peer["connections"].as_u64()).unwrap_or_default();
            let key = (protocol.to_owned(), upstream.clone(), id);
            let rate = match last.and_then(|(seconds, counts)| Some((seconds, counts.get(&key)?))) {
                Some((seconds, before)) => requests.saturating_sub(*before) as f64 / seconds.max(0.001),
                None => server["rate"]["minute"].as_f64().unwrap_or_default(),
            };
            counted.insert(key, requests);
            let number = |value: &Value| value.as_u64().unwrap_or_default().to_string();
            let time = |name: &str| server["times"][name].as_f64().map_or("-".to_owned(), |time| format!("{time:.1}"));
            let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            rows.push([
                upstream.clone(),
                text(&server["server"]),
                text(&server["state"]),
                number(&server["weight"]),
                number(&server["active"]),
                format!("{rate:.1}"),
                number(&peer["fails"]),
                time("p50"),
                time("p95"),
                time("p99"),
            ]);
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let head = ["upstream", "server", "state", "weight", "active", "requests/s", "fails", "p50 ms", "p95 ms", "p99 ms"];
    let head = head.map(str::to_owned);
    let rows: Vec<Vec<String>> = [&head].into_iter().chain(rows).map(|row| row.to_vec()).collect();
    columns(&rows, 3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_are_those_since_the_last_look() {
        let server = json!({
            "id": 3, "server": "10.0.0.1:80", "state": "up", "weight": 2, "active": 1,
            "rate": { "minute": 7.25 }, "times": { "p50": 1.24, "p95": null, "p99": 30.0 },
        });
        let courses = json!({ "app": { "servers": [server] } });
        let upstreams = json!({ "app": { "peers": [{ "id": 3, "requests": 150, "fails": 4 }] } });
        let mut counted = Before::new();
        let first = rows_of("http", &courses, &upstreams, None, &mut counted);
        assert_eq!(first[0][5], "7.2");
        let mut before = counted.clone();
        before.values_mut().for_each(|count| *count -= 50);
        let rows = rows_of("http", &courses, &upstreams, Some((2.0, &before)), &mut counted);
        let expected = "\
upstream  server       state  weight  active  requests/s  fails  p50 ms  p95 ms  p99 ms
app       10.0.0.1:80  up          2       1        25.0      4     1.2       -    30.0
";
        assert_eq!(table(&rows), expected);
    }
}
