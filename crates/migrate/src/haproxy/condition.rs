//! `if` and `unless`: alternatives of declarations that all have to hold.

use super::acl::{self, Acl, Test};
use super::nginx::{self, Maps, Node};

/// A condition: one of these lists has to hold; `true` is for a declaration that must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition(Vec<Vec<(bool, Term)>>, bool);

/// A declaration, or a test without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Named(String),
    Test(Vec<String>),
}

/// Reads the words from "if" or "unless" on; none for no condition.
///
/// # Errors
/// What is wrong with it.
pub fn read(words: &[String]) -> Result<Option<Condition>, String> {
    let negated = match words.first().map(String::as_str) {
        None => return Ok(None),
        Some("if") => false,
        Some("unless") => true,
        Some(other) => return Err(format!("\"{other}\" has no counterpart")),
    };
    let mut alternatives = vec![Vec::new()];
    let mut rest = words[1..].iter();
    let mut is_not = false;
    while let Some(word) = rest.next() {
        let (bang, word) = word.strip_prefix('!').map_or((false, word.as_str()), |word| (true, word));
        is_not ^= bang;
        let term = match word {
            "" => continue,
            "||" | "or" => {
                alternatives.push(Vec::new());
                continue;
            }
            "{" => Term::Test(rest.by_ref().take_while(|word| *word != "}").cloned().collect()),
            name => Term::Named(name.to_string()),
        };
        let last = alternatives.last_mut().ok_or("an empty condition")?;
        last.push((std::mem::take(&mut is_not), term));
    }
    if alternatives.iter().any(Vec::is_empty) {
        return Err("an empty condition".into());
    }
    Ok(Some(Condition(alternatives, negated)))
}

/// The declarations of a section as variables, which are made when they are used.
pub struct Variables<'a> {
    /// The beginning of their names, which no built-in variable has.
    scope: String,
    acls: &'a [Acl],
}

