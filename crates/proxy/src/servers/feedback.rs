//! `load_report header`: servers report their load in a field of their responses.

use balanza_balancing::{Fleet, Member};
use balanza_config::model::{self, LoadSource};
use balanza_message::Response;
use balanza_net::clock::Nanos;

/// The field, and what its value means.
pub struct Feedback {
    name: Box<[u8]>,
    /// The value of a busy server.
    full: f64,
}

impl Feedback {
    /// That of an upstream that has one.
    pub fn of(upstream: &model::Upstream) -> Option<Feedback> {
        upstream.reports.iter().find_map(|report| match &report.source {
            LoadSource::Header { name, full } => Some(Feedback { name: name.clone(), full: *full }),
            _ => None,
        })
    }

    /// Takes note of what a response's head says. Other values than numbers are as good as none.
    pub fn take(&self, response: &Response, fleet: &Fleet, member: Member, now: Nanos) {
        let text = &response.text;
        let mut fields = response.fields.iter();
        if let Some(field) = fields.find(|field| field.name.of(text).eq_ignore_ascii_case(&self.name))
            && let Some(load) = number(field.value.of(text))
        {
            fleet.state(member).report_load(now, load / self.full);
        }
    }
}

fn number(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b" 42 "), Some(42.0));
        assert_eq!(number(b"0.5"), Some(0.5));
        for nonsense in [&b""[..], b"-1", b"nan", b"inf", b"50%", b"\xff"] {
            assert_eq!(number(nonsense), None);
        }
    }
}
