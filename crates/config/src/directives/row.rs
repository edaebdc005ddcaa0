//! How a row of the table is written: its form, its contexts, its arguments.
//!
//! A row that sets something ends with a function that reads the directive. Its arguments are the builder `b`, the block
//! that the directive stands in (`c` of the main context and `events`, `h` of `http`, `u` of an upstream, `t` of
//! `stream`), and the statement `s`.

use super::{Arguments, Context, Directive, State};
use crate::core::CoreBlock;
use crate::http::HttpBlock;
use crate::load::Builder;
use crate::stream::StreamBlock;
use crate::tree::Statement;
use crate::upstream::UpstreamBlock;

pub(crate) type ReadCore = fn(&mut Builder<'_>, &mut CoreBlock, &Statement);
pub(crate) type ReadHttp = fn(&mut Builder<'_>, &mut HttpBlock, &Statement);
pub(crate) type ReadStream = fn(&mut Builder<'_>, &mut StreamBlock, &Statement);
pub(crate) type Check = fn(&mut Builder<'_>, &Statement);
pub(crate) type ReadUpstream = for<'s> fn(&mut Builder<'_>, &mut UpstreamBlock<'s>, &'s Statement);

/// What reads a directive.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reader {
    Core(ReadCore),
    Http(ReadHttp),
    Stream(ReadStream),
    Upstream(ReadUpstream),
    /// Its value is checked, in any context.
    Check(Check),
    /// The code of the context: a block, or `include`.
    Context,
    /// Nothing: the row says all.
    None,
}

const fn row(name: &'static str, contexts: &'static [Context], arguments: Arguments, state: State) -> Directive {
    Directive {
        name,
        module: "",
        contexts,
        arguments,
        default: "",
        documented_default: "",
        state,
        note: None,
        again: false,
        field: name,
        reader: Reader::None,
    }
}

/// A directive that sets something. `default` is read like the directive before the configuration is.
const fn read(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    reader: Reader,
) -> Directive {
    Directive { default, documented_default: default, reader, ..row(name, contexts, arguments, State::Supported) }
}

/// One of the main context or `events`.
pub(super) const fn core(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    reader: ReadCore,
) -> Directive {
    read(name, contexts, arguments, default, Reader::Core(reader))
}

/// One of `http` and the blocks in it, without upstreams.
pub(super) const fn http(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    reader: ReadHttp,
) -> Directive {
    read(name, contexts, arguments, default, Reader::Http(reader))
}

/// One of `stream` and its servers.
pub(super) const fn stream(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    reader: ReadStream,
) -> Directive {
    read(name, contexts, arguments, default, Reader::Stream(reader))
}

/// One of the upstreams of `http` or `stream`.
pub(super) const fn upstream(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    reader: ReadUpstream,
) -> Directive {
    read(name, contexts, arguments, default, Reader::Upstream(reader))
}

/// A block that the code of its context reads.
pub(super) const fn block(name: &'static str, contexts: &'static [Context], arguments: Arguments) -> Directive {
    read(name, contexts, arguments, "", Reader::Context)
}

/// One that tunes how NGINX works inside: its value is checked and has no effect. `here` says what Balanza does.
pub(super) const fn no_effect(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    default: &'static str,
    check: Check,
    here: &'static str,
) -> Directive {
    Directive { reader: Reader::Check(check), ..row(name, contexts, arguments, State::NoEffect(here)) }
        .documented(default)
}

/// Accepted with a warning: it is missing, and no answer is wrong without it.
pub(super) const fn left_out(name: &'static str, contexts: &'static [Context], arguments: Arguments) -> Directive {
    row(name, contexts, arguments, State::LeftOut(None))
}

/// Accepted with the value that asks for what is done anyway.
pub(super) const fn only(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    value: &'static str,
) -> Directive {
    row(name, contexts, arguments, State::Only(value))
}

/// A setting of something that Balanza does not have: its form is checked, and only what uses the setting is refused or
/// warned of.
pub(super) const fn unused(
    name: &'static str,
    contexts: &'static [Context],
    arguments: Arguments,
    check: Check,
) -> Directive {
    Directive { reader: Reader::Check(check), ..row(name, contexts, arguments, State::Unused) }
}

/// An error.
pub(super) const fn refused(name: &'static str, contexts: &'static [Context], arguments: Arguments) -> Directive {
    row(name, contexts, arguments, State::Unsupported)
}

impl Directive {
    /// It may stand in a block several times.
    pub(super) const fn again(self) -> Directive {
        Directive { again: true, ..self }
    }

    /// What it sets, if another directive sets it too.
    pub(super) const fn sets(self, field: &'static str) -> Directive {
        Directive { field, ..self }
    }

    /// The default in documents, if it is not the text of a directive.
    pub(super) const fn documented(self, default: &'static str) -> Directive {
        Directive { documented_default: default, ..self }
    }

    /// The value of which a directive that is left out needs no warning.
    pub(super) const fn unless(self, value: &'static str) -> Directive {
        Directive { state: State::LeftOut(Some(value)), ..self }
    }

    /// It is read only to be checked together with others. `here` says what Balanza does.
    pub(super) const fn without_effect(self, here: &'static str) -> Directive {
        Directive { state: State::NoEffect(here), ..self }
    }

    /// The reason of its warning, or the hint to its error.
    pub(super) const fn note(self, note: &'static str) -> Directive {
        Directive { note: Some(note), ..self }
    }
}

pub(super) const NONE: Arguments = exactly(0);
pub(super) const ONE: Arguments = exactly(1);
pub(super) const TWO: Arguments = exactly(2);
/// `on` or `off`.
pub(super) const FLAG: Arguments = Arguments { flag: true, ..ONE };

pub(super) const fn exactly(count: usize) -> Arguments {
    between(count, count)
}

pub(super) const fn at_least(least: usize) -> Arguments {
    between(least, usize::MAX)
}

pub(super) const fn between(least: usize, most: usize) -> Arguments {
    Arguments { least, most, flag: false, block: false }
}

impl Arguments {
    /// A block follows.
    pub(super) const fn block(self) -> Arguments {
        Arguments { block: true, ..self }
    }
}

// The contexts. H, S and L are `http`, `server` and `location`, I is their `if`, E `limit_except`; SS and MM are `stream`
// and `mail` with their servers.
pub(super) const ANYWHERE: &[Context] = &Context::ALL;
pub(super) const MAIN: &[Context] = &[Context::Main];
pub(super) const EVENTS: &[Context] = &[Context::Events];
pub(super) const HTTP: &[Context] = &[Context::Http];
pub(super) const SERVER: &[Context] = &[Context::Server];
pub(super) const LOCATION: &[Context] = &[Context::Location];
pub(super) const UPSTREAM: &[Context] = &[Context::Upstream];
pub(super) const HS: &[Context] = &[Context::Http, Context::Server];
pub(super) const SL: &[Context] = &[Context::Server, Context::Location];
pub(super) const SLI: &[Context] = &[Context::Server, Context::Location, Context::LocationIf];
pub(super) const SILI: &[Context] = &[Context::Server, Context::ServerIf, Context::Location, Context::LocationIf];
pub(super) const LI: &[Context] = &[Context::Location, Context::LocationIf];
pub(super) const LIE: &[Context] = &[Context::Location, Context::LocationIf, Context::LimitExcept];
pub(super) const LE: &[Context] = &[Context::Location, Context::LimitExcept];
pub(super) const HSL: &[Context] = &[Context::Http, Context::Server, Context::Location];
pub(super) const HSLI: &[Context] = &[Context::Http, Context::Server, Context::Location, Context::LocationIf];
pub(super) const HSLE: &[Context] = &[Context::Http, Context::Server, Context::Location, Context::LimitExcept];
pub(super) const HSLIE: &[Context] =
    &[Context::Http, Context::Server, Context::Location, Context::LocationIf, Context::LimitExcept];
pub(super) const HSILI: &[Context] =
    &[Context::Http, Context::Server, Context::ServerIf, Context::Location, Context::LocationIf];
pub(super) const STREAM: &[Context] = &[Context::Stream];
pub(super) const STREAM_SERVER: &[Context] = &[Context::StreamServer];
pub(super) const STREAM_UPSTREAM: &[Context] = &[Context::StreamUpstream];
pub(super) const SS: &[Context] = &[Context::Stream, Context::StreamServer];
pub(super) const UPSTREAMS: &[Context] = &[Context::Upstream, Context::StreamUpstream];
pub(super) const MAIL: &[Context] = &[Context::Mail];
pub(super) const MAIL_SERVER: &[Context] = &[Context::MailServer];
pub(super) const MM: &[Context] = &[Context::Mail, Context::MailServer];
