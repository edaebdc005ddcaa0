//! Names of directives and places in messages.

use balanza_balancing::registry::nearest;

use super::{Context, Directive, State, directives};

/// The places of directives for a message, such as "http, server or location"; those of the same protocol if there are any.
pub(crate) fn places(directives: &[&Directive], context: Context) -> String {
    use Context::{Events, Http, Location, Main, Server, Stream, StreamServer, StreamUpstream, Upstream};
    let has = |context: &Context| directives.iter().any(|directive| directive.allowed_in(*context));
    let http = [Main, Events, Http, Server, Location, Upstream];
    let stream = [Main, Stream, StreamServer, StreamUpstream];
    let in_stream = stream[1..].contains(&context);
    let (here, there) = if in_stream { (&stream[..], &http[..]) } else { (&http[..], &stream[..]) };
    let of =
        |contexts: &[Context]| -> Vec<&str> { contexts.iter().filter(|it| has(it)).map(|it| it.place()).collect() };
    let found = [here, there, &Context::ALL[..]].into_iter().map(of).find(|places| !places.is_empty());
    match found.unwrap_or_default().split_last() {
        Some((last, [])) => (*last).to_string(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The name nearest to a mistyped one among those that are valid in a context.
pub(crate) fn suggest(name: &str, context: Context) -> Option<&'static str> {
    let names = directives()
        .iter()
        .filter(|directive| directive.allowed_in(context) && directive.state != State::Unsupported)
        .map(|directive| directive.name);
    nearest(name, names)
}
