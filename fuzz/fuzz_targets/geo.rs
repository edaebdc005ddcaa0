//! Blocks of `geo`, as files of networks or ranges: no panic, and each address has the value of the longest prefix.
#![no_main]

use std::net::IpAddr;

use balanza_config::model::Table;
use balanza_config::{Bundle, Options, load};
use libfuzzer_sys::fuzz_target;

/// The lines that a brute-force search can judge: "ADDRESS/LENGTH value;".
fn network(line: &str) -> Option<(IpAddr, u8, &str)> {
    let (net, value) = line.strip_suffix(';')?.split_once(' ')?;
    let (ip, length) = net.split_once('/')?;
    let plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !value.is_empty();
    let length: u8 = length.parse().ok().filter(|_| length.bytes().all(|byte| byte.is_ascii_digit()))?;
    plain.then_some((ip.parse().ok()?, length, value))
}

fn masked(ip: IpAddr, length: u8) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits().checked_shr(32 - u32::from(length)).unwrap_or(0)),
        IpAddr::V6(ip) => ip.to_bits().checked_shr(128 - u32::from(length)).unwrap_or(0),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut files = Bundle::default();
    files.add_file("/nets".to_string(), bytes.to_vec());
    let main = b"events { }\nhttp { geo $x { include nets; } }\n";
    files.add_file("/n.conf".to_string(), main.to_vec());
    let (Some(config), _) = load(&files, &Options::new("/", "/n.conf")) else { return };
    let Table::Geo(geo) = &config.http.maps[0].table else { panic!("no geo") };
    let text = String::from_utf8_lossy(bytes);
    let networks: Vec<_> = text.lines().filter_map(network).collect();
    for (ip, ..) in &networks {
        geo.networks.find(Some(*ip));
    }
    // Only text that has nothing else has a simple meaning.
    if networks.len() != text.lines().count() {
        return;
    }
    for (ip, ..) in &networks {
        // Mapped addresses are looked up as those of version 4.
        if ip.to_canonical() != *ip {
            continue;
        }
        let holds = networks
            .iter()
            .rev()
            .filter(|(net, length, _)| net.is_ipv4() == ip.is_ipv4() && masked(*net, *length) == masked(*ip, *length));
        let (mut longest, mut expected) = (None, "");
        for (_, length, value) in holds {
            if longest.is_none_or(|longest| *length > longest) {
                (longest, expected) = (Some(*length), value);
            }
        }
        assert_eq!(geo.networks.find(Some(*ip)), expected.as_bytes());
    }
});
