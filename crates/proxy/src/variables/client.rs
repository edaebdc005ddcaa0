//! What is known of the client of a request.

use balanza_config::browser_version;
use balanza_config::model::{Browsers, Referers};
use balanza_config::regex::Captures;
use balanza_config::template::{ClientValue, Variable};
use balanza_message::Header;

use super::user_id;
use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::values::{found, of_header, of_peer};

/// Appends a variable's value; false when it has none.
///
/// # Errors
/// A regular expression is undecided.
pub fn value(variable: &ClientValue, x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    Ok(match variable {
        ClientValue::RealIpRemoteAddr => of_peer(&Variable::RemoteAddr, x.client().peer, out),
        ClientValue::RealIpRemotePort => of_peer(&Variable::RemotePort, x.client().peer, out),
        ClientValue::InvalidReferer => {
            let invalid = match x.location().settings.client.referers.clone() {
                Some(referers) => !is_valid(&referers, x)?,
                None => false,
            };
            found(Some(if invalid { b"1" } else { b"" }), out)
        }
        ClientValue::SecureLink => super::secure_link::value(x, out)?,
        ClientValue::SecureLinkExpires => found(x.values.link_expires.as_deref(), out),
        ClientValue::UidGot => user_id::got(x, out),
        ClientValue::UidSet => user_id::set(x, out)?,
        ClientValue::AncientBrowser | ClientValue::ModernBrowser => {
            let browsers = &x.location().settings.client.browsers;
            match (is_modern(browsers, x.request_field(Header::UserAgent)), variable) {
                (true, ClientValue::ModernBrowser) => found(Some(&browsers.modern_value), out),
                (false, ClientValue::AncientBrowser) => found(Some(&browsers.ancient_value), out),
                _ => true,
            }
        }
        ClientValue::Msie => {
            let agent = x.request_field(Header::UserAgent).unwrap_or_default();
            let mark = position(agent, b"MSIE ").is_some_and(|mark| mark + 7 < agent.len());
            found(Some(if mark && position(agent, b"Opera").is_none() { b"1" } else { b"" }), out)
        }
        _ => x.client().proxy_protocol.get().is_some_and(|header| of_header(variable, header, out)),
    })
}

/// Whether `valid_referers` names the request's.
fn is_valid(referers: &Referers, x: &Exchange) -> Result<bool, Undecided> {
    // Without hosts and expressions every one is valid.
    let is_empty = referers.exact.is_empty() && referers.wildcards.is_empty();
    if is_empty && referers.regexes.is_empty() && referers.names.is_empty() {
        return Ok(true);
    }
    let Some(referer) = x.request_field(Header::Referer) else { return Ok(referers.none) };
    let after = |scheme: &[u8]| {
        let (begin, rest) = referer.split_at_checked(scheme.len())?;
        // NGINX takes nothing shorter than "http://i.ru" for one with a scheme.
        (begin.eq_ignore_ascii_case(scheme) && referer.len() >= 11).then_some(rest)
    };
    let Some(rest) = after(b"http://").or_else(|| after(b"https://")) else { return Ok(referers.blocked) };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b':')).unwrap_or(rest.len());
    if end >= 256 {
        return Ok(false);
    }
    let host = rest[..end].to_ascii_lowercase();
    if let Some(path) = referers.exact.get(&host[..]).or_else(|| referers.wildcards.find(&host)) {
        let begin = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        return Ok(rest[begin..].starts_with(path));
    }
    let mut captures = Captures::default();
    let names = referers.names.iter().map(|regex| (regex, &host[..]));
    for (regex, text) in names.chain(referers.regexes.iter().map(|regex| (regex, rest))) {
        if regex.find(text, &mut captures).map_err(|error| x.undecided(&error))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a browser is modern.
fn is_modern(browsers: &Browsers, agent: Option<&[u8]>) -> bool {
    let Some(agent) = agent else { return browsers.unlisted_are_modern };
    // The first one that is found decides.
    for (kind, least) in &browsers.modern {
        let mark = agent.get(kind.skipped..).and_then(|rest| Some(position(rest, kind.mark)? + kind.skipped));
        let version = mark.and_then(|mark| agent.get(mark + kind.length..)).filter(|version| !version.is_empty());
        if let Some(version) = version {
            return browser_version(version) >= *least;
        }
    }
    let netscape4 = agent.len() > 13 && agent.starts_with(b"Mozilla/") && (b'1'..b'5').contains(&agent[8]);
    let ancient = !browsers.modern.is_empty() && !browsers.unlisted_are_modern
        || browsers.netscape4 && netscape4
        || browsers.ancient.iter().any(|part| position(agent, part).is_some());
    !ancient && browsers.unlisted_are_modern
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|piece| piece == part)
}
