//! The backends that a frontend chooses from.

use super::backend;
use super::condition::Condition;
use super::lines::Line;
use super::notes::Notes;
use super::proxy::{Kind, Mode, Proxy};

/// The section with this name that has servers.
fn find<'a>(proxies: &'a [Proxy], target: &str, mode: Mode, line: &Line, notes: &mut Notes) -> Option<&'a Proxy> {
    if target.contains('%') {
        notes.add(line, "a name from the request: write a map");
        return None;
    }
    let found = proxies.iter().find(|it| it.kind != Kind::Frontend && it.name == target);
    match found {
        None => notes.add(line, "there is no such backend"),
        Some(back) if back.mode != mode => notes.add(line, "the backend has another mode"),
        // A backend that only answers has no server.
        Some(back) => return Some(back),
    }
    None
}

/// The backends in the order of their conditions, and the last resort.
pub type Choices<'a> = (Vec<(&'a Proxy, Option<Condition>, &'a Line)>, Option<&'a Proxy>);

pub fn choices<'a>(front: &'a Proxy, proxies: &'a [Proxy], notes: &mut Notes) -> Choices<'a> {
    let mut chosen = Vec::new();
    for (line, target, condition) in &front.use_backends {
        if let Some(back) = find(proxies, target, front.mode, line, notes) {
            chosen.push((back, condition.clone(), line));
        }
    }
    let own = (front.kind == Kind::Listen && backend::has_servers(front)).then_some(front);
    let default = front.default_backend.as_ref().and_then(|(line, name)| find(proxies, name, front.mode, line, notes));
    (chosen, own.or(default))
}
