//! What is wrong with a plan that is well formed.

use std::collections::BTreeSet;

use balanza_balancing::registry::{Method, MethodError};
use balanza_config::{Diagnostic, Severity, nearest};
use balanza_toml::Places;
use clap::{CommandFactory, Parser};

use super::claims::validate;
use super::events::problems_of_events;
use super::loads::problems_of_a_load;
use super::{Algorithm, Farm, Plan, Reported, Selection, Server, System};
use crate::expression;
use crate::metrics::METRICS;
use crate::target;

/// Options of `balanza target` that the lab gives itself.
const OF_THE_LAB: [(&str, &str); 5] = [
    ("name", "the server's name says it"),
    ("count", "write it beside the server's name"),
    ("listen", "the lab takes free ports"),
    ("control", "the lab takes free ports"),
    ("seed", "the plan's seed gives each server its own"),
];

/// All problems of a plan.
pub(super) fn problems(plan: &Plan, places: &Places) -> Vec<Diagnostic> {
    let mut check = Check { plan, places, problems: Vec::new() };
    check.head();
    check.farms();
    check.algorithms();
    check.loads();
    check.selections("cells", &plan.cells);
    check.selections("quick.cells", &plan.quick.cells);
    check.checks();
    check.reported();
    check.problems
}

struct Check<'a> {
    plan: &'a Plan,
    places: &'a Places<'a>,
    problems: Vec<Diagnostic>,
}

