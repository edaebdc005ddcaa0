//! What this machine has of what experiments need, and the commands that install the rest.

mod settings;

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::plan::{Plan, System, Tool};
use crate::system::{Program, Programs};
use crate::tools;

pub use settings::Setting;

/// A program or a module that some plans need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is called.
    pub name: &'static str,
    /// Where it is; none if it is missing.
    pub path: Option<PathBuf>,
    /// What it says of itself.
    pub version: Option<String>,
    /// What a plan says that needs it: `system nginx`, `tool ab`.
    pub needed_for: &'static str,
    /// The built-in plans that say so.
    pub plans: Vec<&'static str>,
    /// The command that installs it.
    pub install: &'static str,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// Programs, those of systems first.
    pub programs: Vec<Finding>,
    /// Settings of the machine.
    pub settings: Vec<Setting>,
}

const PACKAGE: &str = "apt-get install ";
const LOCUST: &str = "scripts/install-lab-tools.sh";

/// Which built-in plans have a system or a load's tool.
struct Plans(Vec<(&'static str, Plan)>);

impl Plans {
    fn read() -> Plans {
        let parsed = Plan::built_in().iter().map(|plan| Some((plan.name, Plan::parse(plan.text).ok()?)));
        Plans(parsed.flatten().collect())
    }

    fn that(&self, need: impl Fn(&Plan) -> bool) -> Vec<&'static str> {
        self.0.iter().filter(|(_, plan)| need(plan)).map(|(name, _)| *name).collect()
    }

    fn with_system(&self, system: &System) -> Vec<&'static str> {
        self.that(|plan| plan.systems.contains(system))
    }

    fn with_tool(&self, tool: Tool) -> Vec<&'static str> {
        self.that(|plan| plan.loads.iter().any(|load| load.tool == tool))
    }
}

/// Looks at this machine. Each program is started once, for its version.
pub fn examine() -> Examination {
    let (found, plans) = (Programs::find(), Plans::read());
    let program = |name, system, needed_for, install, program: Option<Program>| Finding {
        name,
        version: program.as_ref().map(|program| program.version.clone()).filter(|version| !version.is_empty()),
        path: program.map(|program| program.path),
        needed_for,
        plans: plans.with_system(&system),
        install,
    };
    let tool = |name, tool, needed_for, install| Finding {
        name,
        path: tools::program(tool),
        version: tools::version(tool),
        needed_for,
        plans: plans.with_tool(tool),
        install,
    };
    let module = found.module.filter(|path| path.is_file()).map(|path| Program { path, version: String::new() });
    let programs = vec![
        program("NGINX", System::Nginx, "system nginx", "apt-get install nginx", found.nginx),
        program("NGINX module", System::NginxBalanza, "system nginx+balanza", "make nginx-module", module),
        program("HAProxy", System::Haproxy, "system haproxy", "apt-get install haproxy", found.haproxy),
        program("Caddy", System::Caddy, "system caddy, --peers", "apt-get install caddy", found.caddy),
        tool("ab", Tool::Ab, "tool ab", "apt-get install apache2-utils"),
        tool("siege", Tool::Siege, "tool siege", "apt-get install siege"),
        tool("httperf", Tool::Httperf, "tool httperf", "apt-get install httperf"),
        tool("wrk", Tool::Wrk, "tool wrk", "apt-get install wrk"),
        tool("Locust", Tool::Locust, "tool locust", LOCUST),
    ];
    Examination { programs, settings: settings::examine() }
}

