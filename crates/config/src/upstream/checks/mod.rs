//! `health_check` and `match`, of `http` and of `stream`.

mod expected;

use std::time::Duration;

use crate::diagnostics::Span;
use crate::load::{Builder, Protocol};
use crate::model::{HealthCheck, Probe, ProxyTarget};
use crate::parameter::{Argument, Parameter, Wrong, parameter, set};
use crate::tree::Statement;
use crate::values;

/// What a `health_check` says, before it is known whose servers it is about.
#[derive(Debug, Clone)]
pub(crate) struct CheckDraft {
    check: HealthCheck,
    uri: Option<Box<[u8]>>,
    expected: Option<(String, Span)>,
    grpc: bool,
    service: Option<Box<[u8]>>,
    status: Option<u32>,
    span: Span,
}

/// The parameters of both protocols.
macro_rules! common {
    ($($own:expr,)*) => { &[
        parameter("interval=", |_, draft, a| set(&mut draft.check.interval, time(a).filter(|time| !time.is_zero()))),
        parameter("jitter=", |_, draft, a| set(&mut draft.check.jitter, time(a))),
        parameter("fails=", |_, draft, a| set(&mut draft.check.fails, number(a))),
        parameter("passes=", |_, draft, a| set(&mut draft.check.passes, number(a))),
        parameter("mandatory", |_, draft, _| set(&mut draft.check.mandatory, Some(true))),
        parameter("persistent", |_, draft, _| set(&mut draft.check.persistent, Some(true))),
        parameter("match=", |_, draft, a| {
            let name = String::from_utf8_lossy(a.value).into_owned();
            set(&mut draft.expected, Some(name).filter(|name| !name.is_empty()).map(|name| Some((name, a.word.span))))
        }),
        parameter("port=", |_, draft, a| {
            let port = values::number(a.value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            set(&mut draft.check.port, port.map(Some))
        }),
        $($own,)*
    ] };
}

const HTTP: &[Parameter<CheckDraft>] = common![
    parameter("uri=", |_, draft, a| {
        let good = a.value.starts_with(b"/") && a.value.iter().all(|byte| byte.is_ascii_graphic());
        set(&mut draft.uri, good.then(|| Some(a.value.into())))
    }),
    parameter("keepalive_time=", |_, draft, a| set(&mut draft.check.keepalive_time, time(a).map(Some))),
    parameter("type=", |_, draft, a| set(&mut draft.grpc, (a.value == b"grpc").then_some(true))),
    parameter("grpc_service=", |_, draft, a| set(&mut draft.service, Some(Some(a.value.into())))),
    parameter("grpc_status=", |_, draft, a| {
        let status = values::number(a.value).and_then(|status| u32::try_from(status).ok());
        set(&mut draft.status, status.map(Some))
    }),
];

const STREAM: &[Parameter<CheckDraft>] = common![parameter("udp", |b, _, a| {
    b.unsupported_parameter(a.statement, a.word);
    Err(Wrong::Reported)
}),];

fn time(a: &Argument<'_>) -> Option<Duration> {
    values::milliseconds(a.value)
}

fn number(a: &Argument<'_>) -> Option<u32> {
    values::number(a.value).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

impl Builder<'_> {
    /// `health_check …`.
    pub fn health_check(&mut self, s: &Statement) -> Option<CheckDraft> {
        let mut draft = CheckDraft {
            check: HealthCheck {
                index: 0,
                upstream: 0,
                interval: Duration::from_secs(5),
                jitter: Duration::ZERO,
                fails: 1,
                passes: 1,
                mandatory: false,
                persistent: false,
                port: None,
                keepalive_time: None,
                probe: Probe::Stream { expected: None },
            },
            uri: None,
            expected: None,
            grpc: false,
            service: None,
            status: None,
            span: s.span(),
        };
        let table = if self.protocol == Protocol::Http { HTTP } else { STREAM };
        if !self.parameters(table, &mut draft, s, 1) {
            return None;
        }
        let has = |name: &[u8]| s.args().iter().find(|word| word.parameter().0 == name);
        if draft.grpc
            && let Some(word) = has(b"uri=").or_else(|| has(b"match="))
        {
            let message = format!("\"{}\" cannot be used with \"type=grpc\"", word.text());
            self.error_hint(word.span, message, "the protocol of gRPC has its own request and answer");
            return None;
        }
        if !draft.grpc
            && let Some(word) = has(b"grpc_service=").or_else(|| has(b"grpc_status="))
        {
            self.error_hint(word.span, format!("\"{}\" needs \"type=grpc\"", word.text()), "write it in front");
            return None;
        }
        if draft.check.persistent && !draft.check.mandatory {
            let hint = "without \"mandatory\" a server is healthy until a check says otherwise";
            self.error_hint(s.span(), "\"persistent\" needs \"mandatory\"", hint);
            return None;
        }
        Some(draft)
    }

    /// The checks of a location or of a server of `stream` that passes requests to this target.
    pub fn health_checks(&mut self, drafts: Vec<CheckDraft>, target: Target<'_>) -> Vec<HealthCheck> {
        drafts.into_iter().filter_map(|draft| self.place_check(draft, target)).collect()
    }

    fn place_check(&mut self, draft: CheckDraft, target: Target<'_>) -> Option<HealthCheck> {
        let CheckDraft { mut check, uri, expected, grpc, service, status, span } = draft;
        let upstream = match target {
            Target::None => {
                let hint = "the servers that are checked are those of its \"proxy_pass\" or \"grpc_pass\"";
                self.error_hint(span, "\"health_check\" needs a \"proxy_pass\" in the same block", hint);
                return None;
            }
            Target::Http(ProxyTarget::Dynamic(_), _) | Target::Stream(None) => {
                let hint = "name the upstream in the \"proxy_pass\" of this block";
                self.error_hint(span, "\"health_check\" is not possible for a \"proxy_pass\" with variables", hint);
                return None;
            }
            Target::Http(ProxyTarget::Fixed { upstream, .. }, passes_grpc) => {
                if grpc && !passes_grpc {
                    let hint = "use \"grpc_pass\" in this location";
                    self.error_hint(span, "\"health_check type=grpc\" needs \"grpc_pass\"", hint);
                    return None;
                }
                *upstream
            }
            Target::Stream(Some(upstream)) => upstream,
        };
        let expected = match (expected, self.protocol) {
            (None, Protocol::Http) if grpc => {
                Probe::Grpc { service: service.unwrap_or_default(), status: status.unwrap_or(0) }
            }
            (None, Protocol::Http) => Probe::Http { uri: uri.unwrap_or_else(|| b"/"[..].into()), expected: None },
            (None, Protocol::Stream) => Probe::Stream { expected: None },
            (Some((name, span)), Protocol::Http) => {
                let expected = self.matches.http.get(&name).cloned();
                let Some(expected) = expected else { return self.unknown_match(&name, span) };
                Probe::Http { uri: uri.unwrap_or_else(|| b"/"[..].into()), expected: Some(expected) }
            }
            (Some((name, span)), Protocol::Stream) => {
                let expected = self.matches.stream.get(&name).cloned();
                let Some(expected) = expected else { return self.unknown_match(&name, span) };
                Probe::Stream { expected: Some(expected) }
            }
        };
        (check.probe, check.upstream) = (expected, upstream);
        let place = self.place(span);
        let known = &mut self.upstreams[upstream];
        if known.upstream.zone.is_none() {
            let name = known.upstream.name.clone();
            let message = format!("\"health_check\" requires upstream \"{name}\" in {place} to be in shared memory");
            let hint = match known.upstream.implicit {
                true => "make an `upstream` block with `zone NAME SIZE;` for these servers",
                false => "add `zone NAME SIZE;` to the upstream",
            };
            self.error_hint(span, message, hint);
            return None;
        }
        // Nothing else has the upstream before all blocks have been read.
        if let Some(upstream) = std::sync::Arc::get_mut(&mut known.upstream) {
            check.index = upstream.checks.len();
            upstream.checks.push(crate::model::Checked { mandatory: check.mandatory, persistent: check.persistent });
        }
        Some(check)
    }

    fn unknown_match<T>(&mut self, name: &str, span: Span) -> Option<T> {
        let hint = format!("add a block `match {name} {{ … }}` beside the servers");
        self.error_hint(span, format!("there is no \"match\" of the name \"{name}\""), hint);
        None
    }
}

/// Whose servers a check is about.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// Nothing's.
    None,
    /// Those of a location, and whether it has a `grpc_pass`.
    Http(&'a ProxyTarget, bool),
    /// Those of a server of `stream`; none if variables say where it leads.
    Stream(Option<usize>),
}
