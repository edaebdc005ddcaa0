//! A request whose variables are looked up in `map`, `geo` and `split_clients`.

use std::net::IpAddr;

use balanza_config::model::Geo;
use balanza_config::regex::{Captures, MatchError, Regex};
use balanza_config::template::Template;
use balanza_message::Header;
use balanza_net::listening::Peer;

use super::{keep_named_groups, render};
use crate::exchange::Exchange;
use crate::lookup::{Known, Subject, parse_address};
use crate::real_ip::forwarded;
use crate::undecided::Undecided;

impl Subject for Exchange {
    fn render(&mut self, template: &Template, out: &mut Vec<u8>) -> Result<(), Undecided> {
        render(template, self, out)
    }

    fn known(&mut self) -> &mut Known {
        &mut self.values.maps
    }

    fn captures(&mut self) -> &mut Captures {
        &mut self.values.captures
    }

    fn keep_named_groups(&mut self, regex: &Regex) {
        keep_named_groups(regex, self);
    }

    fn undecided(&self, error: &MatchError) -> Undecided {
        Exchange::undecided(self, error)
    }

    fn pair(&self, zone: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.running().keyvals.http[zone].find(key)
    }

    fn address(&self, geo: &Geo, source: &[u8]) -> Option<IpAddr> {
        let peer = if geo.of_client { self.peer() } else { Peer::Inet((parse_address(source)?, 0).into()) };
        let mut found = peer;
        if !geo.proxies.is_empty() && self.head_complete {
            let fields = self.request.fields.iter().rev().filter(|field| field.header == Header::XForwardedFor);
            let values = fields.map(|field| field.value.of(&self.request.text));
            found = forwarded(peer, values, &geo.proxies, geo.recursive).unwrap_or(peer);
        }
        match found {
            Peer::Inet(address) => Some(address.ip()),
            Peer::Unix => None,
        }
    }
}
