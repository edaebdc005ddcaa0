//! Which address of this machine an algorithm that goes by addresses sends to which server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::load::sources;
use crate::servers::ask::ask;

/// With eight servers of which the smallest has a hundredth of the weight, one of these reaches it almost surely.
const CANDIDATES: u16 = 400;

/// An address that reaches a server once may do so by chance: it has to a second and a third time.
const PROBES: u32 = 3;

const PROBE_MAX: Duration = Duration::from_secs(20);

/// The first address whose requests the named server answers.
///
/// Errors: there is none, as with an algorithm that does not go by addresses; no answer.
pub(super) fn reaching(
    server: &str,
    to: SocketAddr,
    host: &str,
    path: &str,
    stop: &AtomicBool,
) -> anyhow::Result<Ipv4Addr> {
    let mut others: Vec<String> = Vec::new();
    for source in sources(CANDIDATES) {
        let mut hits = 0;
        while hits < PROBES && !stop.load(Relaxed) {
            let answer = ask(to, host, path, Some(source), PROBE_MAX)
                .with_context(|| format!("looking for an address that reaches {server}: no answer to {source}"))?;
            match answer.server {
                Some(name) if name == server => hits += 1,
                Some(name) => {
                    others.push(name);
                    break;
                }
                None => bail!("looking for an address that reaches {server}: the answer has no X-Server"),
            }
        }
        if hits == PROBES {
            return Ok(source);
        }
        if stop.load(Relaxed) {
            bail!("interrupted");
        }
    }
    others.sort();
    others.dedup();
    bail!(
        "no address of {CANDIDATES} reaches {server}, all reach {}: does the algorithm go by addresses?",
        others.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener};

    use super::*;

    /// Answers in the name that the caller's third octet gives, as many requests as are asked.
    fn server(name: impl Fn(u8, u32) -> &'static str + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let IpAddr::V4(peer) = stream.peer_addr().unwrap().ip() else { panic!("not IPv4") };
                let name = name(peer.octets()[2], count as u32);
                let _ = stream.read(&mut [0; 1024]);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nX-Server: {name}\r\nContent-Length: 0\r\n\r\n");
            }
        });
        address
    }

    #[test]
    fn the_first_address_that_reaches_it() {
        let address = server(|octet, _| if octet < 5 { "one" } else { "two" });
        let find = |name| reaching(name, address, "lab", "/", &AtomicBool::new(false));
        assert_eq!(find("two").unwrap(), sources(10)[4]);
        assert_eq!(find("one").unwrap(), sources(1)[0]);
        let error = find("three").unwrap_err().to_string();
        assert!(error.contains("all reach one, two: does the algorithm"), "{error}");
    }

    #[test]
    fn one_that_reaches_it_by_turns_does_not() {
        let address = server(|_, count| if count % 2 == 0 { "one" } else { "two" });
        assert!(reaching("one", address, "lab", "/", &AtomicBool::new(false)).is_err());
        let error = reaching("one", address, "lab", "/", &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }
}
