//! Where an experiment ran.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Facts about the machine and the programs, as pairs of name and value, in the order in which a report shows them:
/// processor, cores, memory, kernel, settings that matter (`net.core.somaxconn`), versions of all systems and tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name and value.
    pub facts: Vec<(String, String)>,
}

/// Settings of the kernel that decide what happens to connections, by their names in sysctl.
const SETTINGS: [&str; 7] = [
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.ip_local_port_range",
];

impl Environment {
    /// This machine now, with the programs that take part: name and version.
    pub fn examine(programs: Vec<(String, String)>) -> Environment {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                facts.push((name.to_owned(), value));
            }
        };
        let cpuinfo = read("/proc/cpuinfo");
        fact("date", Some(now()));
        fact("processor", entry(&cpuinfo, "model name"));
        fact("processors", std::thread::available_parallelism().ok().map(|count| count.to_string()));
        fact("pinned", Some(crate::process::pinning()));
        fact("memory", entry(&read("/proc/meminfo"), "MemTotal").map(|text| memory(&text)));
        let virtual_machine = entry(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
        fact("virtual machine", virtual_machine.then(|| "yes".into()));
        let release = read("/etc/os-release");
        fact("system", release.lines().find_map(|line| Some(line.strip_prefix("PRETTY_NAME=")?.replace('"', ""))));
        fact("kernel", Some(format!("{} {}", read("/proc/sys/kernel/osrelease").trim(), std::env::consts::ARCH)));
        for setting in SETTINGS {
            let value = read(&format!("/proc/sys/{}", setting.replace('.', "/")));
            fact(setting, Some(value.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        fact("open files", getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft.to_string()));
        for (name, version) in programs {
            fact(&name, Some(version));
        }
        // Figures of such a build are not the product's.
        fact("built", cfg!(debug_assertions).then(|| "without optimisation".into()));
        Environment { facts }
    }
}

/// Lets this process and those that it starts have as many open files as is allowed.
pub fn raise_limits() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // What stays is among the facts, and a load that meets it says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The time in RFC 3339, UTC, to the second.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Not every kernel has every file: what cannot be read is no fact.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `name : value`.
fn entry(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// `16303428 kB` as `15.5 GiB`.
fn memory(text: &str) -> String {
    match text.trim_end_matches(" kB").parse::<f64>() {
        Ok(kib) => format!("{:.1} GiB", kib / f64::from(1 << 20)),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let programs = vec![("NGINX".to_owned(), "1.22.1".to_owned()), ("HAProxy".to_owned(), String::new())];
        let Environment { facts } = Environment::examine(programs);
        let fact = |name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert!(fact("processors").unwrap().parse::<u32>().unwrap() >= 1);
        assert!(fact("memory").unwrap().ends_with(" GiB"), "{facts:?}");
        assert!(fact("net.core.somaxconn").unwrap().parse::<u32>().is_ok(), "{facts:?}");
        assert!(fact("kernel").unwrap().len() > 3 && fact("pinned").is_some(), "{facts:?}");
        assert_eq!((fact("NGINX"), fact("HAProxy")), (Some("1.22.1"), None));
        let date = fact("date").unwrap();
        assert!(date.parse::<jiff::Timestamp>().is_ok() && date.len() == 20, "{date}");
    }

    #[test]
    fn entries() {
        let text = "processor\t: 0\nmodel name\t: One: two\nprocessor\t: 1\n";
        assert_eq!(entry(text, "model name").unwrap(), "One: two");
        assert_eq!(entry(text, "model"), None);
        assert_eq!(memory("16303428 kB"), "15.5 GiB");
    }
}
