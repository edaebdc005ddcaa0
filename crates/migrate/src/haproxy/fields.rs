//! The fields of a request or a response as rules leave them.

use super::nginx::{self, Maps, Node, quoted};

/// What a rule does with a field: `set-header`, `add-header`, or `del-header` without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    /// With variables; none removes the field.
    pub value: Option<String>,
    /// The values that are there stay.
    pub adds: bool,
}

/// A field and its lines.
#[derive(Debug, Clone)]
struct Field {
    name: String,
    values: Vec<String>,
    /// A rule has changed it.
    changed: bool,
}

/// Fields by name.
#[derive(Debug, Clone)]
pub struct Fields {
    /// The prefix of the variables with what came: `$http_` or `$upstream_http_`.
    came: &'static str,
    fields: Vec<Field>,
}

impl Fields {
    /// Those of a request.
    pub fn of_request() -> Fields {
        Fields { came: "$http_", fields: Vec::new() }
    }

    /// Those of a response.
    pub fn of_response() -> Fields {
        Fields { came: "$upstream_http_", fields: Vec::new() }
    }

    /// The variable with what came; none for names that Balanza drops, as NGINX does.
    fn came(&self, name: &str) -> Option<String> {
        let is_plain = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
        is_plain.then(|| format!("{}{}", self.came, name.to_ascii_lowercase().replace('-', "_")))
    }

