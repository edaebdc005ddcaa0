//! The parameters of `syslog:`.

use balanza_balancing::registry::nearest;

use crate::address::{self, Host, Use};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Level, Syslog, SyslogServer};

const PORT: u16 = 514;
/// The longest `tag=`, as in NGINX.
const LONGEST_TAG: usize = 32;

/// What has been given so far.
#[derive(Default)]
struct Draft {
    server: Option<SyslogServer>,
    facility: Option<u8>,
    severity: Option<Level>,
    tag: Option<String>,
    no_hostname: bool,
}

impl Builder<'_> {
    /// `syslog:server=ADDRESS,facility=NAME,severity=LEVEL,tag=TAG,nohostname`.
    pub fn syslog(&mut self, word: &Word) -> Option<Syslog> {
        let text = word.text();
        let parameters = text.strip_prefix("syslog:").unwrap_or_default();
        let mut draft = Draft::default();
        for parameter in parameters.split(',') {
            if let Err((message, hint)) = self.syslog_parameter(&mut draft, parameter) {
                self.report(crate::diagnostics::Severity::Error, word.span, message).hint = hint;
                return None;
            }
        }
        let Some(server) = draft.server else {
            self.error_hint(
                word.span,
                "no syslog server specified",
                "syslog:server=127.0.0.1 or syslog:server=unix:/dev/log",
            );
            return None;
        };
        Some(Syslog {
            server,
            facility: draft.facility.unwrap_or(23),
            severity: draft.severity.unwrap_or(Level::Info),
            tag: draft.tag.unwrap_or_else(|| "nginx".into()),
            hostname: (!draft.no_hostname).then(|| self.options.hostname.clone()),
        })
    }

    fn syslog_parameter(&mut self, draft: &mut Draft, parameter: &str) -> Result<(), (String, Option<String>)> {
        let near = |name: &str, names: &mut dyn Iterator<Item = &'static str>| {
            nearest(name, names).map(|near| format!("did you mean `{near}`?"))
        };
        let duplicate = |name: &str| Err((format!("duplicate syslog \"{name}\""), None));
        match parameter.split_once('=') {
            Some(("server", _)) if draft.server.is_some() => duplicate("server"),
            Some(("facility", _)) if draft.facility.is_some() => duplicate("facility"),
            Some(("severity", _)) if draft.severity.is_some() => duplicate("severity"),
            Some(("tag", _)) if draft.tag.is_some() => duplicate("tag"),
            Some(("server", value)) => {
                let wrong = |why: &str| (format!("{why} in syslog server \"{value}\""), None);
                let parsed = address::parse(value.as_bytes(), PORT, Use::Server).map_err(wrong)?;
                draft.server = Some(match &parsed.host {
                    Host::Unix(path) => SyslogServer::Unix(path.clone()),
                    host => {
                        let addresses = address::resolve(self.source, host, parsed.port).map_err(wrong)?;
                        let first = addresses.first().copied();
                        SyslogServer::Inet(first.ok_or_else(|| wrong("host not found"))?)
                    }
                });
                Ok(())
            }
            Some(("facility", value)) => {
                let found = Syslog::FACILITIES.iter().position(|name| *name == value);
                draft.facility = found.and_then(|number| u8::try_from(number).ok());
                match draft.facility {
                    Some(_) => Ok(()),
                    None => Err((
                        format!("unknown syslog facility \"{value}\""),
                        near(value, &mut Syslog::FACILITIES.into_iter()),
                    )),
                }
            }
            Some(("severity", value)) => {
                let names = || Level::ALL.into_iter().map(Level::name);
                draft.severity = Level::ALL.into_iter().find(|level| level.name() == value);
                match draft.severity {
                    Some(_) => Ok(()),
                    None => Err((format!("unknown syslog severity \"{value}\""), near(value, &mut names()))),
                }
            }
            Some(("tag", value)) => {
                if value.len() > LONGEST_TAG {
                    return Err((format!("syslog tag length exceeds {LONGEST_TAG}"), None));
                }
                if !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                    let message = "syslog \"tag\" only allows alphanumeric characters and underscore";
                    return Err((message.to_string(), None));
                }
                draft.tag = Some(value.to_string());
                Ok(())
            }
            _ if parameter == "nohostname" => {
                draft.no_hostname = true;
                Ok(())
            }
            _ => {
                let name = parameter.split('=').next().unwrap_or_default();
                let mut known = ["server", "facility", "severity", "tag", "nohostname"].into_iter();
                Err((format!("unknown syslog parameter \"{parameter}\""), near(name, &mut known)))
            }
        }
    }
}
