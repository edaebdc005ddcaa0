//! Settings of the kernel for connections. The texts are those of files in /proc/sys.

use super::finding::Finding;
use super::needs::Needs;

/// The command that sets a value.
fn sysctl(name: &str, value: impl std::fmt::Display) -> String {
    format!("sysctl -w {name}={value}")
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.trim().parse().ok()
}

/// Whether the queue of a listening socket may be as long as `backlog` says. `somaxconn` is net.core.somaxconn.
pub fn backlog(wanted: Option<i32>, somaxconn: Option<&str>) -> Finding {
    const CHECK: &str = "listen backlog";
    let Some(wanted) = wanted.and_then(|wanted| u64::try_from(wanted).ok()) else {
        return Finding::fine(CHECK, "no listen for TCP");
    };
    let Some(most) = number(somaxconn) else { return Finding::unknown(CHECK, "net.core.somaxconn cannot be read") };
    if most >= wanted {
        return Finding::fine(CHECK, format!("{wanted}, net.core.somaxconn is {most}"));
    }
    let found = format!("{wanted} is cut to {most} by net.core.somaxconn: a burst of connections is refused earlier");
    Finding::warning(CHECK, found, sysctl("net.core.somaxconn", wanted))
}

/// The first and the last of the ports for outgoing connections.
fn range(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next()?, numbers.next()?) {
        (Ok(first), Ok(last)) if first <= last => Some((first, last)),
        _ => None,
    }
}

/// Whether there are ports for the connections to servers. `text` is net.ipv4.ip_local_port_range.
pub fn local_ports(needs: &Needs, threads: usize, text: Option<&str>) -> Finding {
    const CHECK: &str = "local ports";
    let Some((first, last)) = text.and_then(range) else {
        return Finding::unknown(CHECK, "net.ipv4.ip_local_port_range cannot be read");
    };
    let count = last - first + 1;
    if needs.servers == 0 {
        return Finding::fine(CHECK, format!("{count}; no server is reached by TCP/IP"));
    }
    // A port is free for each server. Half of the connections are those of clients.
    let wanted = needs.all_connections(threads) / 2 / needs.servers as u64;
    if count >= wanted {
        return Finding::fine(CHECK, format!("{count} to each of {} servers", needs.servers));
    }
    let found = format!(
        "{count} to each server ({first}-{last}); {} connections may need {wanted}: requests would get 502",
        needs.all_connections(threads)
    );
    let fix = sysctl("net.ipv4.ip_local_port_range", "\"1024 65535\"");
    let fix = if count >= 64000 { "more servers, or proxy_bind with several addresses".to_string() } else { fix };
    Finding::warning(CHECK, found, fix)
}

/// Whether a port of the configuration may be in use by an outgoing connection when the program starts. `reserved` is
/// net.ipv4.ip_local_reserved_ports.
pub fn reserved_ports(needs: &Needs, ports: Option<&str>, reserved: Option<&str>) -> Finding {
    const CHECK: &str = "listening ports";
    let Some((first, last)) = ports.and_then(range) else {
        return Finding::unknown(CHECK, "net.ipv4.ip_local_port_range cannot be read");
    };
    let reserved = reserved.unwrap_or_default().trim();
    let is_reserved = |port: u64| {
        reserved.split(',').any(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            matches!((from.parse::<u64>(), to.parse::<u64>()), (Ok(from), Ok(to)) if (from..=to).contains(&port))
        })
    };
    let inside = |port: &u64| (first..=last).contains(port) && !is_reserved(*port);
    let open: Vec<String> =
        needs.ports.iter().map(|port| u64::from(*port)).filter(inside).map(|p| p.to_string()).collect();
    if open.is_empty() {
        return Finding::fine(CHECK, format!("none is among the ports of outgoing connections ({first}-{last})"));
    }
    let list = open.join(",");
    let found = format!("an outgoing connection may have {list} ({first}-{last}) when balanza starts");
    let all = if reserved.is_empty() { list } else { format!("{reserved},{list}") };
    Finding::warning(CHECK, found, sysctl("net.ipv4.ip_local_reserved_ports", all))
}

/// Whether ports of closed connections are used again. `text` is net.ipv4.tcp_tw_reuse.
pub fn time_wait(needs: &Needs, text: Option<&str>) -> Finding {
    const CHECK: &str = "tcp_tw_reuse";
    let kept = "connections to servers are kept, so that few are closed";
    match (text.map(str::trim), needs.short_connections) {
        (None, _) => Finding::unknown(CHECK, "net.ipv4.tcp_tw_reuse cannot be read"),
        (Some(value), false) => Finding::fine(CHECK, format!("{value}; {kept}")),
        (Some("1"), true) => Finding::fine(CHECK, "1: ports of closed connections are used again after a second"),
        (Some(value), true) => {
            let whose = if value == "2" { " except on the loopback interface" } else { "" };
            let found = format!("{value}: a port of a closed connection to a server is not used for a minute{whose}");
            Finding::warning(CHECK, found, sysctl("net.ipv4.tcp_tw_reuse", 1))
        }
    }
}