impl Check<'_> {
    fn wrong(&mut self, path: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(self.places.problem(path, message, hint));
    }

    fn head(&mut self) {
        let plan = self.plan;
        if !is_slug(&plan.name) {
            let hint = "lower-case letters, digits and hyphens, as in unicamp-2021";
            self.wrong("name", format!("\"{}\" is no name for a plan", plan.name), hint);
        }
        if plan.repetitions == 0 {
            self.wrong("repetitions", "nothing is measured in 0 repetitions", "3 or more give intervals");
        }
        if plan.quick.repetitions == Some(0) {
            self.wrong("quick.repetitions", "nothing is measured in 0 repetitions", "3 or more give intervals");
        }
        let lists = [
            ("farms", plan.farms.is_empty()),
            ("systems", plan.systems.is_empty()),
            ("algorithms", plan.algorithms.is_empty()),
            ("loads", plan.loads.is_empty()),
        ];
        for (list, empty) in lists {
            if empty {
                self.wrong(list, format!("there are no {list}"), "a plan needs one at least");
            }
        }
        self.unique("systems", plan.systems.iter().map(System::name), "");
        self.unique("farms", plan.farms.iter().map(|farm| farm.name.as_str()), ".name");
        self.unique("algorithms", plan.algorithms.iter().map(|algorithm| algorithm.name.as_str()), ".name");
        self.unique("loads", plan.loads.iter().map(|load| load.name.as_str()), ".name");
        self.unique("checks", plan.checks.iter().map(|check| check.name.as_str()), ".name");
    }

    /// Names that are there once, and can be written on a command line (`--only load=250,system=nginx`).
    fn unique<'n>(&mut self, list: &str, names: impl Iterator<Item = &'n str>, field: &str) {
        let mut seen = BTreeSet::new();
        for (at, name) in names.enumerate() {
            let path = format!("{list}.{at}{field}");
            if !seen.insert(name) {
                self.wrong(&path, format!("a second \"{name}\" among the {list}"), "each name is there once");
            }
            if name.is_empty() || name.contains([',', '=', '"']) || name.contains(char::is_control) {
                self.wrong(&path, format!("\"{name}\" is no name"), "one that is not empty, without , = and \"");
            }
            if list == "checks" && !is_slug(name) {
                self.wrong(&path, format!("\"{name}\" is no name"), "lower-case letters, digits and hyphens");
            }
        }
    }

    fn farms(&mut self) {
        for (at, farm) in self.plan.farms.iter().enumerate() {
            if farm.servers.is_empty() {
                self.wrong(&format!("farms.{at}"), format!("the farm \"{}\" has no servers", farm.name), "");
            }
            let mut seen = BTreeSet::new();
            for (number, server) in farm.servers.iter().enumerate() {
                let path = format!("farms.{at}.servers.{number}");
                for name in server.names() {
                    if !seen.insert(name.clone()) {
                        self.wrong(&path, format!("a second server \"{name}\" in the farm"), "");
                    }
                }
                self.server(&path, server);
            }
            for (field, message, hint) in problems_of_events(farm, &self.plan.loads) {
                self.wrong(&format!("farms.{at}.events.{field}"), message, hint);
            }
        }
    }

    fn server(&mut self, path: &str, server: &Server) {
        let name = &server.name;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && !b",=\"/".contains(&byte)) {
            let hint = "printable ASCII without spaces and , = / \": it travels in a header";
            self.wrong(&format!("{path}.name"), format!("\"{name}\" is no name for a server"), hint);
        }
        if !(1..=1000).contains(&server.count) {
            self.wrong(&format!("{path}.count"), format!("{} servers", server.count), "between 1 and 1000");
        }
        if let Some(address) = &server.address {
            self.address(path, server, address);
            return;
        }
        let mine = OF_THE_LAB.iter().filter(|(option, _)| server.target.contains_key(*option));
        let mine: Vec<_> = mine.collect();
        for (option, reason) in &mine {
            let message = format!("a plan does not say the option \"{option}\"");
            self.wrong(&format!("{path}.target.{option}"), message, *reason);
        }
        if mine.is_empty()
            && let Err((option, message, hint)) = target_options(server)
        {
            let path = option.map_or(format!("{path}.target"), |option| format!("{path}.target.{option}"));
            self.wrong(&path, message, hint);
        }
    }

    fn address(&mut self, path: &str, server: &Server, address: &str) {
        if address.parse::<std::net::SocketAddr>().is_err() {
            let message = format!("\"{address}\" is not an address with a port");
            self.wrong(&format!("{path}.address"), message, "as in 192.0.2.7:8080 or [2001:db8::7]:8080");
        }
        if server.count > 1 {
            self.wrong(&format!("{path}.count"), "several servers at one address", "give each its own entry");
        }
        if !server.target.is_empty() {
            let hint = "they are of the lab's own servers: leave out either \"address\" or \"target\"";
            self.wrong(&format!("{path}.target"), "a server of one's own has no target's options", hint);
        }
    }

    fn algorithms(&mut self) {
        for (at, algorithm) in self.plan.algorithms.iter().enumerate() {
            let path = format!("algorithms.{at}");
            if let Err(MethodError { message, hint, .. }) = algorithm.method() {
                let hint = hint.unwrap_or_else(|| "balanza algorithms NAME explains the parameters".into());
                self.wrong(&format!("{path}.balance"), message, hint);
            }
            if algorithm.weights.contains(&0) {
                self.wrong(&format!("{path}.weights"), "a weight of 0", "weights are 1 or more");
            }
            for (number, system) in algorithm.systems.iter().enumerate() {
                self.system(&format!("{path}.systems.{number}"), system);
            }
            self.fits(&path, algorithm);
        }
    }

    /// An algorithm that no farm suits is a slip; one that suits some is run there.
    fn fits(&mut self, path: &str, algorithm: &Algorithm) {
        let reasons: Vec<String> = self.plan.farms.iter().filter_map(|farm| farm.chosen(algorithm).err()).collect();
        let (Some(reason), true) = (reasons.first(), reasons.len() == self.plan.farms.len()) else { return };
        let servers: Vec<String> = self.plan.farms.iter().flat_map(Farm::names).collect();
        let lacks = |wanted: &&String| !servers.contains(*wanted);
        let (field, hint) = if let Some(unknown) = algorithm.servers.iter().find(lacks) {
            ("servers", near(unknown, &servers))
        } else if let Some(unknown) = algorithm.reaches.iter().find(lacks) {
            ("reaches", near(unknown, &servers))
        } else {
            ("weights", "one for each server, counted servers one by one".into())
        };
        self.wrong(&format!("{path}.{field}"), reason.clone(), hint);
    }

    fn loads(&mut self) {
        for (at, load) in self.plan.loads.iter().enumerate() {
            for (field, message, hint) in problems_of_a_load(load) {
                self.wrong(&format!("loads.{at}.{field}"), message, hint);
            }
        }
    }

    fn selections(&mut self, list: &str, selections: &[Selection]) {
        for (at, selection) in selections.iter().enumerate() {
            let plan = self.plan;
            let parts = [
                ("farms", &selection.farms, plan.farms.iter().map(|part| part.name.clone()).collect::<Vec<_>>()),
                ("algorithms", &selection.algorithms, plan.algorithms.iter().map(|part| part.name.clone()).collect()),
                ("loads", &selection.loads, plan.loads.iter().map(|part| part.name.clone()).collect()),
            ];
            for (part, wanted, known) in parts {
                for (number, name) in wanted.iter().flatten().enumerate() {
                    self.known(&format!("{list}.{at}.{part}.{number}"), part, name, &known);
                }
            }
            for (number, system) in selection.systems.iter().flatten().enumerate() {
                self.system(&format!("{list}.{at}.systems.{number}"), system);
            }
        }
    }

    fn checks(&mut self) {
        for (at, check) in self.plan.checks.iter().enumerate() {
            for (number, system) in check.systems.iter().enumerate() {
                self.system(&format!("checks.{at}.systems.{number}"), system);
            }
            let errors = match expression::parse(&check.expression) {
                Ok(parsed) => validate(&parsed, self.plan),
                Err(error) => vec![error],
            };
            let path = format!("checks.{at}.expression");
            for error in errors {
                let place = self.places.inside(&path, &check.expression, error.place).or_else(|| self.places.of(&path));
                let (message, hint) = (error.message, error.hint);
                self.problems.push(Diagnostic { severity: Severity::Error, message, place, hint, places: 1 });
            }
        }
    }

    fn reported(&mut self) {
        let plan = self.plan;
        let algorithms: Vec<String> = plan.algorithms.iter().map(|algorithm| algorithm.name.clone()).collect();
        let loads: Vec<String> = plan.loads.iter().map(|load| load.name.clone()).collect();
        let farms: Vec<String> = plan.farms.iter().map(|farm| farm.name.clone()).collect();
        for (at, reported) in plan.reported.iter().enumerate() {
            let path = format!("reported.{at}");
            let Reported { algorithm, load, farm, system, .. } = reported;
            self.known(&format!("{path}.algorithm"), "algorithms", algorithm, &algorithms);
            for (field, list, name, known) in [("load", "loads", load, &loads), ("farm", "farms", farm, &farms)] {
                match name {
                    Some(name) => self.known(&format!("{path}.{field}"), list, name, known),
                    None if known.len() > 1 => {
                        let hint = format!("{field} = one of: {}", known.join(", "));
                        self.wrong(&path, format!("which of the {list}?"), hint);
                    }
                    None => {}
                }
            }
            if let Some(system) = system {
                self.system(&format!("{path}.system"), system);
            }
            for metric in reported.values.keys() {
                let metrics = METRICS.iter().map(|metric| metric.name);
                let name = metric.strip_suffix("_sd").unwrap_or(metric);
                if !metrics.clone().any(|known| known == name || known == metric) {
                    let known: Vec<String> = metrics.map(str::to_owned).collect();
                    let message = format!("\"{metric}\" is neither a part of what is reported nor a metric");
                    self.wrong(&format!("{path}.{metric}"), message, near(name, &known));
                }
            }
        }
    }

    fn known(&mut self, path: &str, list: &str, name: &str, known: &[String]) {
        if !known.iter().any(|known| known == name) {
            self.wrong(path, format!("there is no \"{name}\" among the {list}"), near(name, known));
        }
    }

    fn system(&mut self, path: &str, system: &System) {
        if !self.plan.systems.contains(system) {
            let names: Vec<String> = self.plan.systems.iter().map(|system| system.name().to_owned()).collect();
            self.known(path, "systems", system.name(), &names);
        }
    }
}

