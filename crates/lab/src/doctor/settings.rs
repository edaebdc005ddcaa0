//! Settings of the machine that spoil experiments quietly.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

/// A setting and whether experiments can do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As sysctl calls it, or in words.
    pub name: &'static str,
    /// What it is; none if the kernel does not say.
    pub value: Option<String>,
    /// Whether that is enough; true where nothing is known.
    pub good: bool,
    /// What happens otherwise, and the command.
    pub advice: String,
}

/// The longest listen queue of a plan: NGINX's own, which no server exceeds.
const QUEUE: u64 = 511;

/// Connections of a load of 500 users in both directions through a balancer, with room.
const FILES: u64 = 4096;

/// Ports for connections that are not used again: 1000 a second for the minute that the kernel keeps each, less those of
/// a source address and a target that are free at once.
const PORTS: u64 = 20_000;

pub(super) fn examine() -> Vec<Setting> {
    let files = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard);
    let processors = std::thread::available_parallelism().ok().map(|count| count.get() as u64);
    vec![
        setting(
            "open files",
            files,
            FILES,
            "many users will lack descriptors. As root, or in /etc/security/limits.conf: ulimit -Hn 65536",
        ),
        setting(
            "net.core.somaxconn",
            sysctl("net/core/somaxconn").and_then(|text| text.parse().ok()),
            QUEUE,
            "cuts the servers' listen queues off. As root: sysctl -w net.core.somaxconn=4096",
        ),
        Setting {
            value: sysctl("net/ipv4/ip_local_port_range"),
            ..setting(
                "net.ipv4.ip_local_port_range",
                sysctl("net/ipv4/ip_local_port_range").and_then(|text| ports(&text)),
                PORTS,
                "ports run out where each request has a connection of its own. As root: sysctl -w net.ipv4.ip_local_port_range=\"10000 65000\"",
            )
        },
        setting(
            "processors",
            processors,
            2,
            "balancer, servers and load share one: compare algorithms, not systems, and no absolute figures",
        ),
    ]
}

fn setting(name: &'static str, value: Option<u64>, least: u64, advice: &str) -> Setting {
    let good = value.is_none_or(|value| value >= least);
    let show = |value: u64| if value >= u64::MAX >> 1 { "unlimited".into() } else { value.to_string() };
    Setting { name, value: value.map(show), good, advice: if good { String::new() } else { advice.into() } }
}

/// A file below /proc/sys, with single blanks.
fn sysctl(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// How many ports are from the first to the last.
fn ports(range: &str) -> Option<u64> {
    let (first, last) = range.split_once(' ')?;
    (last.parse::<u64>().ok()? + 1).checked_sub(first.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_comes_with_advice() {
        let poor = setting("open files", Some(256), FILES, "more");
        assert_eq!((poor.good, poor.advice.as_str()), (false, "more"));
        let good = setting("open files", Some(FILES), FILES, "more");
        assert_eq!((good.good, good.advice.as_str()), (true, ""));
        assert!(setting("open files", None, FILES, "more").good);
        assert_eq!(setting("open files", Some(u64::MAX), FILES, "").value.as_deref(), Some("unlimited"));
    }

    #[test]
    fn a_range_of_ports_is_counted() {
        assert_eq!(ports("32768 60999"), Some(28232));
        assert_eq!(ports("60999 32768"), None);
        assert_eq!(ports("32768"), None);
    }
}
