//! What the values of a request mean together.

use balanza_recommend::values;

use super::logs::Record;

/// A server that was asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attempt {
    pub server: String,
    pub status: Option<u16>,
    /// Microseconds from its beginning: until the connection stood, until the head of the answer, until its end.
    pub connect: Option<u64>,
    pub header: Option<u64>,
    pub response: Option<u64>,
    pub reason: Option<String>,
    /// How likely the choice of this server was, if it was drawn at random.
    pub probability: Option<f64>,
}

/// A request from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    pub attempts: Vec<Attempt>,
    /// What happened, in sentences.
    pub words: Vec<String>,
}

/// The values of a list, one for each attempt; what is no value there is none.
fn each(list: Option<&str>) -> impl Iterator<Item = Option<&str>> {
    let list = list.map(|list| values::attempts(list.as_bytes()));
    let text = |value| std::str::from_utf8(value).ok().filter(|value| !value.is_empty() && *value != "-");
    list.into_iter().flatten().map(text)
}

/// Seconds as logs have them.
pub fn seconds(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

impl Account {
    /// Reads the values of a line.
    pub fn of(record: &Record) -> Account {
        let time = |value: Option<&str>| value.and_then(|value| values::micros(value.as_bytes()));
        let mut lists = (
            each(record.statuses.as_deref()),
            each(record.connects.as_deref()),
            each(record.headers.as_deref()),
            each(record.responses.as_deref()),
            each(record.reasons.as_deref()),
            each(record.probabilities.as_deref()),
        );
        let attempts: Vec<Attempt> = each(record.servers.as_deref())
            .flatten()
            .map(|server| Attempt {
                server: server.to_string(),
                status: lists.0.next().flatten().and_then(|status| status.parse().ok()),
                connect: time(lists.1.next().flatten()),
                header: time(lists.2.next().flatten()),
                response: time(lists.3.next().flatten()),
                reason: lists.4.next().flatten().map(str::to_string),
                probability: lists.5.next().flatten().and_then(|probability| probability.parse().ok()),
            })
            .collect();
        let mut words = Vec::new();
        path(&attempts, record.status, &mut words);
        slowest(&attempts, record.time, &mut words);
        Account { attempts, words }
    }
}

/// No server stands for an upstream's name: nothing was sent.
fn is_name(server: &str) -> bool {
    !server.contains(':')
}

/// From server to server, and to the answer.
fn path(attempts: &[Attempt], status: Option<u16>, words: &mut Vec<String>) {
    let Some(last) = attempts.last() else {
        words.push(
            "No server was asked: Balanza answered by itself (a file, a redirect, a limit, a rule or an error).".into(),
        );
        if status == Some(499) {
            words.push("The client closed the connection before there was an answer (499).".into());
        }
        return;
    };
    for pair in attempts.windows(2) {
        let [one, next] = pair else { continue };
        let why = match one.status {
            Some(504) => "took too long (504)".to_string(),
            Some(502) if one.header.is_none() => "could not be reached or gave no answer (502)".to_string(),
            Some(status) => format!("answered {status}"),
            None => "gave no answer".to_string(),
        };
        words.push(format!("{} {why}, and the request went on to {}.", one.server, next.server));
    }
    if is_name(&last.server) {
        words.push(format!(
            "No server of upstream \"{}\" could be chosen: all were down, had failed, or were full.",
            last.server
        ));
    }
    match (status, last.status) {
        (Some(499), _) => words.push("The client closed the connection before the answer was complete (499).".into()),
        (Some(status), Some(of_server)) if status != of_server => words.push(format!(
            "The client got {status}, not the server's {of_server}: an error_page or proxy_intercept_errors, or a part of a file."
        )),
        (Some(504), _) => words.push(format!("{} took too long: see proxy_connect_timeout and proxy_read_timeout.", last.server)),
        (Some(502), _) if last.header.is_none() && !is_name(&last.server) => {
            words.push(format!("{} could not be reached, or its answer was not valid: see the error log.", last.server));
        }
        _ => {}
    }
}

/// The part of the request that took most of its time, if there is one.
fn slowest(attempts: &[Attempt], total: Option<u64>, words: &mut Vec<String>) {
    let Some(total) = total.filter(|total| *total >= 1_000) else { return };
    let mut parts: Vec<(u64, String)> = Vec::new();
    let mut in_attempts = 0;
    for attempt in attempts {
        let Some(response) = attempt.response else { continue };
        in_attempts += response;
        let connect = attempt.connect.unwrap_or(0).min(response);
        let header = attempt.header.unwrap_or(response).clamp(connect, response);
        let server = &attempt.server;
        parts.push((connect, format!("connecting to {server}")));
        parts.push((header - connect, format!("waiting for the answer of {server}")));
        parts.push((response - header, format!("receiving the answer's body from {server}")));
    }
    let outside = "on the client's side: reading its request, or sending it the rest of the answer";
    parts.push((total.saturating_sub(in_attempts), outside.to_string()));
    if let Some((time, what)) = parts.into_iter().max_by_key(|(time, _)| *time).filter(|(time, _)| time * 2 >= total) {
        words.push(format!("{} of {} went by {what}.", seconds(time), seconds(total)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(servers: &str, statuses: &str, times: [&str; 3], status: u16, time: u64) -> Account {
        let list = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        Account::of(&Record {
            status: Some(status),
            time: Some(time),
            servers: list(servers),
            statuses: list(statuses),
            connects: list(times[0]),
            headers: list(times[1]),
            responses: list(times[2]),
            ..Record::default()
        })
    }

    #[test]
    fn a_request_that_went_on_to_another_server() {
        let it =
            account("10.0.0.1:80, 10.0.0.2:80", "502, 200", ["-, 0.001", "-, 0.300", "0.002, 0.310"], 200, 320_000);
        assert_eq!(it.attempts.len(), 2);
        assert_eq!(
            it.attempts[0],
            Attempt { server: "10.0.0.1:80".into(), status: Some(502), response: Some(2_000), ..Attempt::default() }
        );
        assert_eq!(
            it.words,
            [
                "10.0.0.1:80 could not be reached or gave no answer (502), and the request went on to 10.0.0.2:80.",
                "0.299 s of 0.320 s went by waiting for the answer of 10.0.0.2:80.",
            ]
        );
    }

    #[test]
    fn requests_without_a_server_or_an_answer() {
        assert!(account("", "", [""; 3], 404, 0).words[0].starts_with("No server was asked"));
        let it = account("shop", "502", ["-", "-", "0.000"], 502, 0);
        assert_eq!(
            it.words,
            ["No server of upstream \"shop\" could be chosen: all were down, had failed, or were full."]
        );
        let it = account("10.0.0.1:80", "504", ["0.000", "-", "60.001"], 504, 60_001_000);
        assert_eq!(it.words.len(), 2);
        assert_eq!(it.words[1], "60.001 s of 60.001 s went by waiting for the answer of 10.0.0.1:80.");
        assert!(account("10.0.0.1:80", "-", ["0.000", "-", "3.000"], 499, 3_000_000).words[0].contains("499"));
        assert!(account("10.0.0.1:80", "500", [""; 3], 302, 0).words[0].contains("not the server's 500"));
    }

    #[test]
    fn time_on_the_clients_side() {
        let it = account("10.0.0.1:80", "200", ["0.000", "0.001", "0.002"], 200, 5_000_000);
        assert_eq!(it.words.len(), 1);
        assert!(it.words[0].starts_with("4.998 s of 5.000 s went by on the client's side"));
        // Nothing took the most time.
        let it = account("10.0.0.1:80", "200", ["0.100", "0.200", "0.300"], 200, 300_000);
        assert!(it.words.is_empty());
    }
}
