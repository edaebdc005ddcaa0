//! Names of directives and places in messages.

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

/// The word nearest to a mistyped one, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        // Each insertion or deletion changes the length: most candidates need no further look.
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= limit)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits between two words: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut cost = (above[j] + usize::from(ca != cb)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}
