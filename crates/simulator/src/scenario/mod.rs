//! What is simulated, as data: a scenario in TOML, or made from flags.
//!
//! Times are text with a unit (`"10ms"`, `"250us"`, `"1.5s"`, `"2m"`, `"1h"`) or numbers of seconds. Every part has a
//! default; unknown names are errors.

mod time;

use serde::{Deserialize, Serialize};

pub use time::Time;

/// A simulation: algorithms on the same arrivals.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A heading.
    #[serde(default)]
    pub name: String,
    /// What it shows, and what to look for.
    #[serde(default)]
    pub description: String,
    /// `name param=value …`, as after `balance` in nginx.conf. `weights=3,1` gives each group of servers another weight.
    /// ` + outlier …`, ` + retry_budget …`, ` + concurrency …`, ` + hedge …`: with these directives of an upstream.
    pub algorithms: Vec<String>,
    /// Offered work as parts of all servers' capacity: one simulation for each. Not for a closed loop, a trace or a rate.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// Everything random comes from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// Independent repetitions; confidence intervals need at least 2.
    #[serde(default = "ten")]
    pub replications: u32,
    /// How long.
    #[serde(default)]
    pub run: Run,
    /// When requests come.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// How much work a request is.
    #[serde(default)]
    pub service: Service,
    /// Who serves: groups of equal servers.
    pub servers: Vec<Servers>,
    /// Who balances.
    #[serde(default)]
    pub dispatchers: Dispatchers,
    /// What is between them.
    #[serde(default)]
    pub network: Network,
    /// How requests are treated, and whose they are.
    #[serde(default)]
    pub requests: Requests,
    /// Loads that servers report.
    #[serde(default)]
    pub reports: Reports,
    /// What happens on the way.
    #[serde(default)]
    pub events: Vec<Event>,
}

/// How long a replication is, in virtual time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Its length.
    pub duration: Option<Time>,
    /// Its length in requests, if `duration` is not given: it lasts as long as so many take to come, on average.
    pub requests: Option<u64>,
    /// When measurement begins. By default found by MSER-5 on a first replication of every algorithm.
    pub warmup: Option<Time>,
}

/// When requests come.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum Arrivals {
    /// Independent of each other.
    Poisson {
        /// Requests a second, instead of the scenario's `loads`.
        rate: Option<f64>,
    },
    /// At equal distances.
    Deterministic {
        /// See `poisson`.
        rate: Option<f64>,
    },
    /// Poisson arrivals that change between two rates at random times: bursts (MMPP).
    Mmpp {
        /// See `poisson`: the mean.
        rate: Option<f64>,
        /// The rate in a burst over that in between.
        burst: f64,
        /// Mean duration of a burst.
        on: Time,
        /// Mean duration between bursts.
        off: Time,
    },
    /// Times in seconds from the start, one a line; a second column is the request's work in seconds, a third its key.
    Trace {
        /// Path, relative to the scenario's file.
        file: String,
    },
    /// Users that send a request, wait for its answer, think, and send the next.
    Closed {
        /// How many: one simulation for each.
        users: Vec<u32>,
        /// How long they think.
        #[serde(default = "no_time")]
        think: Service,
    },
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals::Poisson { rate: None }
    }
}

/// A distribution of times: of a request's work (the time that it takes a server of speed 1), or of thinking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum Service {
    /// Memoryless.
    Exponential {
        /// Its mean.
        mean: Time,
    },
    /// Always the same.
    Constant {
        /// The time.
        mean: Time,
    },
    /// All times between two alike.
    Uniform {
        /// The least.
        from: Time,
        /// The greatest.
        to: Time,
    },
    /// Skewed to the right.
    Lognormal {
        /// Its mean.
        mean: Time,
        /// Standard deviation over mean.
        cv: f64,
    },
    /// A heavy tail: P(T > t) = (least / t)^shape.
    Pareto {
        /// Its mean.
        mean: Time,
        /// Above 1; 2 or less has no variance.
        shape: f64,
    },
    /// Short ones and a few long ones.
    Bimodal {
        /// The short ones.
        short: Time,
        /// The long ones.
        long: Time,
        /// Probability of a long one.
        part: f64,
    },
    /// `step` times a Poisson number.
    Poisson {
        /// Time for each unit.
        step: Time,
        /// Mean of the number.
        mean: f64,
    },
    /// Times in seconds, one a line, drawn at random with replacement.
    Trace {
        /// Path, relative to the scenario's file.
        file: String,
    },
}

