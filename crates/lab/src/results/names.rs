//! Names of files, made of names that plans choose.

use std::fmt::Write;

use crate::plan::Cell;

/// The file of a run, without its extension.
pub(super) fn run(cell: &Cell, repetition: u32) -> String {
    let parts = [&cell.farm, &cell.load, cell.system.name(), &cell.algorithm].map(part);
    format!("{}.{repetition}", parts.join("."))
}

/// The directory of a configuration: it depends on everything of a cell but the load, and of that on keep-alive.
pub(super) fn configuration(cell: &Cell, keep_alive: bool) -> String {
    let [system, algorithm, farm] = [cell.system.name(), &cell.algorithm, &cell.farm].map(part);
    format!("{system}/{algorithm}@{farm}{}", if keep_alive { "" } else { "@close" })
}

/// A name with nothing but letters, digits, hyphens and underscores; different names stay different.
fn part(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => text.push(char::from(byte)),
            b' ' => text.push('_'),
            // Writing into a string does not fail.
            _ => drop(write!(text, "~{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::System;

    #[test]
    fn names_can_be_read() {
        let system = System::NginxBalanza;
        let cell = Cell { farm: "two".into(), load: "250".into(), system, algorithm: "WRR 3:1".into() };
        assert_eq!(run(&cell, 3), "two.250.nginx~2bbalanza.WRR_3~3a1.3");
        assert_eq!(configuration(&cell, true), "nginx~2bbalanza/WRR_3~3a1@two");
        assert_eq!(configuration(&cell, false), "nginx~2bbalanza/WRR_3~3a1@two@close");
    }

    proptest! {
        #[test]
        fn different_names_have_different_files(a in ".{1,6}", b in ".{1,6}") {
            prop_assert_eq!(part(&a) == part(&b), a == b);
            prop_assert!(!part(&a).contains(['/', '.', '@', '\0']));
        }
    }
}
