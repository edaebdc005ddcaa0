//! What there is to see of a farm, and what explains it.

use balanza_balancing::registry::Share;

use super::algorithm::Algorithm;
use super::config::READ_TIMEOUT;
use super::load::{Counts, Latencies};
use super::server::{CONCURRENCY, Condition};

/// A server's row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) condition: Condition,
    pub(super) speed: f64,
    /// Requests a second that it can answer now.
    pub(super) capacity: f64,
    /// Of the answers of the last seconds, 0 to 1.
    pub(super) share: f64,
    pub(super) in_flight: u64,
    /// All that it has answered.
    pub(super) requests: u64,
    pub(super) latencies: Latencies,
    /// Attempts that failed.
    pub(super) errors: u64,
}

/// A farm at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) algorithm: String,
    pub(super) rows: Vec<Row>,
    pub(super) total: Latencies,
    pub(super) counts: Counts,
    /// Requests a second that the demo sends.
    pub(super) rate: u32,
    /// Why the shares are as they are.
    pub(super) why: String,
    /// The balancer's own reason for its last choice of the chosen server; may be empty.
    pub(super) pick: String,
    /// That there is more load than the servers can serve.
    pub(super) overload: Option<String>,
    /// What TLS with the clients has negotiated, and its handshakes.
    pub(super) tls: Option<String>,
    /// What happened last, oldest first.
    pub(super) news: Vec<String>,
    /// What the balancer's log says.
    pub(super) trouble: Option<String>,
}

/// Why the shares are as they are: the algorithm's rule, and the servers that are not well.
pub(super) fn why(algorithm: &Algorithm, rows: &[Row]) -> String {
    let rule = match algorithm.entry() {
        None => "as its directive says".to_owned(),
        Some(entry) => match entry.share {
            Share::Weights => "equal weights, so equal shares, however fast a server is".to_owned(),
            Share::Key => "the key of a request decides, so a share is that of the server's keys".to_owned(),
            Share::Load => format!("{}: fast servers get more", entry.summary),
            Share::Groups => "the first group with room, and in it equal weights, so equal shares".to_owned(),
            Share::Order => format!("the first server that has fewer than {CONCURRENCY} requests in flight gets it"),
            Share::Ignores(_) => entry.summary.to_owned(),
        },
    };
    let mut text = rule;
    for row in rows {
        let name = &row.name;
        let state = match row.condition {
            Condition::Killed if rows.len() == 1 => format!("; {name} refuses connections, and there is no other"),
            Condition::Killed => format!("; {name} refuses connections: left out, and tried again after 10 s"),
            Condition::Stopped => format!("; {name} is silent: an attempt fails after {READ_TIMEOUT}"),
            Condition::Well | Condition::Slow if row.in_flight > 2 * CONCURRENCY as u64 => {
                format!("; {name} gets more than the {:.0} requests/s that it can answer", row.capacity)
            }
            Condition::Well | Condition::Slow => String::new(),
        };
        text += &state;
    }
    text
}

/// That more requests are sent than the servers can answer, or were held back for it.
pub(super) fn overload(rate: f64, rows: &[Row], held: u64) -> Option<String> {
    let capacity: f64 = rows.iter().map(|row| row.capacity).sum();
    let held = if held > 0 { format!("; {held} not sent, as 500 were in flight") } else { String::new() };
    if rate > capacity {
        return Some(format!("OVERLOAD: {rate:.0} requests/s for servers that can answer {capacity:.0}{held}"));
    }
    (!held.is_empty()).then(|| format!("{rate:.0} requests/s{held}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |(index, capacity)| Row { name: format!("s{}", index + 1), capacity, ..Row::default() };
        [400.0, 200.0, 100.0].into_iter().enumerate().map(row).collect()
    }

    #[test]
    fn shares_are_explained_by_the_rule_and_by_what_servers_do() {
        let why = |name: &str, rows: &[Row]| super::why(&name.parse().unwrap(), rows);
        assert_eq!(why("round_robin", &rows()), "equal weights, so equal shares, however fast a server is");
        assert!(why("least_conn", &rows()).ends_with(": fast servers get more"));
        assert!(why("hash $request_uri consistent", &rows()).starts_with("the key of a request decides"));
        assert!(why("first", &rows()).contains("fewer than 16"));
        let mut rows = rows();
        rows[0].condition = Condition::Killed;
        rows[1].condition = Condition::Stopped;
        rows[2].in_flight = 33;
        let text = why("random", &rows);
        assert!(text.contains("s1 refuses connections") && text.contains("s2 is silent"), "{text}");
        assert!(text.ends_with("s3 gets more than the 100 requests/s that it can answer"), "{text}");
    }

    #[test]
    fn every_algorithm_has_a_reason() {
        for entry in balanza_balancing::registry::entries() {
            assert!(why(&entry.name.parse().unwrap(), &rows()).len() > 20, "{}", entry.name);
        }
    }

    #[test]
    fn an_overloaded_farm_says_so() {
        assert_eq!(overload(700.0, &rows(), 0), None);
        assert_eq!(overload(700.0, &rows(), 3).unwrap(), "700 requests/s; 3 not sent, as 500 were in flight");
        let text = overload(900.0, &rows(), 0).unwrap();
        assert_eq!(text, "OVERLOAD: 900 requests/s for servers that can answer 700");
    }
}
