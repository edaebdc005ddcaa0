//! Which algorithm for which servers: every algorithm in every situation, by simulation.
//!
//! `make advice` simulates the table and writes it to data/advice.txt. docs/algorithms.md, `balanza algorithms --advise`
//! and the tests read it from there.

use std::fmt;
use std::str::FromStr;

use balanza_balancing::registry::{self, Entry, Host, Share};

use crate::result::Run;
use crate::{Error, Progress, Scenario, gallery};

/// The table that comes with the program.
const DATA: &str = include_str!("../data/advice.txt");

/// Forms of algorithms that behave differently enough to have a row of their own, after that of their default.
const FORMS: [&str; 4] =
    ["two_choices by=header", "two_choices choices=5", "least_time inflight=on", "prequal probe=/load"];

/// Why an algorithm has no row, if it has none.
pub fn left_out(entry: &Entry) -> Option<&'static str> {
    match (entry.share, entry.host) {
        (Share::Order, _) => Some("fills one server after the other, by their max_conns"),
        (_, Host::Program) => Some("asks a program of yours"),
        _ => None,
    }
}

/// More requests without an end than this part of the arrivals: the queues grow as long as the run lasts.
const UNFINISHED: f64 = 0.02;

/// Servers and requests of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The ready scenario.
    pub scenario: &'static str,
    /// Which of its loads.
    pub load: f64,
    /// The heading of its column.
    pub heading: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What is compared.
    pub measure: Measure,
}

/// What is compared in a situation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The mean time in system, relative to the best algorithm's.
    Time,
    /// The part of the requests that failed or were not answered in time, relative to that of `random`.
    Lost,
}

/// All situations, in the order of the columns.
#[rustfmt::skip]
pub const SITUATIONS: [Situation; 11] = {
    use Measure::{Lost, Time};
    const fn of(
        scenario: &'static str, load: f64, measure: Measure, heading: &'static str, what: &'static str,
    ) -> Situation {
        Situation { scenario, load, heading, what, measure }
    }
    [
        of("equal-servers", 0.8, Time, "equal", "ten equal servers, one balancer"),
        of("few-servers", 0.8, Time, "few", "two servers of four processors"),
        of("weighted-servers", 0.6, Time, "weights", "two of ten servers ten times faster, and weights that say so"),
        of("unweighted-servers", 0.6, Time, "no weights", "the same servers without weights"),
        of("one-slow-server", 0.7, Time, "one slow", "one of ten servers three times slower, equal weights"),
        of("cold-start", 0.7, Time, "cold start", "one of ten servers comes back with cold caches"),
        of("heavy-tails", 0.5, Time, "heavy tails", "a few very long requests among short ones"),
        of("many-balancers", 0.8, Time, "balancers", "ten balancers that do not know of each other, fifty servers"),
        of("stale-reports", 0.8, Time, "old reports", "servers that report their load every five seconds"),
        of("hung-server", 0.5, Lost, "one hung", "one of ten servers takes requests and does not answer"),
        of("fails-fast", 0.7, Lost, "one failing", "one of ten servers answers with status 500 at once"),
    ]
};

/// How good an algorithm is in a situation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// Near the best.
    Good,
    /// Usable.
    Fair,
    /// Clearly worse than others.
    Poor,
    /// Not to be used here.
    Bad,
}

impl Measure {
    /// The greatest relative figures that are good, fair and poor.
    pub fn limits(self) -> [f64; 3] {
        match self {
            Measure::Time => [1.25, 2.0, 5.0],
            Measure::Lost => [0.25, 1.1, 2.0],
        }
    }
}

/// What an algorithm gives in a situation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// Seconds, or a part of the requests.
    pub value: f64,
    /// The queues grow as long as the run lasts, so that the value says how long it was.
    pub unstable: bool,
}

/// A figure beside those of the other algorithms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// As it was measured.
    pub figure: Figure,
    /// By what the situation's [`Measure`] says; infinite if it is unstable.
    pub relative: f64,
    /// What that means.
    pub mark: Mark,
}

/// Every algorithm in every situation.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// An algorithm as after `balance` in nginx.conf, and a figure for each situation.
    pub rows: Vec<(String, Vec<Figure>)>,
}

/// The algorithms of the table: all of the registry but those left out, each followed by its other forms.
pub fn algorithms() -> Vec<String> {
    let compared = registry::entries().iter().filter(|entry| left_out(entry).is_none()).map(|entry| entry.name);
    let forms = |name: &'static str| {
        let others = FORMS.into_iter().filter(move |form| form.split(' ').next() == Some(name));
        std::iter::once(name).chain(others)
    };
    compared.flat_map(forms).map(String::from).collect()
}

impl Situation {
    /// Its scenario, with these algorithms.
    pub fn scenario(&self, algorithms: &[String]) -> Result<Scenario, Error> {
        let ready =
            gallery::find(self.scenario).ok_or_else(|| Error::value(format!("no scenario {}", self.scenario)))?;
        Ok(Scenario { algorithms: algorithms.to_vec(), loads: vec![self.load], ..ready.scenario()? })
    }