    fn find(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// The values of a field so far.
    fn values(&self, name: &str) -> Vec<String> {
        self.find(name).map_or_else(|| self.came(name).into_iter().collect(), |field| field.values.clone())
    }

    fn put(&mut self, name: &str, values: Vec<String>, changed: bool) {
        match self.fields.iter_mut().find(|field| field.name.eq_ignore_ascii_case(name)) {
            Some(field) => {
                field.values = values;
                field.changed |= changed;
            }
            None => self.fields.push(Field { name: name.into(), values, changed }),
        }
    }

    /// Gives a field the value that it has without any rule.
    pub fn set(&mut self, name: &str, value: &str) {
        self.put(name, vec![value.into()], false);
    }

    /// A rule. `condition` is the variable that is "1" if it holds.
    pub fn change(&mut self, change: &Change, condition: Option<&str>, line: usize, maps: &mut Maps) {
        let before = self.values(&change.name);
        let mut choice = |default: &str, value: &str| match condition {
            None => value.to_string(),
            Some(variable) => {
                let lines = [format!("default {}", quoted(default)), format!("1 {}", quoted(value))];
                let base = format!("set_{}_{line}", nginx::name(&change.name));
                maps.define(&format!("map {variable}"), &base, lines.map(Node::line).into())
            }
        };
        let value = change.value.as_deref();
        let after = match (&before[..], value) {
            (_, Some(value)) if change.adds => before.iter().cloned().chain([choice("", value)]).collect::<Vec<_>>(),
            (_, None) if condition.is_none() => Vec::new(),
            (_, Some(value)) if condition.is_none() => vec![value.to_string()],
            // What was there before stays if the condition does not hold.
            ([], value) => value.iter().map(|value| choice("", value)).collect(),
            ([only], value) => vec![choice(only, value.unwrap_or_default())],
            (all, value) => {
                let mut after: Vec<String> = all.iter().map(|it| choice(it, "")).collect();
                after.extend(value.map(|value| choice("", value)));
                after
            }
        };
        self.put(&change.name, after, true);
    }

    /// `option forwardfor`: one more address, after all rules.
    pub fn forwarded_for(&mut self, name: &str) {
        if self.find(name).is_none() && name.eq_ignore_ascii_case("X-Forwarded-For") {
            return self.set(name, "$proxy_add_x_forwarded_for");
        }
        let mut values = self.values(name);
        values.push("$remote_addr".into());
        self.put(name, values, false);
    }

    /// The first of these variables that has what came, of a field that a rule has changed.
    pub fn changed(&self, text: &str) -> Option<&str> {
        let text = text.replace("${", "$");
        let is_used = |field: &&Field| {
            field.changed
                && self.came(&field.name).is_some_and(|variable| {
                    text.match_indices(&variable).any(|(at, _)| {
                        !text[at + variable.len()..]
                            .starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_')
                    })
                })
        };
        self.fields.iter().find(is_used).map(|field| field.name.as_str())
    }

    /// `proxy_set_header` directives.
    pub fn request(&self) -> Vec<Node> {
        let line = |name: &str, value: &str| Node::line(format!("proxy_set_header {name} {}", quoted(value)));
        let lines = self.fields.iter().flat_map(|field| match &field.values[..] {
            [] => vec![line(&field.name, "")],
            values => values.iter().map(|value| line(&field.name, value)).collect(),
        });
        lines.collect()
    }

    /// `proxy_hide_header` and `add_header` directives.
    pub fn response(&self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for field in &self.fields {
            let came = self.came(&field.name);
            if came.is_none() || field.values.first() != came.as_ref() {
                nodes.push(Node::line(format!("proxy_hide_header {}", field.name)));
            }
            for value in field.values.iter().filter(|value| Some(*value) != came.as_ref()) {
                nodes.push(Node::line(format!("add_header {} {} always", field.name, quoted(value))));
            }
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, value: Option<&str>, adds: bool) -> Change {
        Change { name: name.into(), value: value.map(str::to_string), adds }
    }

    fn lines(nodes: &[Node]) -> Vec<&str> {
        nodes.iter().map(|node| if let Node::Line(text) = node { text.as_str() } else { "" }).collect()
    }

    #[test]
    fn a_condition_keeps_what_rules_before_have_made() {
        let (mut maps, mut fields) = (Maps::default(), Fields::of_request());
        fields.change(&change("X-User", None, false), None, 1, &mut maps);
        fields.change(&change("x-user", Some("$a"), false), Some("$f_x"), 2, &mut maps);
        fields.change(&change("X-Proto", Some("http"), false), None, 3, &mut maps);
        fields.change(&change("X-Proto", Some("https"), false), Some("$tls"), 4, &mut maps);
        fields.change(&change("X-Free", Some("1"), false), Some("$f_x"), 5, &mut maps);
        assert_eq!(
            lines(&fields.request()),
            [
                "proxy_set_header X-User $set_x_user_2",
                "proxy_set_header X-Proto $set_x_proto_4",
                "proxy_set_header X-Free $set_x_free_5"
            ]
        );
        let block = |head: &str, lines: [&str; 2]| Node::Block(head.into(), lines.map(Node::line).into());
        assert_eq!(
            maps.nodes,
            [
                block("map $f_x $set_x_user_2", ["default \"\"", "1 $a"]),
                block("map $tls $set_x_proto_4", ["default http", "1 https"]),
                block("map $f_x $set_x_free_5", ["default $http_x_free", "1 1"]),
            ]
        );
    }

    #[test]
    fn fields_are_added_and_removed() {
        let (mut maps, mut fields) = (Maps::default(), Fields::of_request());
        fields.set("Host", "$http_host");
        fields.set("Upgrade", "$http_upgrade");
        fields.change(&change("host", Some("x"), false), None, 1, &mut maps);
        fields.change(&change("X-A", Some("1"), true), None, 2, &mut maps);
        fields.change(&change("X-Forwarded-For", None, false), None, 3, &mut maps);
        fields.forwarded_for("X-Forwarded-For");
        fields.forwarded_for("X-Client");
        let expected = ["Host x", "Upgrade $http_upgrade", "X-A $http_x_a", "X-A 1", "X-Forwarded-For $remote_addr"];
        let expected = [&expected[..], &["X-Client $http_x_client", "X-Client $remote_addr"]].concat();
        assert_eq!(
            lines(&fields.request()),
            expected.iter().map(|it| format!("proxy_set_header {it}")).collect::<Vec<_>>()
        );
        assert_eq!(fields.changed("$http_upgrade a${http_x_a}b"), Some("X-A"));
        assert_eq!(fields.changed("$http_x_a."), Some("X-A"));
        assert_eq!(fields.changed("$http_x_abc"), None);
        // Several lines: each is kept or left out.
        fields.change(&change("X-A", Some("2"), false), Some("$c"), 4, &mut maps);
        assert_eq!(maps.nodes.len(), 3);
        assert!(
            maps.nodes.iter().any(|node| matches!(node, Node::Block(_, lines) if lines[0] == Node::line("default 1")))
        );
    }

    #[test]
    fn fields_of_responses_are_hidden_if_they_are_replaced() {
        let (mut maps, mut fields) = (Maps::default(), Fields::of_response());
        fields.change(&change("Server", None, false), None, 1, &mut maps);
        fields.change(&change("X-A", Some("1"), true), None, 2, &mut maps);
        fields.change(&change("X-B", Some("1"), false), None, 3, &mut maps);
        fields.change(&change("X-B", Some("2"), false), None, 4, &mut maps);
        fields.change(&change("X-C", Some("1"), false), Some("$c"), 5, &mut maps);
        assert_eq!(
            lines(&fields.response()),
            [
                "proxy_hide_header Server",
                "add_header X-A 1 always",
                "proxy_hide_header X-B",
                "add_header X-B 2 always",
                "proxy_hide_header X-C",
                "add_header X-C $set_x_c_5 always"
            ]
        );
        let lines = ["default $upstream_http_x_c", "1 1"].map(Node::line).to_vec();
        assert_eq!(maps.nodes, [Node::Block("map $c $set_x_c_5".into(), lines)]);
    }
}