impl<'a> Variables<'a> {
    /// Those of a section. A frontend and a backend may have the same name, so the kind begins the names.
    pub fn new(kind: char, name: &str, acls: &'a [Acl]) -> Variables<'a> {
        Variables { scope: format!("{kind}_{}", nginx::name(name)), acls }
    }

    fn tests(&self, term: &Term) -> Result<Vec<Test>, String> {
        match term {
            Term::Test(words) => Ok(vec![acl::read(words)?]),
            Term::Named(name) => {
                let mut tests = Vec::new();
                for acl in self.acls.iter().filter(|acl| acl.name == *name) {
                    tests.push(acl.test.clone().map_err(|why| format!("acl {name}: {why}"))?);
                }
                if tests.is_empty() {
                    tests.push(acl::predefined(name).ok_or(format!("there is no acl \"{name}\""))?);
                }
                Ok(tests)
            }
        }
    }

    /// What a condition reads of the request: variables, one after the other.
    ///
    /// # Errors
    /// What has no counterpart.
    pub fn sources(&self, condition: &Condition) -> Result<String, String> {
        let mut all = String::new();
        for (_, term) in condition.0.iter().flatten() {
            for test in self.tests(term)? {
                if let Test::Text { variable, .. } = test {
                    all.push_str(&variable);
                }
            }
        }
        Ok(all)
    }

    /// The variable of a term: "1" or "0".
    fn term(&self, term: &Term, maps: &mut Maps) -> Result<String, String> {
        let tests = self.tests(term)?;
        let base = match term {
            Term::Named(name) => format!("{}_{}", self.scope, nginx::name(name)),
            Term::Test(_) => format!("{}_test", self.scope),
        };
        let mut define = |test: &Test, base: &str| {
            let (head, lines) = test.block();
            maps.define(&head, base, lines)
        };
        if let [test] = &tests[..] {
            return Ok(define(test, &base));
        }
        let parts: Vec<_> =
            tests.iter().enumerate().map(|(nth, test)| define(test, &format!("{base}_part{}", nth + 1))).collect();
        Ok(map(&parts.concat(), &base, "0", [("~1".to_string(), "1".to_string())], maps))
    }

    /// The variables that a condition needs, and the expressions of which one matches if it holds, for these variables
    /// in this order among `all`.
    fn bits(
        &self,
        condition: &Condition,
        all: &mut Vec<String>,
        maps: &mut Maps,
    ) -> Result<Vec<Vec<(usize, char)>>, String> {
        let mut alternatives = Vec::new();
        for alternative in &condition.0 {
            let mut bits = Vec::new();
            for (is_not, term) in alternative {
                let variable = self.term(term, maps)?;
                let at = all.iter().position(|it| *it == variable).unwrap_or_else(|| {
                    all.push(variable);
                    all.len() - 1
                });
                bits.push((at, if *is_not { '0' } else { '1' }));
            }
            alternatives.push(bits);
        }
        Ok(alternatives)
    }

    /// The variable that is "1" if a condition holds, else "0".
    ///
    /// # Errors
    /// What has no counterpart.
    pub fn condition(&self, condition: &Condition, maps: &mut Maps) -> Result<String, String> {
        let mut all = Vec::new();
        let alternatives = self.bits(condition, &mut all, maps)?;
        if let ([bits], [variable], false) = (alternatives.as_slice(), all.as_slice(), condition.1)
            && bits.iter().all(|(_, bit)| *bit == '1')
        {
            return Ok(variable.clone());
        }
        let (hit, miss) = if condition.1 { ("0", "1") } else { ("1", "0") };
        let lines: Vec<_> = alternatives.iter().map(|bits| (pattern(bits, all.len()), hit.to_string())).collect();
        Ok(map(&all.concat(), &format!("{}_if", self.scope), miss, lines, maps))
    }

    /// The variable with the first of the values whose condition holds, else the last resort.
    ///
    /// # Errors
    /// What has no counterpart.
    pub fn choice(
        &self,
        name: &str,
        choices: &[(String, Option<Condition>)],
        last: &str,
        maps: &mut Maps,
    ) -> Result<String, String> {
        let mut variables = Vec::new();
        for (value, condition) in choices {
            let variable = match condition {
                Some(condition) => self.condition(condition, maps)?,
                None => "1".to_string(),
            };
            variables.push((value, variable));
        }
        let source: String = variables.iter().map(|(_, variable)| variable.as_str()).collect();
        let lines = variables.iter().enumerate().map(|(at, (value, _))| {
            let before = ".".repeat(at);
            (format!("~^{before}1"), value.to_string())
        });
        let lines: Vec<_> = lines.collect();
        Ok(map(&source, &format!("{}_{name}", self.scope), last, lines, maps))
    }
}

/// An expression for texts of so many digits.
fn pattern(bits: &[(usize, char)], length: usize) -> String {
    let digit = |at| match bits.iter().filter(|(bit, _)| *bit == at).map(|(_, digit)| *digit).collect::<Vec<_>>()[..] {
        [] => '.',
        // The same condition and its opposite: no digit is both.
        [first, ref rest @ ..] if rest.iter().any(|other| *other != first) => 'x',
        [first, ..] => first,
    };
    format!("~^{}$", (0..length).map(digit).collect::<String>())
}

fn map(
    source: &str,
    base: &str,
    default: &str,
    lines: impl IntoIterator<Item = (String, String)>,
    maps: &mut Maps,
) -> String {
    let lines =
        lines.into_iter().map(|(key, value)| Node::line(format!("{} {}", nginx::quoted(&key), nginx::quoted(&value))));
    let default = Node::line(format!("default {}", nginx::quoted(default)));
    maps.define(&format!("map \"{source}\""), base, [default].into_iter().chain(lines).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn conditions_are_maps_of_digits() {
        let condition = read(&words("if a !b or { path_beg /x }")).unwrap().unwrap();
        let acl = |name: &str, text: &str| Acl { name: name.into(), test: acl::read(&words(text)) };
        let acls = [acl("a", "path /a"), acl("b", "method GET"), acl("b", "src 10.0.0.0/8")];
        let variables = Variables::new('f', "web", &acls);
        let mut maps = Maps::default();
        assert_eq!(variables.condition(&condition, &mut maps).unwrap(), "$f_web_if");
        let Node::Block(head, lines) = maps.nodes.last().unwrap() else { panic!() };
        assert_eq!(head, "map \"$f_web_a$f_web_b$f_web_test\" $f_web_if");
        assert_eq!(lines[1..], [Node::line("~^10.$ 1"), Node::line("~^..1$ 1")]);
        let simple = read(&words("if a")).unwrap().unwrap();
        assert_eq!(variables.condition(&simple, &mut maps).unwrap(), "$f_web_a");
        assert!(variables.condition(&read(&words("unless nothing")).unwrap().unwrap(), &mut maps).is_err());
        assert_eq!(variables.sources(&condition).unwrap(), "$request_path$request_method$request_path");
    }

    #[test]
    fn sections_of_one_name_have_their_own_variables() {
        let acl = |name: &str, text: &str| Acl { name: name.into(), test: acl::read(&words(text)) };
        let (front, back) = (
            [acl("is-api", "path /a"), acl("is_api", "path /b"), acl("IS_API", "path /c")],
            [acl("is-api", "path /d")],
        );
        let mut maps = Maps::default();
        let mut of = |kind, acls: &[Acl], name: &str| {
            let condition = read(&words(&format!("if {name}"))).unwrap().unwrap();
            Variables::new(kind, "app", acls).condition(&condition, &mut maps).unwrap()
        };
        assert_eq!(of('f', &front, "is-api"), "$f_app_is_api");
        assert_eq!(of('f', &front, "is_api"), "$f_app_is_api_2");
        assert_eq!(of('f', &front, "IS_API"), "$f_app_is_api_3");
        assert_eq!(of('b', &back, "is-api"), "$b_app_is_api");
    }

    #[test]
    fn wrong_conditions_are_errors() {
        assert_eq!(read(&[]), Ok(None));
        for text in ["if", "when a", "if a or", "if or"] {
            assert!(read(&words(text)).is_err(), "{text}");
        }
    }
}
