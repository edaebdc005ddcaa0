//! A scenario made of flags.

use std::path::PathBuf;

use balanza_simulator::Scenario;
use balanza_simulator::scenario::{
    Arrivals, Discipline, Dispatchers, Network, Requests, Run, Servers, Service, Time, View,
};
use clap::{Args, ValueEnum};

/// Above this number of servers, the default is three replications instead of ten: the mean varies little.
const MANY: u32 = 10_000;

/// The flags. Values that are not given are the defaults of a scenario.
#[derive(Args, Default)]
pub struct Flags {
    /// An algorithm with parameters as in nginx.conf; repeat it, or separate by commas, to compare several
    /// [default: random,round_robin,two_choices,least_conn]
    #[arg(long, short, value_name = "ALGORITHM", value_delimiter = ',')]
    algorithm: Vec<String>,

    /// Number of servers [default: 100]
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    servers: Option<u32>,

    /// Offered work as a part of the capacity of all servers; separate several by commas [default: 0.9]
    #[arg(long, short, value_name = "L", value_delimiter = ',')]
    load: Vec<f64>,

    /// Service time: exponential, constant, uniform:0s:2s, lognormal:MEAN:CV, pareto:MEAN:SHAPE,
    /// bimodal:SHORT:LONG:PART, poisson:STEP:MEAN, trace:FILE; with a mean: constant:10ms [default: exponential:1s]
    #[arg(long, value_name = "SERVICE", value_parser = service)]
    service: Option<Service>,

    /// Arrivals: poisson, deterministic, mmpp:BURST:ON:OFF, trace:FILE, closed:USERS[:THINK] [default: poisson]
    #[arg(long, value_name = "ARRIVALS", value_parser = arrivals)]
    arrivals: Option<Arrivals>,

    /// Number of balancers; each request arrives at a random one [default: 1]
    #[arg(long, short, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    dispatchers: Option<u32>,

    /// What a balancer knows: its own requests, or those of all balancers [default: own if there are several]
    #[arg(long, value_name = "VIEW", conflicts_with = "staleness")]
    view: Option<Sight>,

    /// Servers to compare, for algorithms that compare a few; 1 is random choice
    #[arg(long, short, value_name = "d", value_parser = clap::value_parser!(u32).range(1..=16))]
    choices: Option<u32>,

    /// Balancers see the queues of the servers as of the last update, at this interval: 500ms, 2s
    #[arg(long, value_name = "TIME")]
    staleness: Option<Time>,

    /// Requests that a server handles at a time [default: 1]
    #[arg(long, short = 'k', value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,

    /// Order of service: one after the other, or all at once with equal shares [default: fifo]
    #[arg(long, value_name = "fifo|ps", value_parser = discipline)]
    discipline: Option<Discipline>,

    /// Speeds of the servers, separated by commas, repeated for all servers [default: 1]
    #[arg(long, value_name = "SPEED", value_delimiter = ',')]
    speeds: Vec<f64>,

    /// Weights of the servers, separated by commas, repeated for all servers [default: 1]
    #[arg(long, value_name = "W", value_delimiter = ',')]
    weights: Vec<u32>,

    /// Network delay between a balancer and a server, in each direction [default: 0]
    #[arg(long, value_name = "TIME")]
    delay: Option<Time>,

    /// Time-out of an attempt [default: none]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Time>,

    /// Retries, at other servers [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
    retries: Option<u32>,

    /// Number of client addresses, for algorithms that use them [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,

    /// Skew of the client addresses: the k-th has a share proportional to 1 / k^S [default: 0]
    #[arg(long, value_name = "S")]
    zipf: Option<f64>,

    /// Requests of a replication, including the warm-up [default: a million, or enough for 50 service times]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    requests: Option<u64>,

    /// Virtual time of a replication
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,

    /// Warm-up in virtual time, which is not measured [default: found with MSER-5 in a separate replication]
    #[arg(long, value_name = "TIME")]
    warmup: Option<Time>,

    /// Independent replications, for the confidence intervals [default: 10; above 10,000 servers 3]
    #[arg(long, short, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub replications: Option<u32>,

    /// Seed of all random numbers [default: 1]
    #[arg(long, short, value_name = "S")]
    pub seed: Option<u64>,

    /// Write report.html, its first picture as picture.svg, results.csv and results.json into this directory
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print JSON: a line for each algorithm and load; for a scenario, all results
    #[arg(long)]
    pub json: bool,
}

/// The values of `--view`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Sight {
    Own,
    Shared,
}