    /// What a run gives.
    pub fn figure(&self, run: &Run) -> Figure {
        let counts = &run.counts;
        let arrivals = counts.arrivals.max(1) as f64;
        match self.measure {
            Measure::Time => {
                let more = counts.in_system.saturating_sub(counts.carried) as f64;
                Figure { value: run.mean_time_in_system, unstable: more > UNFINISHED * arrivals }
            }
            Measure::Lost => Figure { value: (counts.errors + counts.timeouts) as f64 / arrivals, unstable: false },
        }
    }

    /// Simulates a column.
    pub fn simulate(&self, scenario: &Scenario) -> Result<Vec<Figure>, Error> {
        let comparison = crate::run(scenario, ".".as_ref(), &Progress::new())?;
        Ok(comparison.points.iter().flat_map(|point| &point.runs).map(|run| self.figure(run)).collect())
    }
}

impl Table {
    /// The table that comes with the program.
    pub fn ready() -> Result<Table, Error> {
        DATA.parse()
    }

    /// Simulates it anew; `begin` is told of each situation. Rows of other algorithms than `only` are kept, unless there is
    /// none.
    pub fn simulate(only: &[String], mut begin: impl FnMut(&Situation)) -> Result<Table, Error> {
        let kept = if only.is_empty() { Table { rows: Vec::new() } } else { Table::ready()? };
        let before = |name: &String| {
            kept.rows.iter().find(|row| row.0 == *name).filter(|_| !only.iter().any(|o| name.starts_with(o.as_str())))
        };
        let mut rows: Vec<_> =
            algorithms().into_iter().filter(|name| before(name).is_none()).map(|name| (name, Vec::new())).collect();
        let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
        for situation in &SITUATIONS {
            begin(situation);
            let column = situation.simulate(&situation.scenario(&names)?)?;
            rows.iter_mut().zip(column).for_each(|((_, figures), figure)| figures.push(figure));
        }
        let row = |name: String| {
            let new = rows.iter().find(|row| row.0 == name);
            new.or_else(|| before(&name)).cloned()
        };
        Ok(Table { rows: algorithms().into_iter().filter_map(row).collect() })
    }

    /// The figures of a situation beside each other, in the order of the rows.
    pub fn column(&self, situation: usize) -> Vec<Cell> {
        let figures = || self.rows.iter().map(|(_, figures)| figures[situation]);
        let measure = SITUATIONS[situation].measure;
        let unit = match measure {
            Measure::Time => figures().filter(|f| !f.unstable).fold(f64::INFINITY, |least, f| least.min(f.value)),
            Measure::Lost => self.rows.iter().find(|(name, _)| name == "random").map_or(1.0, |r| r.1[situation].value),
        };
        let cell = |figure: Figure| {
            let relative = if figure.unstable { f64::INFINITY } else { figure.value / unit };
            let marks = [Mark::Good, Mark::Fair, Mark::Poor];
            let mark = measure.limits().into_iter().zip(marks).find(|(limit, _)| relative <= *limit);
            Cell { figure, relative, mark: mark.map_or(Mark::Bad, |(_, mark)| mark) }
        };
        figures().map(cell).collect()
    }
}

/// As it is stored: a line for each algorithm, a column for each situation. `!` follows what is unstable.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# `make advice` writes this file. Mean time in system in seconds, or the part of the requests lost."
        )?;
        writeln!(f, "# An exclamation mark follows the figures of queues that grow as long as the run lasts.")?;
        write!(f, "{:28}", "algorithm")?;
        SITUATIONS.iter().try_for_each(|situation| write!(f, " {:>18}", situation.scenario))?;
        writeln!(f)?;
        for (algorithm, figures) in &self.rows {
            write!(f, "{:28}", algorithm.replace(' ', ","))?;
            for Figure { value, unstable } in figures {
                write!(f, " {:>18}", format!("{value:.4e}{}", if *unstable { "!" } else { "" }))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(text: &str) -> Result<Table, Error> {
        let wrong = |line: &str| Error::value(format!("data/advice.txt: \"{line}\" is not a row; run make advice"));
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let heading = lines.next().unwrap_or_default();
        if !heading.split_whitespace().skip(1).eq(SITUATIONS.iter().map(|situation| situation.scenario)) {
            return Err(wrong(heading));
        }
        let figure = |word: &str| {
            let value = word.trim_end_matches('!');
            Some(Figure { value: value.parse().ok()?, unstable: value.len() < word.len() })
        };
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let algorithm = words.next()?.replace(',', " ");
            let figures = words.map(figure).collect::<Option<Vec<_>>>()?;
            (figures.len() == SITUATIONS.len()).then_some((algorithm, figures))
        };
        let rows = lines.map(|line| row(line).ok_or_else(|| wrong(line))).collect::<Result<_, _>>()?;
        Ok(Table { rows })
    }
}
