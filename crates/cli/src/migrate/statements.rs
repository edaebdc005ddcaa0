//! The directives of a text, whatever they mean: for what a configuration uses.

/// A directive with its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Name and arguments, without quotes.
    pub words: Vec<String>,
}

impl Statement {
    /// Its name.
    pub fn name(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }
}

/// All directives, those in blocks as well.
pub fn read(text: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let end_word = |word: &mut String, words: &mut Vec<String>| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    while let Some(char) = chars.next() {
        match char {
            '\\' => word.extend(chars.next()),
            '"' | '\'' if word.is_empty() => {
                while let Some(inner) = chars.next().filter(|inner| *inner != char) {
                    word.extend(if inner == '\\' { chars.next() } else { Some(inner) });
                }
                words.push(std::mem::take(&mut word));
            }
            '#' if word.is_empty() => drop(chars.by_ref().find(|char| *char == '\n')),
            ';' | '{' | '}' if !(char == '{' && word.ends_with('$')) => {
                end_word(&mut word, &mut words);
                if !words.is_empty() {
                    statements.push(Statement { words: std::mem::take(&mut words) });
                }
            }
            char if char.is_whitespace() => end_word(&mut word, &mut words),
            char => word.push(char),
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_of_all_blocks_are_found() {
        let text =
            "user a; # no; \nhttp { log_format x '$a; \"b\"' c;\n server { listen 80 udp; } }\nload_module \"m.so\";";
        let names: Vec<_> = read(text).iter().map(|it| it.words.join(" ")).collect();
        assert_eq!(
            names,
            ["user a", "http", "log_format x $a; \"b\" c", "server", "listen 80 udp", "load_module m.so"]
        );
    }
}
