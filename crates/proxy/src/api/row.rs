//! What the table of paths consists of.

use balanza_config::model::membership::Protocol;
use serde_json::Value;

use super::Failure;
use super::plane::View;
use super::service::Service;
use crate::desk::Ask;

/// A method that a path may have. What has GET has HEAD too, and every path has OPTIONS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Reads.
    Get,
    /// Adds.
    Post,
    /// Changes.
    Patch,
    /// Removes or resets.
    Delete,
}

impl Method {
    /// All of them.
    const ALL: [Method; 4] = [Method::Get, Method::Post, Method::Patch, Method::Delete];

    /// Its name in a request.
    pub fn text(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// The method of this name.
    pub fn of(text: &str) -> Option<Method> {
        let text = if text == "HEAD" { "GET" } else { text };
        Method::ALL.into_iter().find(|method| method.text() == text)
    }
}

/// What is sent back.
pub enum Reply {
    /// JSON.
    Value(u16, Value),
    /// A status alone.
    Done(u16),
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        Reply::Value(200, value)
    }
}

/// A request whose path and method are known.
pub struct Call<'a> {
    /// What the thread knows.
    pub service: &'a mut Service,
    /// What runs.
    pub view: &'a View,
    /// The request.
    pub ask: &'a Ask,
    /// What stands in the path for the names in braces, in their order.
    pub names: Vec<&'a str>,
    /// `http`, or `stream` if the path says so.
    pub protocol: Protocol,
    /// The table.
    pub table: &'static [Row],
}

/// Answers a request.
pub type Handler = fn(&mut Call<'_>) -> Result<Reply, Failure>;

/// A method of a path.
pub struct Operation {
    /// The method.
    pub method: Method,
    /// What it does, in a line.
    pub summary: &'static str,
    /// An argument of the query that it reads; all that answer with objects read `fields` too.
    pub argument: Option<&'static str>,
    /// The schema of the body that it takes; empty without one.
    pub takes: &'static str,
    /// The status of its success.
    pub status: u16,
    /// The schema of the body that it answers with; empty without one.
    pub gives: &'static str,
    /// Does it.
    pub handler: Handler,
}

/// A path.
pub struct Row {
    /// Its parts; a part in braces stands for a name.
    pub path: &'static str,
    /// What can be done with it.
    pub operations: &'static [Operation],
}

impl Row {
    /// The names in the braces of this path if it is the row's.
    pub fn names_in<'p>(&self, path: &[&'p str]) -> Option<Vec<&'p str>> {
        let mut names = Vec::new();
        let mut parts = path.iter();
        for part in parts_of(self.path) {
            let given = parts.next()?;
            if part.starts_with('{') {
                names.push(*given);
            } else if part != *given {
                return None;
            }
        }
        parts.next().is_none().then_some(names)
    }

    /// Its operations where changes are allowed or not.
    pub fn allowed(&self, write: bool) -> impl Iterator<Item = &'static Operation> {
        self.operations.iter().filter(move |operation| write || operation.method == Method::Get)
    }

    /// The value of the `Allow` field.
    pub fn allow(&self, write: bool) -> String {
        let mut names = Vec::new();
        for operation in self.allowed(write) {
            names.push(operation.method.text());
            if operation.method == Method::Get {
                names.push("HEAD");
            }
        }
        names.push("OPTIONS");
        names.join(", ")
    }
}

/// The parts of a path.
pub fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::table::TABLE;
    use super::*;

    fn row(path: &str) -> &'static Row {
        let path: Vec<&str> = parts_of(path).collect();
        TABLE.iter().find(|row| row.names_in(&path).is_some()).unwrap()
    }

    #[test]
    fn paths_are_found_with_their_names() {
        let path: Vec<&str> = parts_of("/9/http/upstreams/app/servers//3/").collect();
        let row = row("/9/http/upstreams/app/servers/3");
        assert_eq!(row.names_in(&path), Some(vec!["app", "3"]));
        for other in
            ["/9/http/upstreams/app/servers", "/9/http/upstreams/app/servers/3/x", "/9/stream/upstreams/app/servers/3"]
        {
            assert_eq!(row.names_in(&parts_of(other).collect::<Vec<_>>()), None, "{other}");
        }
    }

    #[test]
    fn every_path_has_one_row_and_each_method_once() {
        for (nth, row) in TABLE.iter().enumerate() {
            let parts: Vec<&str> = parts_of(row.path).collect();
            let first = TABLE.iter().position(|other| other.names_in(&parts).is_some());
            assert_eq!(first, Some(nth), "{}", row.path);
            let methods: Vec<Method> = row.operations.iter().map(|operation| operation.method).collect();
            assert!(
                methods.iter().all(|one| methods.iter().filter(|other| *other == one).count() == 1),
                "{}",
                row.path
            );
            assert_eq!(methods[0], Method::Get, "{}", row.path);
        }
    }

    #[test]
    fn allow_names_what_is_allowed() {
        let servers = row("/9/http/upstreams/app/servers");
        assert_eq!(servers.allow(true), "GET, HEAD, POST, OPTIONS");
        assert_eq!(servers.allow(false), "GET, HEAD, OPTIONS");
    }
}
