//! What is measured of a run, by the names that claims, reports and plans use.

/// A quantity that a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// What claims call it.
    pub name: &'static str,
    /// In what it is measured.
    pub kind: Kind,
    /// Whether it is of a whole cell or of one server in it.
    pub of: Of,
    /// What it is.
    pub about: &'static str,
}

/// In what a metric is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events a second.
    PerSecond,
    /// Seconds.
    Time,
    /// A part of 1.
    Part,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Processors: 1 is one that is always busy.
    Processors,
}

/// What a metric is measured of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A whole run.
    Cell,
    /// One server of the farm.
    Server,
}

const fn cell(name: &'static str, kind: Kind, about: &'static str) -> Metric {
    Metric { name, kind, of: Of::Cell, about }
}

const fn server(name: &'static str, kind: Kind, about: &'static str) -> Metric {
    Metric { name, kind, of: Of::Server, about }
}

/// All metrics. What a tool does not say is absent from its runs.
pub const METRICS: [Metric; 30] = [
    cell("rps", Kind::PerSecond, "requests answered a second"),
    cell("mean", Kind::Time, "mean latency of the answered"),
    cell("sd", Kind::Time, "standard deviation of the latency between requests"),
    cell("min", Kind::Time, "least latency"),
    cell("max", Kind::Time, "greatest latency"),
    cell("median", Kind::Time, "median latency"),
    cell("p90", Kind::Time, "90th percentile of the latency"),
    cell("p95", Kind::Time, "95th percentile of the latency"),
    cell("p99", Kind::Time, "99th percentile of the latency"),
    cell("p999", Kind::Time, "99.9th percentile of the latency"),
    cell("connect_mean", Kind::Time, "mean time to establish a connection"),
    cell("waiting_mean", Kind::Time, "mean time from the request to the first byte of its answer"),
    cell("offered", Kind::PerSecond, "requests that ended a second, answered or not"),
    cell("requests", Kind::Count, "requests answered"),
    cell("errors", Kind::Count, "requests not answered, for whatever reason"),
    cell("errors_per_second", Kind::PerSecond, "requests not answered a second, for whatever reason"),
    cell("failures_per_second", Kind::PerSecond, "of these, those that are not the client's own failure"),
    cell("client_errors_per_second", Kind::PerSecond, "of these, those that are the client's own failure"),
    cell("error_share", Kind::Part, "part of the ended requests that was not answered"),
    cell("jain", Kind::Part, "Jain's index of the servers' shares: 1 is even, 1/n all at one of n"),
    cell("cpu_balancer", Kind::Processors, "processors that the balancer used"),
    cell("cpu_servers", Kind::Processors, "processors that all servers together used"),
    cell("cpu_client", Kind::Processors, "processors that the client used"),
    cell("memory_balancer", Kind::Bytes, "most memory of the balancer resident at once"),
    cell("transfer_rate", Kind::BytesPerSecond, "bytes received a second, heads included"),
    cell("connections_max", Kind::Count, "most connections of the client at once"),
    server("share", Kind::Part, "part of the answers that the server gave"),
    server("cpu", Kind::Processors, "processors that the server used"),
    server("in_flight_max", Kind::Count, "most requests at work in the server at once"),
    server("queued_max", Kind::Count, "most requests that waited inside the server at once"),
];
