//! `geo` and `split_clients`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::http::network;
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{AccessWho, Geo, Map, Split, Table};
use crate::networks::{ByPrefix, ByRange, Clash, Networks};
use crate::template::Template;
use crate::tree::Statement;

/// The entries of a block while it is read.
enum Draft {
    Prefixes(ByPrefix),
    Ranges(ByRange),
}

impl Builder<'_> {
    pub fn geo(&mut self, s: &Statement) -> Option<Map> {
        let source = match s.words.as_slice() {
            [_, address, _] => match address.value.split_first() {
                Some((b'$', [_, ..])) => Some(self.template(address)?),
                _ => {
                    self.error(address.span, format!("invalid variable name \"{}\"", address.text()));
                    return None;
                }
            },
            _ => None,
        };
        let mut geo =
            Geo { of_client: source.is_none(), proxies: Vec::new(), recursive: false, networks: Networks::default() };
        let mut draft = Draft::Prefixes(ByPrefix::default());
        let (mut volatile, mut begun) = (false, false);
        for line in s.block.iter().flatten() {
            if line.block.is_some() {
                self.error(line.span(), "unexpected \"{\"");
                continue;
            }
            let http = self.protocol == Protocol::Http;
            match line.words.as_slice() {
                [word] if word.value == b"ranges" => {
                    if begun && matches!(draft, Draft::Prefixes(_)) {
                        let message = "the \"ranges\" directive must be the first directive inside \"geo\" block";
                        self.error(word.span, message);
                    } else if matches!(draft, Draft::Prefixes(_)) {
                        draft = Draft::Ranges(ByRange::default());
                    }
                }
                [word] if http && word.value == b"proxy_recursive" => geo.recursive = true,
                [word] if word.value == b"volatile" => volatile = true,
                [word, net] if http && word.value == b"proxy" => {
                    geo.proxies.extend(self.geo_network(net).map(|(ip, length)| AccessWho::Net(ip, length)));
                }
                [key, value] => {
                    begun = true;
                    match &mut draft {
                        Draft::Prefixes(prefixes) => self.geo_prefix(prefixes, key, value),
                        Draft::Ranges(ranges) => self.geo_range(ranges, key, value),
                    }
                }
                _ => self.error(line.span(), "invalid number of the geo parameters"),
            }
        }
        geo.networks = match draft {
            Draft::Prefixes(prefixes) => prefixes.finish(),
            Draft::Ranges(ranges) => ranges.finish(),
        };
        Some(Map { source: source.unwrap_or_default(), table: Table::Geo(geo), volatile })
    }

    fn geo_network(&mut self, word: &Word) -> Option<(IpAddr, u8)> {
        let found = network(&word.value);
        match found {
            None => self.error_hint(
                word.span,
                format!("invalid network \"{}\"", word.text()),
                "an address, or an address with the length of its prefix: 192.0.2.0/24",
            ),
            Some((.., false)) => {
                self.warning(word.span, format!("low address bits of {} are meaningless", word.text()));
            }
            Some(_) => {}
        }
        found.map(|(ip, length, _)| (ip, length))
    }

    fn geo_prefix(&mut self, prefixes: &mut ByPrefix, key: &Word, value: &Word) {
        let (ip, length) = match key.value.as_slice() {
            b"default" => {
                let old = prefixes.insert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0, &value.value);
                let old6 = prefixes.insert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0, &value.value);
                self.geo_duplicate(key, value, "network", old);
                return self.geo_duplicate(key, value, "network", old6);
            }
            b"delete" => {
                if let Some((ip, length)) = self.geo_network(value)
                    && !prefixes.remove(ip, length)
                {
                    self.warning(value.span, format!("no network \"{}\" to delete", value.text()));
                }
                return;
            }
            _ => match self.geo_network(key) {
                Some(network) => network,
                None => return,
            },
        };
        let old = prefixes.insert(ip, length, &value.value);
        self.geo_duplicate(key, value, "network", old);
    }

    fn geo_duplicate(&mut self, key: &Word, value: &Word, what: &str, old: Option<Box<[u8]>>) {
        if let Some(old) = old {
            let (net, value, old) = (key.text(), value.text(), String::from_utf8_lossy(&old).into_owned());
            self.warning(key.span, format!("duplicate {what} \"{net}\", value: \"{value}\", old value: \"{old}\""));
        }
    }

    fn geo_range(&mut self, ranges: &mut ByRange, key: &Word, value: &Word) {
        if key.value == b"default" {
            if let Some(old) = ranges.set_default(&value.value) {
                let (value, old) = (value.text(), String::from_utf8_lossy(&old).into_owned());
                let message = format!("duplicate default geo range value: \"{value}\", old value: \"{old}\"");
                self.warning(key.span, message);
            }
            return;
        }
        let removes = key.value == b"delete";
        let word = if removes { value } else { key };
        let Some((first, last)) = range(&word.value) else {
            let hint = "a range is two addresses of version 4: 192.0.2.0-192.0.2.127";
            return self.error_hint(word.span, format!("invalid range \"{}\"", word.text()), hint);
        };
        if removes {
            if !ranges.remove(first, last) {
                self.warning(word.span, format!("no address range \"{}\" to delete", word.text()));
            }
            return;
        }
        match ranges.insert(first, last, &value.value) {
            Ok(()) => {}
            Err(Clash::Duplicate(old)) => self.geo_duplicate(key, value, "range", Some(old)),
            Err(Clash::Overlap(first, last)) => {
                self.error(key.span, format!("range \"{}\" overlaps \"{first}-{last}\"", key.text()));
            }
        }
    }

    pub fn split_clients(&mut self, s: &Statement) -> Option<Map> {
        let source: Template = self.template(&s.words[1])?;
        let mut parts = Vec::new();
        let (mut sum, mut end) = (0u64, 0u64);
        let mut exceeded = false;
        for line in s.block.iter().flatten() {
            let [share, value] = line.words.as_slice() else {
                self.error(line.span(), "invalid number of parameters");
                continue;
            };
            if line.block.is_some() {
                self.error(line.span(), "unexpected \"{\"");
                continue;
            }
            let value: Box<[u8]> = value.value.as_slice().into();
            if share.value == b"*" {
                sum = HUNDRED;
                parts.push((None, value));
                continue;
            }
            let Some(percent) = percent(&share.value) else {
                let hint = "a share is a number with \"%\", with two decimals at most, or \"*\" for the rest";
                self.error_hint(share.span, format!("invalid percent value \"{}\"", share.text()), hint);
                continue;
            };
            sum = sum.saturating_add(percent);
            if sum > HUNDRED {
                exceeded = true;
                continue;
            }
            end += percent * u64::from(u32::MAX) / HUNDRED;
            parts.push((Some(u32::try_from(end).unwrap_or(u32::MAX)), value));
        }
        if exceeded {
            self.error(s.words[0].span, "percent total is greater than 100%");
        }
        Some(Map { source, table: Table::Split(Split { parts }), volatile: false })
    }
}

/// A hundred percent, in hundredths.
const HUNDRED: u64 = 10_000;

/// A share in hundredths of a percent.
fn percent(text: &[u8]) -> Option<u64> {
    let (whole, part) = match text.strip_suffix(b"%")? {
        digits if digits.contains(&b'.') => {
            let dot = digits.iter().position(|byte| *byte == b'.')?;
            (&digits[..dot], &digits[dot + 1..])
        }
        digits => (digits, &b""[..]),
    };
    if part.len() > 2 || whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits: Vec<u8> = whole.iter().chain(part).copied().chain(std::iter::repeat_n(b'0', 2 - part.len())).collect();
    crate::values::number(&digits).filter(|percent| *percent > 0)
}

/// Two addresses, the first not above the last.
fn range(text: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = std::str::from_utf8(text).ok()?.split_once('-')?;
    // NGINX has no other word for an invalid address than this one.
    let address = |text: &str| text.parse::<Ipv4Addr>().ok().filter(|ip| !ip.is_broadcast());
    let (first, last) = (address(first)?, address(last)?);
    (first <= last).then_some((first, last))
}