impl Examination {
    /// The programs that are not there.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.programs.iter().filter(|finding| finding.path.is_none())
    }

    /// The commands that install what is missing, Debian's packages in one.
    pub fn commands(&self) -> Vec<String> {
        let mut packages = Vec::new();
        let mut commands = Vec::new();
        for finding in self.missing() {
            match finding.install.strip_prefix(PACKAGE) {
                Some(package) => packages.push(package),
                None => commands.push(finding.install.to_owned()),
            }
        }
        if !packages.is_empty() {
            commands.insert(0, format!("{PACKAGE}{}", packages.join(" ")));
        }
        commands
    }

    /// For a terminal: two tables, and what to do.
    pub fn text(&self) -> String {
        let mut rows: Vec<[String; 4]> = Vec::new();
        for finding in &self.programs {
            let path = finding.path.as_ref().map_or_else(|| "missing".into(), |path| path.display().to_string());
            let version = finding.version.clone().unwrap_or_default();
            rows.push([finding.name.into(), version, finding.needed_for.into(), path]);
        }
        let mut text = columns(&rows);
        text.push('\n');
        let row = |setting: &Setting| {
            let state = if setting.good { "good" } else { "poor" };
            [
                setting.name.into(),
                setting.value.clone().unwrap_or_else(|| "unknown".into()),
                state.into(),
                String::new(),
            ]
        };
        text += &columns(&self.settings.iter().map(row).collect::<Vec<_>>());
        for setting in self.settings.iter().filter(|setting| !setting.good) {
            let _ = write!(text, "\n{}: {}\n", setting.name, setting.advice);
        }
        let commands = self.commands();
        if commands.is_empty() {
            text += "\nEverything is here.\n";
        } else {
            text.push('\n');
            for finding in self.missing() {
                let Finding { name, needed_for, plans, .. } = finding;
                let _ = match &plans[..] {
                    [] => writeln!(text, "Without {name}: no {needed_for}."),
                    plans => writeln!(text, "Without {name}: no {needed_for}, as in {}.", plans.join(", ")),
                };
            }
            text += "\nTo install what is missing:\n\n";
            for command in commands {
                let _ = writeln!(text, "  {command}");
            }
        }
        text
    }

    /// The same for programs, with the commands.
    pub fn json(&self) -> String {
        let mut value = serde_json::json!(self);
        value["commands"] = serde_json::json!(self.commands());
        format!("{value:#}\n")
    }
}

/// Left-aligned columns, without blanks at the end of a line.
fn columns(rows: &[[String; 4]]) -> String {
    let widths: [usize; 4] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &'static str, path: Option<&str>, install: &'static str) -> Finding {
        let version = path.map(|_| "1.2".to_owned());
        let plans = if name == "wrk" { vec!["one-2021", "two-2023"] } else { Vec::new() };
        Finding { name, path: path.map(PathBuf::from), version, needed_for: "tool x", plans, install }
    }

    fn some_missing() -> Examination {
        let setting = |name, value: Option<&str>, good, advice: &str| Setting {
            name,
            value: value.map(str::to_owned),
            good,
            advice: advice.into(),
        };
        Examination {
            programs: vec![
                finding("NGINX", Some("/usr/sbin/nginx"), "apt-get install nginx"),
                finding("ab", None, "apt-get install apache2-utils"),
                finding("Locust", None, LOCUST),
                finding("wrk", None, "apt-get install wrk"),
            ],
            settings: vec![
                setting("net.core.somaxconn", Some("4096"), true, ""),
                setting("open files", Some("256"), false, "ulimit -n 8192"),
                setting("processors", None, true, ""),
            ],
        }
    }

    #[test]
    fn what_is_missing_comes_with_its_command() {
        insta::assert_snapshot!(some_missing().text());
    }

    #[test]
    fn json_has_the_same() {
        insta::assert_snapshot!(some_missing().json());
    }

    #[test]
    fn nothing_missing_is_said() {
        let whole = Examination { programs: vec![finding("ab", Some("/usr/bin/ab"), "")], settings: Vec::new() };
        assert!(whole.text().ends_with("\nEverything is here.\n"));
        assert_eq!(whole.commands(), Vec::<String>::new());
    }

    #[test]
    fn plans_are_known_that_need_something() {
        let plans = Plans::read();
        assert!(plans.with_tool(Tool::Ab).contains(&"unne-2023"));
        assert!(!plans.with_tool(Tool::Ab).contains(&"bhat-2021"));
        assert!(plans.with_system(&System::NginxBalanza).contains(&"earlham-2017"));
    }

    /// Tests need all but the module and Caddy, and say so.
    #[test]
    fn this_machine_has_the_tools() {
        let examination = examine();
        let optional = ["NGINX module", "Caddy"];
        let missing = examination.missing().map(|finding| finding.name).filter(|name| !optional.contains(name));
        let missing: Vec<&str> = missing.collect();
        assert!(missing.is_empty(), "make lab-tools installs: {missing:?}");
        for finding in
            examination.programs.iter().filter(|finding| finding.path.is_some() && finding.name != "NGINX module")
        {
            assert!(
                finding.version.as_ref().is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit())),
                "{finding:?}"
            );
        }
    }
}
