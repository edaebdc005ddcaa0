//! Completions for bash, zsh and fish.

use clap_complete::Shell;

/// What clap_complete writes for fish takes an option that has no value yet (`balanza -s`) for a command.
const FISH_INCOMPLETE: &str = "-- $cmd 2>/dev/null\n    or return\n";
const FISH_COMPLETE: &str = "-- $cmd 2>/dev/null\n    or return 0\n";

/// Every script, with the name of its file.
pub fn scripts() -> Vec<(String, String)> {
    [("balanza.bash", Shell::Bash), ("_balanza", Shell::Zsh), ("balanza.fish", Shell::Fish)]
        .into_iter()
        .map(|(name, shell)| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut super::line::line(), "balanza", &mut script);
            let script = String::from_utf8(script).unwrap().replace(FISH_INCOMPLETE, FISH_COMPLETE);
            let lines: Vec<_> = script.lines().map(str::trim_end).collect();
            (name.to_string(), lines.join("\n") + "\n")
        })
        .collect()
}

#[test]
fn fish_completes_the_values_of_options() {
    let scripts = scripts();
    assert!(scripts.iter().any(|(name, text)| name == "balanza.fish" && text.contains(FISH_COMPLETE)));
}
