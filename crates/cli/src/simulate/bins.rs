//! `balanza simulate bins`: requests that never end.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use balanza_plot::columns;
use balanza_simulator::bins::{Ball, Question, bins};
use balanza_simulator::report;
use clap::Args;

use super::{prepare, screen};
use crate::output::print;

/// Balls into bins: distribute requests that never end, and show how even the distribution is.
///
/// Shows how many requests the server with the most requests has at the end, and
/// the standard deviation over the servers: means over the replications. --json
/// also has these by the number of requests so far.
///
///   balanza simulate bins --servers 8 --requests 10000 --weights poisson
///   balanza simulate bins --servers 1000000 --requests 1000000 --algorithm two_choices
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Number of servers
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    servers: u32,

    /// Number of requests
    #[arg(long, short = 'm', value_name = "M", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// An algorithm, with parameters as in nginx.conf; repeat it, or separate by commas, to compare several
    #[arg(
        long,
        short,
        value_name = "ALGORITHM",
        value_delimiter = ',',
        default_value = "random,round_robin,two_choices"
    )]
    algorithm: Vec<String>,

    /// Weights of the servers (5,1,1; loads are divided by them), or of the requests: unit, or poisson for
    /// 1 + 0.1 * Poisson(0.99), as in a web application
    #[arg(long, value_name = "WEIGHTS", value_parser = weights, default_value = "unit")]
    weights: Weights,

    /// Number of client addresses, for algorithms that use them
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: u32,

    /// Independent replications
    #[arg(long, short, value_name = "R", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    replications: u32,

    /// Seed of all random numbers
    #[arg(long, short, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Write report.html, its first picture as picture.svg, results.csv and results.json into this directory
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print JSON: a line for each algorithm
    #[arg(long)]
    json: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct Weights {
    servers: Vec<u32>,
    ball: Ball,
}

fn weights(text: &str) -> Result<Weights, String> {
    let of = |ball| Ok(Weights { servers: Vec::new(), ball });
    match text {
        "unit" => of(Ball::Unit),
        "poisson" => of(Ball::Poisson),
        list => {
            let number = |word: &str| word.parse().ok().filter(|weight| *weight > 0);
            let servers = list.split(',').map(number).collect::<Option<Vec<u32>>>();
            let wrong = "numbers of at least 1, separated by commas, or unit or poisson";
            Ok(Weights { servers: servers.ok_or(wrong)?, ball: Ball::Unit })
        }
    }
}

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let question = Question {
        algorithms: options.algorithm.clone(),
        servers: options.servers,
        requests: options.requests,
        weights: options.weights.servers.clone(),
        ball: options.weights.ball,
        keys: options.keys,
        seed: options.seed,
        replications: options.replications,
    };
    prepare(options.out.as_deref())?;
    let results = screen::watched(|progress| bins(&question, progress))?;
    if let Some(directory) = &options.out {
        report::write_bins(&results, directory).with_context(|| directory.display().to_string())?;
        eprintln!("balanza: the report is {}", directory.join("report.html").display());
    }
    if options.json {
        let lines = results.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        return print(&format!("{}\n", lines.join("\n")));
    }
    let mut text = format!("{} requests to {} servers, seed {}\n\n", options.requests, options.servers, options.seed);
    let with = |mean: f64, half: Option<f64>| match half {
        Some(half) => format!("{mean:.3} ± {half:.3}"),
        None => format!("{mean:.3}"),
    };
    let mut rows = vec![
        ["algorithm", "mean per server", "most on a server", "maximum", "standard deviation"]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(results.iter().map(|bins| {
        vec![
            bins.algorithm.clone(),
            format!("{:.3}", bins.mean_load),
            with(bins.max_load, bins.max_load_ci95),
            format!("{:.3}", bins.max_load_max),
            with(bins.sd, bins.sd_ci95),
        ]
    }));
    text.push_str(&columns(&rows, 1));
    let _ = writeln!(
        text,
        "\n±: half the width of the 95% confidence interval over {} replications. maximum: of all replications.",
        options.replications
    );
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_weights() {
        assert_eq!(weights("poisson"), Ok(Weights { servers: vec![], ball: Ball::Poisson }));
        assert_eq!(weights("5,1"), Ok(Weights { servers: vec![5, 1], ball: Ball::Unit }));
        assert!(weights("0").is_err() && weights("x").is_err() && weights("").is_err());
    }
}