impl Default for Service {
    fn default() -> Service {
        Service::Exponential { mean: Time::from_secs(1.0) }
    }
}

impl Service {
    fn file(&self) -> Option<&str> {
        match self {
            Service::Trace { file } => Some(file),
            _ => None,
        }
    }
}

/// Equal servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Servers {
    /// How many.
    pub count: u32,
    /// Work done in a second, by one unit of concurrency.
    pub speed: f64,
    /// As the balancer is told.
    pub weight: u32,
    /// Requests served at a time; the others wait in the order they came. For processor sharing, the number of processors.
    pub concurrency: u32,
    /// Order of service.
    pub discipline: Discipline,
    /// Requests that may wait (the listen queue); none: any number.
    pub queue_limit: Option<u32>,
    /// What happens to a request that finds the queue full.
    pub overflow: Overflow,
    /// A bucket of CPU credits.
    pub credits: Option<Credits>,
    /// Mean time between random failures of one server; none: no failures.
    pub mtbf: Option<Time>,
    /// Mean time that such a failure lasts.
    pub mttr: Time,
    /// What such a failure is: `crash`, `hang` or `fail_fast`.
    pub failure: Action,
    /// Part of the requests that a server answers with an error status, after serving them.
    pub error_rate: f64,
    /// Whether it drops requests that were given up while they waited: it looks before it begins whether the connection is
    /// still open, or a deadline has passed.
    pub drops_abandoned: bool,
    /// The balancer's limit of requests in flight; 0 is none.
    pub max_conns: u32,
    /// As in nginx.conf.
    pub max_fails: u32,
    /// As in nginx.conf.
    pub fail_timeout: Time,
    /// As in nginx.conf.
    pub slow_start: Time,
    /// As in nginx.conf.
    pub priority: u32,
    /// As in nginx.conf.
    pub backup: bool,
}

impl Default for Servers {
    fn default() -> Servers {
        Servers {
            count: 1,
            speed: 1.0,
            weight: 1,
            concurrency: 1,
            discipline: Discipline::Fifo,
            queue_limit: None,
            overflow: Overflow::Refuse,
            credits: None,
            mtbf: None,
            mttr: Time::from_secs(10.0),
            failure: Action::Crash,
            error_rate: 0.0,
            drops_abandoned: false,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: Time::from_secs(10.0),
            slow_start: Time::from_secs(0.0),
            priority: 0,
            backup: false,
        }
    }
}

/// The order in which a server serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First come, first served, each by one unit of concurrency.
    Fifo,
    /// All at a time, each by an equal part of the capacity, and by one processor at most.
    Ps,
}

/// What becomes of a request that finds a full queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The attempt fails at once.
    Refuse,
    /// The client's kernel asks again, 1, 3, 7 and 15 seconds after the first time; then the attempt fails.
    SynRetry,
}

/// A bucket of CPU credits, in seconds of work: a server without credits works at its baseline.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credits {
    /// In the beginning.
    pub initial: Time,
    /// At most.
    pub limit: Time,
    /// Part of the speed that it earns all the time, and that it has without credits.
    pub baseline: f64,
}

/// Who balances: independent balancers in front of the same servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dispatchers {
    /// How many; each request comes to a random one.
    pub count: u32,
    /// What they know.
    pub view: View,
    /// Of a board: how often it is renewed.
    pub refresh: Time,
}

