//! The numbers in Prometheus' text format, with the names of nginx-prometheus-exporter, and histograms beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

use balanza_balancing::Member;
use balanza_config::model::membership::Protocol;

use super::objects::classes;
use super::plane::View;
use super::service::Service;
use super::upstreams;
use super::zones::{self, Limits};
use crate::metrics::{Attempts, BUCKETS, Requests, Times, upper_bound};
use crate::servers::membership::{Membership, Shared};

/// Labels of a sample.
type Labels<'l> = &'l [(&'l str, &'l str)];

/// Samples by the name of their metric, so that those of one stand together.
#[derive(Default)]
struct Samples(BTreeMap<String, (&'static str, String)>);

impl Samples {
    fn of(&mut self, name: &str, kind: &'static str) -> &mut String {
        &mut self.0.entry(name.to_owned()).or_insert_with(|| (kind, String::new())).1
    }

    fn counter(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        line(self.of(name, "counter"), name, labels, value as f64);
    }

    fn gauge(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        line(self.of(name, "gauge"), name, labels, value);
    }

    /// One bucket for each doubling of the time.
    fn histogram(&mut self, name: &str, labels: Labels<'_>, times: &Times) {
        let out = self.of(name, "histogram");
        let (bucket_name, mut seen) = (format!("{name}_bucket"), 0);
        let mut bounds: Vec<(String, u64)> = Vec::new();
        for (bucket, count) in times.buckets.iter().enumerate() {
            seen += count;
            if bucket % 4 == 0 && bucket < BUCKETS - 1 {
                bounds.push((format!("{}", upper_bound(bucket) as f64 / 1e9), seen));
            }
        }
        bounds.push(("+Inf".to_owned(), times.count()));
        for (bound, count) in bounds {
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            line(out, &bucket_name, &labels, count as f64);
        }
        line(out, &format!("{name}_sum"), labels, times.sum as f64 / 1e9);
        line(out, &format!("{name}_count"), labels, times.count() as f64);
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, (kind, lines)) in self.0 {
            // Nothing fails that writes to a text.
            let _ = write!(text, "# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

/// The arm that runs of each experiment.
fn of_experiments(all: &mut Samples, service: &Service) {
    for ((protocol, upstream), arms, runs, block) in service.experiments.running() {
        let begin = match protocol {
            Protocol::Http => "balanza_upstream_experiment",
            Protocol::Stream => "balanza_stream_upstream_experiment",
        };
        all.gauge(&format!("{begin}_block"), &[("upstream", upstream)], block as f64);
        for (nth, arm) in arms.iter().enumerate() {
            let labels = [("arm", *arm), ("upstream", upstream.as_str())];
            all.gauge(&format!("{begin}_arm"), &labels, f64::from(u8::from(nth == runs)));
        }
    }
}

fn line(out: &mut String, name: &str, labels: Labels<'_>, value: f64) {
    out.push_str(name);
    for (nth, (label, value)) in labels.iter().enumerate() {
        let begin = if nth == 0 { '{' } else { ',' };
        let _ = write!(out, "{begin}{label}=\"{}\"", escaped(value));
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All numbers.
pub fn text(service: &Service, view: &View) -> String {
    let mut all = Samples::default();
    let metrics = &view.generation.metrics;
    let now = metrics.connections.sum(&());
    all.gauge("nginxplus_up", &[], 1.0);
    all.counter("nginxplus_connections_accepted", &[], now.accepted);
    all.counter("nginxplus_connections_dropped", &[], now.dropped);
    all.gauge("nginxplus_connections_active", &[], now.active.saturating_sub(now.idle) as f64);
    all.gauge("nginxplus_connections_idle", &[], now.idle as f64);
    all.counter("nginxplus_http_requests_total", &[], now.requests);
    all.counter("nginxplus_ssl_handshakes", &[], now.handshakes);
    all.counter("nginxplus_ssl_handshakes_failed", &[], now.handshakes_failed);
    all.counter("nginxplus_ssl_session_reuses", &[], now.session_reuses);
    let zones = zones::counted(view, Protocol::Http);
    let current: u64 = zones.iter().map(|(_, zone)| zone.processing).sum();
    all.gauge("nginxplus_http_requests_current", &[], current as f64);
    all.gauge("balanza_configuration_generation", &[], view.generation.number as f64);
    for (name, zone) in &zones {
        let label = &[("server_zone", *name)];
        all.gauge("nginxplus_server_zone_processing", label, zone.processing as f64);
        of_requests(&mut all, "nginxplus_server_zone", "server_zone", name, zone);
        all.histogram("balanza_server_zone_request_seconds", label, &zone.times);
    }
    of_experiments(&mut all, service);
    for name in &view.generation.config.http.location_zones {
        let zone = metrics.locations.sum(name);
        of_requests(&mut all, "nginxplus_location_zone", "location_zone", name, &zone);
        all.histogram("balanza_location_zone_request_seconds", &[("location_zone", name)], &zone.times);
    }
    for (name, zone) in zones::counted(view, Protocol::Stream) {
        of_sessions(&mut all, name, &zone);
    }
    for shared in view.upstreams() {
        of_upstream(&mut all, view, shared);
    }
    of_workers(&mut all, view);
    if let Some(exporter) = &view.generation.exporter {
        let (name, counts) = ("balanza_otel_spans", exporter.counts());
        for (result, count) in
            [("exported", &counts.exported), ("failed", &counts.failed), ("dropped", &counts.dropped)]
        {
            all.counter(name, &[("result", result)], count.load(Relaxed));
        }
    }
    of_limits(&mut all, service, view);
    of_resolvers(&mut all, view);
    all.text()
}

fn of_responses(all: &mut Samples, name: &str, labels: Labels<'_>, of: [u64; 5], codes: &BTreeMap<u16, u64>) {
    for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(of) {
        let labels: Vec<_> = labels.iter().copied().chain([("code", class)]).collect();
        all.counter(&format!("{name}_responses"), &labels, count);
    }
    for (code, count) in codes {
        let code = code.to_string();
        let labels: Vec<_> = labels.iter().copied().chain([("code", &code[..])]).collect();
        all.counter(&format!("{name}_responses_codes"), &labels, *count);
    }
}

fn of_requests(all: &mut Samples, prefix: &str, label: &str, name: &str, zone: &Requests) {
    let labels = &[(label, name)];
    all.counter(&format!("{prefix}_requests"), labels, zone.ended() + zone.processing);
    of_responses(all, prefix, labels, classes(&zone.statuses), &zone.statuses);
    all.counter(&format!("{prefix}_discarded"), labels, zone.discarded);
    all.counter(&format!("{prefix}_received"), labels, zone.received);
    all.counter(&format!("{prefix}_sent"), labels, zone.sent);
}

fn of_sessions(all: &mut Samples, name: &str, zone: &Requests) {
    const PREFIX: &str = "nginxplus_stream_server_zone";
    let labels = &[("server_zone", name)];
    all.gauge(&format!("{PREFIX}_processing"), labels, zone.processing as f64);
    all.counter(&format!("{PREFIX}_connections"), labels, zone.ended() + zone.processing);
    let [_, ok, _, refused, failed] = classes(&zone.statuses);
    for (class, count) in [("2xx", ok), ("4xx", refused), ("5xx", failed)] {
        all.counter(&format!("{PREFIX}_sessions"), &[("server_zone", name), ("code", class)], count);
    }
    all.counter(&format!("{PREFIX}_discarded"), labels, zone.discarded);
    all.counter(&format!("{PREFIX}_received"), labels, zone.received);
    all.counter(&format!("{PREFIX}_sent"), labels, zone.sent);
    all.histogram("balanza_stream_session_seconds", labels, &zone.times);
}

fn of_upstream(all: &mut Samples, view: &View, shared: &Shared) {
    let membership = shared.membership();
    let sums = view.generation.metrics.servers.sums(membership.ids.iter());
    let name = &shared.conf.name;
    let zombies = view.zombies.get(&(shared.protocol, name.clone())).copied().unwrap_or(0);
    let prefix = match shared.protocol {
        Protocol::Http => "nginxplus_upstream",
        Protocol::Stream => "nginxplus_stream_upstream",
    };
    all.gauge(&format!("{prefix}_zombies"), &[("upstream", name)], zombies as f64);
    if let Some(hedge) = shared.hedge() {
        let (sent, won) = hedge.counts();
        all.counter("balanza_upstream_hedges_sent", &[("upstream", name)], sent);
        all.counter("balanza_upstream_hedges_won", &[("upstream", name)], won);
    }
    for (nth, sum) in sums.iter().enumerate() {
        of_server(all, &format!("{prefix}_server"), shared, &membership, (nth, sum));
    }
    of_shadows(all, shared, &membership);
    of_sources(all, view, shared);
}

/// How its sources are, and how many of its names have servers that cannot be asked for at present.
fn of_sources(all: &mut Samples, view: &View, shared: &Shared) {
    let prefix = match shared.protocol {
        Protocol::Http => "balanza_upstream",
        Protocol::Stream => "balanza_stream_upstream",
    };
    let (outside, upstream) = (view.generation.outside(), &shared.conf.name[..]);
    if !shared.conf.resolved.is_empty() {
        let names = outside.names(shared.protocol, &shared.conf);
        let failed = names.iter().filter(|name| name.error.is_some()).count();
        all.gauge(&format!("{prefix}_names"), &[("upstream", upstream)], names.len() as f64);
        all.gauge(&format!("{prefix}_names_failed"), &[("upstream", upstream)], failed as f64);
    }
    for source in outside.sources(shared.protocol, &shared.conf) {
        let labels = &[("source", &source.name[..]), ("upstream", upstream)];
        let is_up = source.answered.is_some() && source.error.is_none();
        all.gauge(&format!("{prefix}_source_up"), labels, f64::from(u8::from(is_up)));
        all.gauge(&format!("{prefix}_source_servers"), labels, source.servers as f64);
        all.gauge(&format!("{prefix}_source_wrong_entries"), labels, source.wrong as f64);
        if let Some(Ok(since)) = source.answered.map(|answered| answered.duration_since(UNIX_EPOCH)) {
            all.gauge(&format!("{prefix}_source_answered_seconds"), labels, since.as_secs_f64());
        }
    }
}

/// What shadows would have chosen; nothing about times.
fn of_shadows(all: &mut Samples, shared: &Shared, membership: &Membership) {
    let prefix = match shared.protocol {
        Protocol::Http => "balanza_upstream_shadow",
        Protocol::Stream => "balanza_stream_upstream_shadow",
    };
    for beside in &membership.shadows {
        let (shadow, upstream) = (("shadow", beside.name), ("upstream", &shared.conf.name[..]));
        let counts = beside.shadow.counts();
        let mut sums = vec![("picks", counts.picks), ("agreed", counts.agreed), ("nobody", counts.nobody)];
        if beside.shadow.is_keyed() {
            sums.extend([("keys", counts.keys), ("keys_moved", counts.keys_moved)]);
        }
        if beside.shadow.judges_sessions() && membership.affinity.is_some() {
            sums.extend([("sessions", counts.sessions), ("sessions_left", counts.sessions_left)]);
        }
        sums.extend([("timed", counts.timed), ("timed_nanoseconds", counts.time)]);
        for (what, count) in sums {
            all.counter(&format!("{prefix}_{what}"), &[shadow, upstream], count);
        }
        for (member, server) in membership.fleet.members().zip(&membership.servers) {
            let address = server.address.to_string();
            let labels = [("server", &address[..]), shadow, upstream];
            all.counter(&format!("{prefix}_server_picks"), &labels, beside.shadow.chosen(member).0);
        }
    }
}

fn of_server(
    all: &mut Samples,
    prefix: &str,
    shared: &Shared,
    membership: &Membership,
    (nth, sum): (usize, &Attempts),
) {
    let (server, cell) = (&membership.servers[nth], membership.fleet.state(Member(nth as u32)));
    let address = server.address.to_string();
    let labels = &[("server", &address[..]), ("upstream", &shared.conf.name)];
    let states = ["up", "draining", "down", "unavail", "checking", "unhealthy"];
    let state = upstreams::state(membership, nth);
    let number = states.iter().position(|known| *known == state).map_or(0, |place| place + 1);
    all.gauge(&format!("{prefix}_state"), labels, number as f64);
    all.gauge(&format!("{prefix}_active"), labels, f64::from(cell.in_flight()));
    all.gauge(&format!("{prefix}_limit"), labels, f64::from(cell.max_conns_override().unwrap_or(server.max_conns)));
    let total = sum.attempts + u64::from(cell.in_flight());
    let header_time = upstreams::header_time(cell, sum) as f64;
    let (counted, first, histogram) = match shared.protocol {
        Protocol::Http => ("requests", "header_time", "balanza_upstream_response_seconds"),
        Protocol::Stream => ("connections", "first_byte_time", "balanza_stream_upstream_session_seconds"),
    };
    all.counter(&format!("{prefix}_{counted}"), labels, total);
    if shared.protocol == Protocol::Http {
        of_responses(all, prefix, labels, sum.classes, &sum.codes);
    }
    all.counter(&format!("{prefix}_sent"), labels, sum.sent);
    all.counter(&format!("{prefix}_received"), labels, sum.received);
    all.counter(&format!("{prefix}_fails"), labels, sum.failures);
    all.counter(&format!("{prefix}_unavail"), labels, sum.disabled);
    all.gauge(&format!("{prefix}_{first}"), labels, header_time);
    all.gauge(&format!("{prefix}_response_time"), labels, upstreams::response_time(cell, sum) as f64);
    all.histogram(histogram, labels, &sum.times);
}

fn of_workers(all: &mut Samples, view: &View) {
    let counted = view.generation.metrics.connections.of_workers(&());
    let pid = std::process::id().to_string();
    for (id, serial) in view.workers.iter().enumerate() {
        let Some((_, now)) = counted.iter().find(|(known, _)| known == serial) else { continue };
        let id = id.to_string();
        let labels = &[("id", &id[..]), ("pid", &pid)];
        all.counter("nginxplus_worker_connection_accepted", labels, now.accepted);
        all.counter("nginxplus_worker_connection_dropped", labels, now.dropped);
        all.gauge("nginxplus_worker_connection_active", labels, now.active.saturating_sub(now.idle) as f64);
        all.gauge("nginxplus_worker_connection_idle", labels, now.idle as f64);
        all.counter("nginxplus_worker_http_requests_total", labels, now.requests);
        all.gauge("nginxplus_worker_http_requests_current", labels, now.writing() as f64);
    }
}

fn of_limits(all: &mut Samples, service: &Service, view: &View) {
    let kinds = [
        (Limits::Requests, "nginxplus_limit_request"),
        (Limits::Connections, "nginxplus_limit_connection"),
        (Limits::Sessions, "nginxplus_stream_limit_connection"),
    ];
    for (kind, prefix) in kinds {
        for (name, decisions) in kind.zones(&view.generation.limits) {
            for (what, count) in zones::decided(service, kind, &name, &decisions) {
                all.counter(&format!("{prefix}_{what}"), &[("zone", &name)], count);
            }
        }
    }
}

fn of_resolvers(all: &mut Samples, view: &View) {
    let codes = ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused"];
    for (name, counts) in view.generation.names.statistics() {
        let labels = &[("resolver", &name[..])];
        all.counter("nginxplus_resolver_name", labels, counts.names);
        all.counter("nginxplus_resolver_srv", labels, counts.services);
        for (code, count) in codes.into_iter().zip(counts.codes) {
            all.counter(&format!("nginxplus_resolver_{code}"), labels, count);
        }
        all.counter("nginxplus_resolver_timedout", labels, counts.timed_out);
        all.counter("nginxplus_resolver_unknown", labels, counts.unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram;

    #[test]
    fn samples_are_escaped_and_stand_together() {
        let mut all = Samples::default();
        all.counter("b", &[("name", "a\"b\\c\nd")], 1);
        all.gauge("a", &[], 0.5);
        all.counter("b", &[], 2);
        let expected = "# TYPE a gauge\na 0.5\n# TYPE b counter\nb{name=\"a\\\"b\\\\c\\nd\"} 1\nb 2\n";
        assert_eq!(all.text(), expected);
    }

    #[test]
    fn buckets_add_up() {
        let recorded = Histogram::default();
        [1, 40_000, 1_000_000, 5_000_000_000_000].iter().for_each(|time| recorded.record(*time));
        let mut times = Times::default();
        times.add(&recorded);
        let mut all = Samples::default();
        all.histogram("t", &[], &times);
        let text = all.text();
        let counts: Vec<u64> = text
            .lines()
            .filter(|line| line.starts_with("t_bucket"))
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!((counts.first(), counts.last()), (Some(&1), Some(&4)));
        assert!(counts.is_sorted());
        assert!(text.contains("t_bucket{le=\"0.001048576\"} 3\n"), "{text}");
        assert!(text.ends_with("t_count 4\n"));
    }
}