/// Whether the kernel spreads connections over threads. `release` is kernel.osrelease.
pub fn reuseport(release: Option<&str>) -> Finding {
    const CHECK: &str = "reuseport";
    let Some(release) = release.map(str::trim) else {
        return Finding::unknown(CHECK, "the kernel's version is unknown");
    };
    let mut parts = release.split(|char: char| !char.is_ascii_digit()).map(str::parse);
    match (parts.next(), parts.next()) {
        // 4.19 is the oldest kernel that is still in use with everything that the sockets need.
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (3_u32, 9_u32) => {
            Finding::error(CHECK, format!("Linux {release} lacks SO_REUSEPORT"), "a kernel of 4.19 or later")
        }
        (Some(Ok(_)), Some(Ok(_))) => {
            Finding::fine(CHECK, format!("Linux {release}: a listening socket for each thread"))
        }
        _ => Finding::unknown(CHECK, format!("the kernel's version is \"{release}\"")),
    }
}

/// Whether the firewall can remember the connections. The texts are net.netfilter.nf_conntrack_max and …_count, which a
/// machine without connection tracking does not have.
pub fn conntrack(needs: &Needs, threads: usize, max: Option<&str>, count: Option<&str>) -> Finding {
    const CHECK: &str = "conntrack";
    let (Some(max), count) = (number(max), number(count).unwrap_or(0)) else {
        return Finding::fine(CHECK, "connections are not tracked");
    };
    let wanted = needs.all_connections(threads).saturating_mul(2);
    if count.saturating_mul(10) >= max.saturating_mul(9) {
        let found = format!("{count} of {max} entries are in use: new connections are dropped when there are no more");
        return Finding::error(
            CHECK,
            found,
            sysctl("net.netfilter.nf_conntrack_max", max.saturating_mul(4).max(wanted)),
        );
    }
    if max < wanted {
        let found = format!("{max} entries; with those of closed ones, connections may need {wanted}");
        return Finding::warning(CHECK, found, sysctl("net.netfilter.nf_conntrack_max", wanted));
    }
    Finding::fine(CHECK, format!("{count} of {max} entries are in use"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State::{Error, Fine, Unknown, Warning};
    use super::*;

    fn needs(connections: usize, servers: usize) -> Needs {
        Needs { connections, servers, ports: [80, 40000, 50000].into(), ..Needs::default() }
    }

    #[test]
    fn a_backlog_is_compared_with_the_kernels() {
        assert_eq!(backlog(Some(511), Some("4096\n")).state, Fine);
        let short = backlog(Some(511), Some("128\n"));
        assert_eq!((short.state, short.fix.as_deref()), (Warning, Some("sysctl -w net.core.somaxconn=511")));
        assert_eq!(backlog(Some(511), None).state, Unknown);
        assert_eq!(backlog(None, Some("128")).state, Fine);
    }

    #[test]
    fn ports_are_counted_for_each_server() {
        let text = Some("32768\t60999\n");
        assert_eq!(local_ports(&needs(512, 1), 2, text).state, Fine);
        assert_eq!(local_ports(&needs(50_000, 1), 2, text).state, Warning);
        assert_eq!(local_ports(&needs(50_000, 2), 2, text).state, Fine);
        assert_eq!(local_ports(&needs(50_000, 0), 2, text).state, Fine);
        for wrong in [None, Some(""), Some("x y"), Some("9 1")] {
            assert_eq!(local_ports(&needs(1, 1), 1, wrong).state, Unknown, "{wrong:?}");
        }
        let wide = local_ports(&needs(500_000, 1), 2, Some("1024 65535"));
        assert!(wide.fix.unwrap().contains("proxy_bind"));
    }

    #[test]
    fn listening_ports_are_reserved() {
        let text = Some("32768 60999");
        let found = reserved_ports(&needs(1, 1), text, Some("\n"));
        assert_eq!(found.fix.as_deref(), Some("sysctl -w net.ipv4.ip_local_reserved_ports=40000,50000"));
        let found = reserved_ports(&needs(1, 1), text, Some("1000,49999-50001\n"));
        assert_eq!(found.fix.as_deref(), Some("sysctl -w net.ipv4.ip_local_reserved_ports=1000,49999-50001,40000"));
        assert_eq!(reserved_ports(&needs(1, 1), text, Some("40000-50000")).state, Fine);
        assert_eq!(reserved_ports(&needs(1, 1), Some("51000 60999"), None).state, Fine);
    }

    #[test]
    fn time_wait_matters_for_connections_that_are_not_kept() {
        let short = Needs { short_connections: true, ..needs(1, 1) };
        assert_eq!(time_wait(&short, Some("1\n")).state, Fine);
        assert_eq!(time_wait(&short, Some("0\n")).state, Warning);
        assert_eq!(time_wait(&short, Some("2\n")).state, Warning);
        assert_eq!(time_wait(&needs(1, 1), Some("0\n")).state, Fine);
        assert_eq!(time_wait(&short, None).state, Unknown);
    }

    #[test]
    fn kernels_are_known_by_their_release() {
        assert_eq!(reuseport(Some("6.1.0-18-amd64\n")).state, Fine);
        assert_eq!(reuseport(Some("2.6.32-el6")).state, Error);
        assert_eq!(reuseport(Some("?")).state, Unknown);
    }

    #[test]
    fn tracked_connections_have_room() {
        assert_eq!(conntrack(&needs(512, 1), 2, None, None).state, Fine);
        assert_eq!(conntrack(&needs(512, 1), 2, Some("262144"), Some("9")).state, Fine);
        assert_eq!(conntrack(&needs(512, 1), 2, Some("1024"), Some("9")).state, Warning);
        assert_eq!(conntrack(&needs(1, 1), 1, Some("1000"), Some("900")).state, Error);
    }
}