/// What may be meant, or what there is.
pub(super) fn near(name: &str, known: &[String]) -> String {
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("there are: {}", known.join(", ")),
    }
}

fn is_slug(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.bytes().all(allowed) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

impl Algorithm {
    /// The algorithm and its parameters.
    pub fn method(&self) -> Result<Method<'_>, MethodError> {
        let method = Method::parse(&self.balance)?;
        method.lacks_key().map_or(Ok(method), Err)
    }
}

#[derive(Parser)]
struct Target {
    #[command(flatten)]
    options: target::Options,
}

/// Whether `balanza target` understands its options. Errors: the option if it is known, what is wrong, what to do.
fn target_options(server: &Server) -> Result<(), (Option<String>, String, String)> {
    let known: Vec<String> = Target::command().get_arguments().map(|argument| argument.get_id().to_string()).collect();
    let known: Vec<String> = known.iter().map(|name| name.replace('_', "-")).collect();
    if let Some(unknown) = server.target.keys().find(|option| !known.contains(option)) {
        let message = format!("balanza target has no option \"{unknown}\"");
        return Err((Some(unknown.clone()), message, near(unknown, &known)));
    }
    let words = std::iter::once("target".to_owned()).chain(server.arguments());
    let message = match Target::try_parse_from(words) {
        Ok(target) => match target.options.targets() {
            Ok(_) => return Ok(()),
            Err(error) => format!("{error:#}"),
        },
        Err(error) => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").replace('\'', "\"")
        }
    };
    let named =
        |option: &&String| message.split([' ', '"', ',', ':']).any(|word| word.strip_prefix("--") == Some(option));
    let option = server.target.keys().find(named).cloned();
    Err((option, message, "balanza target --help explains the options".into()))
}