impl Default for Dispatchers {
    fn default() -> Dispatchers {
        Dispatchers { count: 1, view: View::Shared, refresh: Time::from_secs(1.0) }
    }
}

/// What dispatchers know of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Everything that any of them does, as threads of one process.
    Shared,
    /// What they did themselves. With `join_idle_queue` idle servers enlist with one of them all the same, as in its source.
    Own,
    /// The servers' numbers of requests as of the last refresh of a board, without what was sent since.
    Board,
}

/// What is between dispatchers and servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// From a dispatcher to a server, and back: each way.
    pub delay: Time,
    /// Added by the clients' way to the dispatcher and back.
    pub client_rtt: Time,
}

/// How requests are treated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requests {
    /// An attempt without an answer for so long has failed; none: wait for ever.
    pub timeout: Option<Time>,
    /// Attempts more, at other servers, after one that failed.
    pub retries: u32,
    /// Different clients (or keys): what algorithms that go by a key are given.
    pub keys: u32,
    /// Skew of their frequency: the k-th has a part proportional to 1 / k^zipf.
    pub zipf: f64,
    /// Bytes of a response.
    pub bytes: u64,
    /// What an answer with an error status means.
    pub errors: Errors,
}

/// What an answer with an error status means, of a server that fails fast or has an `error_rate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errors {
    /// The attempt has failed, as if `proxy_next_upstream` named the status: it counts towards `max_fails` and is retried.
    Fail,
    /// The client gets it, as with NGINX's default of `proxy_next_upstream`.
    Pass,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { timeout: None, retries: 0, keys: 10_000, zipf: 0.0, bytes: 1_000, errors: Errors::Fail }
    }
}

/// Loads that the servers report: their requests, waiting and served, for each unit of concurrency, averaged over the time
/// since the last report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reports {
    /// How often, for algorithms that use reports.
    pub interval: Time,
}

impl Default for Reports {
    fn default() -> Reports {
        Reports { interval: Time::from_secs(5.0) }
    }
}

/// Something that happens to servers at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    pub action: Action,
    /// To which servers: `"3"`, `"0-9"`, `"0,4,7-9"`, 0-based; all by default.
    pub servers: Option<String>,
    /// For `speed`: work a second; for `errors`: a part of the requests; for `rate`: times the scenario's rate; for `share`:
    /// percent.
    pub value: Option<f64>,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The server is gone: what it had fails, what comes is refused at once.
    Crash,
    /// The server is silent: what it has stays there, what comes gets no answer.
    Hang,
    /// The server answers everything with an error status, at once.
    FailFast,
    /// The server is well again.
    Recover,
    /// The operator marks it as down: nothing new goes there.
    Down,
    /// And takes the mark away.
    Up,
    /// Its speed changes.
    Speed,
    /// The part of the requests that it answers with an error status, after serving them, changes.
    Errors,
    /// The operator sets its share of its weight.
    Share,
    /// The rate of arrivals changes; not of single servers.
    Rate,
    /// The dispatchers start again and keep their counts, as after a reload.
    Reload,
    /// The dispatchers start again and know only the requests that they have sent since, as after a restart.
    Restart,
}

impl Scenario {
    /// Reads a scenario.
    pub fn parse(text: &str) -> Result<Scenario, crate::Error> {
        Ok(toml::from_str(text)?)
    }

    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let (arrivals, think) = match &self.arrivals {
            Arrivals::Trace { file } => (Some(file.as_str()), None),
            Arrivals::Closed { think, .. } => (None, think.file()),
            _ => (None, None),
        };
        [arrivals, think, self.service.file()].into_iter().flatten()
    }
}

fn one() -> u64 {
    1
}

fn ten() -> u32 {
    10
}

fn no_time() -> Service {
    Service::Constant { mean: Time::from_secs(0.0) }
}
