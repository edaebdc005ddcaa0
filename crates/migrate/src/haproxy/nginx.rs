//! The nginx.conf that comes out.

use std::fmt::Write as _;

use crate::Note;

/// A directive, or a block of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// `NAME VALUES;`, without the semicolon.
    Line(String),
    /// `HEAD { … }`.
    Block(String, Vec<Node>),
}

impl Node {
    /// A directive.
    pub fn line(text: impl Into<String>) -> Node {
        Node::Line(text.into())
    }

    fn write(&self, depth: usize, out: &mut String) {
        let indent = "    ".repeat(depth);
        // Nothing fails that writes to a text.
        let _ = match self {
            Node::Line(text) => writeln!(out, "{indent}{text};"),
            Node::Block(head, nodes) => {
                let _ = writeln!(out, "{indent}{head} {{");
                nodes.iter().for_each(|node| node.write(depth + 1, out));
                writeln!(out, "{indent}}}")
            }
        };
    }
}

/// A word of nginx.conf: in quotes where it has to be.
pub fn quoted(text: &str) -> String {
    let plain = |char: char| !char.is_whitespace() && !matches!(char, ';' | '{' | '}' | '"' | '\'' | '\\' | '#');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A name that can be that of an upstream, a variable or a location.
pub fn name(text: &str) -> String {
    text.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect()
}

/// Blocks that define variables.
#[derive(Debug, Default)]
pub struct Maps {
    /// Them.
    pub nodes: Vec<Node>,
    names: Vec<String>,
}

impl Maps {
    /// Defines a variable with a block such as `map $source`. Names have no case in nginx.conf; if another variable has
    /// this one already, a number follows. The same block is not written twice.
    pub fn define(&mut self, head: &str, base: &str, lines: Vec<Node>) -> String {
        let base = base.to_ascii_lowercase();
        let mut name = base.clone();
        let mut nth = 1;
        while let Some(at) = self.names.iter().position(|it| *it == name) {
            if self.nodes.get(at) == Some(&Node::Block(format!("{head} ${name}"), lines.clone())) {
                return format!("${name}");
            }
            nth += 1;
            name = format!("{base}_{nth}");
        }
        let variable = format!("${name}");
        self.nodes.push(Node::Block(format!("{head} {variable}"), lines));
        self.names.push(name);
        variable
    }
}

/// The blocks of the file.
#[derive(Debug, Default)]
pub struct Tree {
    /// Main context.
    pub main: Vec<Node>,
    /// `worker_connections`.
    pub connections: Option<u64>,
    /// Directives of `http` that stand first.
    pub http: Vec<Node>,
    /// Upstreams of `http`.
    pub http_upstreams: Vec<Node>,
    /// Variables that any file may need, and `match` blocks.
    pub http_maps: Vec<Node>,
    /// Variables of `http`.
    pub http_variables: Maps,
    /// Servers of `http`.
    pub http_servers: Vec<Node>,
    /// Upstreams of `stream`.
    pub stream_upstreams: Vec<Node>,
    /// Variables of `stream`.
    pub stream_variables: Maps,
    /// Servers of `stream`.
    pub stream_servers: Vec<Node>,
    /// Upstreams whose checks are written already: one location is enough.
    pub checked: Vec<String>,
    /// There is something for `http`.
    pub uses_http: bool,
}

impl Tree {
    /// The text, with what is missing at its beginning.
    pub fn write(&self, file: &str, notes: &[Note]) -> String {
        let mut out = format!("# From {file}, by `balanza migrate`.\n");
        if !notes.is_empty() {
            out.push_str("#\n# Not carried over, or different:\n");
        }
        for Note { line, text, why } in notes {
            let clean =
                |text: &str| text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect::<String>();
            let _ = writeln!(out, "#   line {line}: {}\n#       {}", clean(text), clean(why));
        }
        out.push('\n');
        for node in &self.main {
            node.write(0, &mut out);
        }
        if !self.main.iter().any(|node| matches!(node, Node::Line(text) if text.starts_with("worker_processes"))) {
            out.push_str("worker_processes auto;\n");
        }
        let connections = self.connections.unwrap_or(4096);
        let _ = writeln!(out, "\nevents {{\n    worker_connections {connections};\n}}");
        let block = |name: &str, parts: &[&[Node]], out: &mut String| {
            if parts.iter().all(|part| part.is_empty()) {
                return;
            }
            let _ = writeln!(out, "\n{name} {{");
            let mut is_first = true;
            for node in parts.iter().copied().flatten() {
                if matches!(node, Node::Block(..)) && !is_first {
                    out.push('\n');
                }
                is_first = false;
                node.write(1, out);
            }
            out.push_str("}\n");
        };
        let http: &[Node] = if self.uses_http { &self.http } else { &[] };
        let variables = &self.http_variables.nodes;
        block("http", &[http, &self.http_maps, variables, &self.http_upstreams, &self.http_servers], &mut out);
        let variables = &self.stream_variables.nodes;
        block("stream", &[variables, &self.stream_upstreams, &self.stream_servers], &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_they_have_to_be() {
        assert_eq!(quoted("a.b/c"), "a.b/c");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted(r#"~^/a\.b{2}"c"#), r#""~^/a\\.b{2}\"c""#);
        assert_eq!(name("web-1.eu"), "web_1_eu");
    }

    #[test]
    fn every_name_is_defined_once() {
        let mut maps = Maps::default();
        let line = |text: &str| vec![Node::line(text)];
        assert_eq!(maps.define("map $a", "is_api", line("default 0")), "$is_api");
        assert_eq!(maps.define("map $a", "is_api", line("default 0")), "$is_api");
        assert_eq!(maps.define("map $a", "IS_API", line("default 1")), "$is_api_2");
        assert_eq!(maps.define("map $b", "is_api", line("default 0")), "$is_api_3");
        assert_eq!(maps.define("map $a", "Is_Api", line("default 1")), "$is_api_2");
        assert_eq!(maps.define("map $c", "is_api_2", line("default 1")), "$is_api_2_2");
        assert_eq!(maps.nodes.len(), 4);
    }
}