impl Flags {
    /// The first given flag that cannot be combined with a scenario.
    pub fn of_scenarios(&self) -> Option<&'static str> {
        let given = [
            ("algorithm", !self.algorithm.is_empty()),
            ("servers", self.servers.is_some()),
            ("load", !self.load.is_empty()),
            ("service", self.service.is_some()),
            ("arrivals", self.arrivals.is_some()),
            ("dispatchers", self.dispatchers.is_some()),
            ("view", self.view.is_some()),
            ("choices", self.choices.is_some()),
            ("staleness", self.staleness.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("discipline", self.discipline.is_some()),
            ("speeds", !self.speeds.is_empty()),
            ("weights", !self.weights.is_empty()),
            ("delay", self.delay.is_some()),
            ("timeout", self.timeout.is_some()),
            ("retries", self.retries.is_some()),
            ("keys", self.keys.is_some()),
            ("zipf", self.zipf.is_some()),
            ("requests", self.requests.is_some()),
            ("duration", self.duration.is_some()),
            ("warmup", self.warmup.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// The scenario of the flags.
    pub fn scenario(&self) -> Result<Scenario, String> {
        let arrivals = self.arrivals.clone().unwrap_or_default();
        let open = !matches!(arrivals, Arrivals::Closed { .. } | Arrivals::Trace { .. });
        let loads = if open && self.load.is_empty() { vec![0.9] } else { self.load.clone() };
        let count = self.servers.unwrap_or(100);
        let dispatchers = self.dispatchers.unwrap_or(1);
        let view = match (self.staleness, self.view) {
            (Some(_), _) => View::Board,
            (None, Some(Sight::Own)) => View::Own,
            (None, Some(Sight::Shared)) => View::Shared,
            (None, None) if dispatchers > 1 => View::Own,
            (None, None) => View::Shared,
        };
        let requests = Requests {
            timeout: self.timeout,
            retries: self.retries.unwrap_or(0),
            keys: self.keys.unwrap_or(Requests::default().keys),
            zipf: self.zipf.unwrap_or(0.0),
            ..Requests::default()
        };
        Ok(Scenario {
            name: String::new(),
            description: String::new(),
            algorithms: self.algorithms()?,
            loads,
            seed: self.seed.unwrap_or(1),
            replications: self.replications.unwrap_or(if count > MANY { 3 } else { 10 }),
            run: Run { duration: self.duration, requests: self.requests, warmup: self.warmup },
            arrivals,
            service: self.service.clone().unwrap_or_default(),
            servers: self.groups(count),
            dispatchers: Dispatchers {
                count: dispatchers,
                view,
                refresh: self.staleness.unwrap_or(Dispatchers::default().refresh),
            },
            network: Network { delay: self.delay.unwrap_or_default(), ..Network::default() },
            requests,
            reports: Default::default(),
            events: Vec::new(),
        })
    }

    fn algorithms(&self) -> Result<Vec<String>, String> {
        let some = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let algorithms = match (&self.algorithm[..], self.choices) {
            ([], None) => some(&["random", "round_robin", "two_choices", "least_conn"]),
            ([], Some(_)) => some(&["two_choices"]),
            (given, _) => joined(given),
        };
        let Some(choices) = self.choices else { return Ok(algorithms) };
        let takes = |text: &str| {
            let name = text.split_whitespace().next().unwrap_or_default();
            let entry = balanza_balancing::registry::find(name);
            entry.is_some_and(|entry| entry.parameters.iter().any(|p| p.name == "choices"))
        };
        if !algorithms.iter().any(|text| takes(text)) {
            return Err("--choices is for algorithms that draw some servers, as two_choices does".into());
        }
        Ok(algorithms
            .into_iter()
            .map(|text| match choices {
                _ if !takes(&text) => text,
                1 => "random".into(),
                _ => format!("{text} choices={choices}"),
            })
            .collect())
    }

    /// Servers in the order of their speeds and weights, in turn.
    fn groups(&self, count: u32) -> Vec<Servers> {
        let group = |i: u32, count: u32| Servers {
            count,
            speed: self.speeds.get(i as usize % self.speeds.len().max(1)).copied().unwrap_or(1.0),
            weight: self.weights.get(i as usize % self.weights.len().max(1)).copied().unwrap_or(1),
            concurrency: self.concurrency.unwrap_or(1),
            discipline: self.discipline.unwrap_or(Discipline::Fifo),
            ..Servers::default()
        };
        // So many different ones that follow each other; their order among themselves is of no account to the rest.
        let kinds = lcm(self.speeds.len().max(1) as u32, self.weights.len().max(1) as u32).min(count);
        (0..kinds).map(|i| group(i, count / kinds + u32::from(i < count % kinds))).collect()
    }
}

/// The commas of `round_robin weights=3,1` do not separate algorithms, whose names begin with a letter.
fn joined(words: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        match all.last_mut() {
            Some(last) if word.starts_with(|c: char| c.is_ascii_digit()) => *last = format!("{last},{word}"),
            _ => all.push(word.clone()),
        }
    }
    all
}

fn lcm(a: u32, b: u32) -> u32 {
    (1..=b).map(|k| a * k).find(|multiple| multiple % b == 0).unwrap_or(a)
}

fn discipline(text: &str) -> Result<Discipline, String> {
    match text {
        "fifo" => Ok(Discipline::Fifo),
        "ps" => Ok(Discipline::Ps),
        _ => Err("fifo (one after the other) or ps (processor sharing)".into()),
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number"))
}

/// `kind:value:…`, as the flag's help has it.
fn service(text: &str) -> Result<Service, String> {
    let words: Vec<&str> = text.split(':').collect();
    let time = |at: usize, otherwise: f64| match words.get(at) {
        Some(text) => text.parse::<Time>(),
        None => Ok(Time::from_secs(otherwise)),
    };
    let value = |at: usize, otherwise: f64| words.get(at).map_or(Ok(otherwise), |text| number(text));
    let (service, most) = match words[0] {
        "exponential" | "exp" => (Service::Exponential { mean: time(1, 1.0)? }, 2),
        "constant" => (Service::Constant { mean: time(1, 1.0)? }, 2),
        "uniform" => (Service::Uniform { from: time(1, 0.0)?, to: time(2, 2.0)? }, 3),
        "lognormal" => (Service::Lognormal { mean: time(1, 1.0)?, cv: value(2, 1.0)? }, 3),
        "pareto" => (Service::Pareto { mean: time(1, 1.0)?, shape: value(2, 2.5)? }, 3),
        "bimodal" => (Service::Bimodal { short: time(1, 0.5)?, long: time(2, 5.5)?, part: value(3, 0.1)? }, 4),
        "poisson" => (Service::Poisson { step: time(1, 0.1)?, mean: value(2, 0.99)? }, 3),
        "trace" if words.len() > 1 => return Ok(Service::Trace { file: text["trace:".len()..].into() }),
        _ => {
            let all = "exponential, constant, uniform, lognormal, pareto, bimodal, poisson or trace:FILE";
            return Err(format!("there is {all}"));
        }
    };
    if words.len() > most {
        return Err(format!("too many values after {}", words[0]));
    }
    Ok(service)
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    let words: Vec<&str> = text.split(':').collect();
    match words[..] {
        ["poisson"] => Ok(Arrivals::Poisson { rate: None }),
        ["deterministic"] => Ok(Arrivals::Deterministic { rate: None }),
        ["mmpp", burst, on, off] => {
            Ok(Arrivals::Mmpp { rate: None, burst: number(burst)?, on: on.parse()?, off: off.parse()? })
        }
        ["mmpp"] => {
            Ok(Arrivals::Mmpp { rate: None, burst: 5.0, on: Time::from_secs(10.0), off: Time::from_secs(90.0) })
        }
        ["closed", users] | ["closed", users, _] => {
            let users = users.parse().map_err(|_| format!("\"{users}\" is not a number of users"))?;
            let think = words.get(2).map_or(Ok(Time::default()), |think| think.parse())?;
            let think = Service::Exponential { mean: think };
            Ok(Arrivals::Closed { users: vec![users], think })
        }
        ["trace", _, ..] => Ok(Arrivals::Trace { file: text["trace:".len()..].into() }),
        _ => Err("there is poisson, deterministic, mmpp:BURST:ON:OFF, closed:USERS[:THINK] or trace:FILE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_service() {
        let second = Time::from_secs(1.0);
        assert_eq!(service("exponential"), Ok(Service::Exponential { mean: second }));
        assert_eq!(service("constant:10ms"), Ok(Service::Constant { mean: Time::from_secs(0.01) }));
        assert_eq!(service("lognormal:1s:2"), Ok(Service::Lognormal { mean: second, cv: 2.0 }));
        assert_eq!(service("constant:1s:2").unwrap_err(), "too many values after constant");
        assert!(service("gauss").unwrap_err().starts_with("there is exponential"));
        assert!(service("pareto:1s:x").is_err() && service("trace").is_err() && arrivals("mmpp:2").is_err());
    }

    #[test]
    fn choices() {
        let of = |flags: Flags| flags.scenario().map(|s| s.algorithms.join("; "));
        assert_eq!(of(Flags { choices: Some(1), ..Flags::default() }), Ok("random".into()));
        assert_eq!(of(Flags { choices: Some(3), ..Flags::default() }), Ok("two_choices choices=3".into()));
        assert!(of(Flags { choices: Some(3), algorithm: vec!["first".into()], ..Flags::default() }).is_err());
    }

    #[test]
    fn commas() {
        let words = ["random", "round_robin weights=3", "1", "first"].map(String::from);
        assert_eq!(joined(&words), ["random", "round_robin weights=3,1", "first"]);
    }

    #[test]
    fn speeds_and_weights_take_turns() {
        let flags = Flags { speeds: vec![1.0, 0.5], weights: vec![4, 2, 1], ..Flags::default() };
        let of = |n| flags.groups(n).iter().map(|g| (g.count, g.speed, g.weight)).collect::<Vec<_>>();
        assert_eq!(of(2), [(1, 1.0, 4), (1, 0.5, 2)]);
        assert_eq!(of(7)[..3], [(2, 1.0, 4), (1, 0.5, 2), (1, 1.0, 1)]);
        assert_eq!(flags.groups(100).iter().map(|g| g.count).sum::<u32>(), 100);
    }
}
