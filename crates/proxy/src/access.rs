//! `allow` and `deny`.

use std::net::IpAddr;

use balanza_config::model::{AccessRule, AccessWho};
use balanza_net::listening::Peer;

/// Whether the first rule that matches the client allows it; without one it is allowed.
pub fn is_allowed(rules: &[AccessRule], peer: Peer) -> bool {
    judge(rules, peer).unwrap_or(true)
}

/// What the first rule that matches the client says; `None` without one.
pub fn judge(rules: &[AccessRule], peer: Peer) -> Option<bool> {
    rules.iter().find(|rule| is_one(&rule.who, peer)).map(|rule| rule.allow)
}

/// Whether a client is one of these.
pub fn is_any(list: &[AccessWho], peer: Peer) -> bool {
    list.iter().any(|who| is_one(who, peer))
}

fn is_one(who: &AccessWho, peer: Peer) -> bool {
    match (who, peer) {
        (AccessWho::All, _) | (AccessWho::Unix, Peer::Unix) => true,
        (AccessWho::Net(net, length), Peer::Inet(address)) => contains(*net, *length, address.ip().to_canonical()),
        _ => false,
    }
}

fn contains(net: IpAddr, length: u8, ip: IpAddr) -> bool {
    let (net, ip, width) = match (net, ip) {
        (IpAddr::V4(net), IpAddr::V4(ip)) => (u128::from(net.to_bits()), u128::from(ip.to_bits()), 32),
        (IpAddr::V6(net), IpAddr::V6(ip)) => (net.to_bits(), ip.to_bits(), 128),
        _ => return false,
    };
    let ignored = u32::from(width - length.min(width));
    net.checked_shr(ignored).unwrap_or(0) == ip.checked_shr(ignored).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(contains(ip("10.1.0.0"), 16, ip("10.1.2.3")));
        assert!(!contains(ip("10.1.0.0"), 16, ip("10.2.2.3")));
        assert!(contains(ip("0.0.0.0"), 0, ip("10.2.2.3")));
        assert!(contains(ip("10.2.2.3"), 32, ip("10.2.2.3")));
        assert!(!contains(ip("10.2.2.3"), 32, ip("10.2.2.4")));
        assert!(contains(ip("fe80::"), 10, ip("fe80::1")));
        assert!(!contains(ip("::"), 0, ip("1.2.3.4")));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rule = |allow, who| AccessRule { allow, who };
        let net = AccessWho::Net("127.0.0.0".parse().unwrap(), 8);
        let peer = Peer::Inet("127.0.0.1:5".parse().unwrap());
        assert!(is_allowed(&[rule(true, net.clone()), rule(false, AccessWho::All)], peer));
        assert!(!is_allowed(&[rule(false, AccessWho::All), rule(true, net.clone())], peer));
        assert!(is_allowed(&[rule(false, AccessWho::Unix)], peer));
        assert!(!is_allowed(&[rule(true, net), rule(false, AccessWho::Unix)], Peer::Unix));
    }
}
