//! `worker_priority`, `worker_cpu_affinity`, `worker_rlimit_core`, `working_directory` and `env`.

use std::path::PathBuf;

use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Core, CpuAffinity, Processors};
use crate::tree::Statement;
use crate::values;

/// The most processors that a mask may name: those of the system's call.
const MOST_PROCESSORS: usize = 1024;

impl Builder<'_> {
    /// `worker_priority [+|-]NUMBER`.
    pub fn worker_priority(&mut self, s: &Statement) -> Option<Option<i32>> {
        let text = s.words[1].value.as_slice();
        let (sign, digits) = match text {
            [b'-', digits @ ..] => (-1, digits),
            [b'+', digits @ ..] => (1, digits),
            digits => (1, digits),
        };
        let number = values::number(digits).and_then(|number| i32::try_from(number).ok());
        if number.is_none() {
            self.error(s.words[1].span, format!("\"{}\" directive invalid number", s.name()));
        }
        number.map(|number| Some(sign * number))
    }

    /// `working_directory PATH`.
    pub fn working_directory(&mut self, s: &Statement) -> Option<Option<PathBuf>> {
        Some(Some(self.file_path(&s.words[1].value)))
    }

    /// `env NAME[=VALUE]`. The worker has the environment of the program anyway.
    pub fn env(&mut self, s: &Statement) -> Option<(String, String)> {
        let text = s.words[1].text();
        let (name, value) = text.split_once('=')?;
        if name.is_empty() || value.contains('\0') {
            self.invalid_value(s, &s.words[1]);
            return None;
        }
        Some((name.to_string(), value.to_string()))
    }

    /// `worker_cpu_affinity auto [MASK] | MASK …`.
    pub fn worker_cpu_affinity(&mut self, s: &Statement) -> Option<Option<CpuAffinity>> {
        if s.words[1].value == b"auto" {
            if s.words.len() > 3 {
                self.error(s.span(), format!("invalid number of arguments in \"{}\" directive", s.name()));
                return None;
            }
            let mask = match s.words.get(2) {
                Some(word) => Some(self.processors(s, word)?),
                None => None,
            };
            return Some(Some(CpuAffinity::Auto(mask)));
        }
        let mut sets = Vec::new();
        for word in s.args() {
            sets.push(self.processors(s, word)?);
        }
        Some(Some(CpuAffinity::Sets(sets)))
    }

    /// A mask: the last digit is processor 0.
    fn processors(&mut self, s: &Statement, word: &Word) -> Option<Processors> {
        if word.value.len() > MOST_PROCESSORS {
            self.error(word.span, format!("\"{}\" supports up to {MOST_PROCESSORS} CPUs only", s.name()));
            return None;
        }
        let digits: Vec<u8> = word.value.iter().copied().filter(|byte| *byte != b' ').collect();
        if let Some(wrong) = digits.iter().find(|byte| !matches!(byte, b'0' | b'1')) {
            let wrong = char::from(*wrong);
            self.error(word.span, format!("invalid character \"{wrong}\" in \"{}\"", s.name()));
            return None;
        }
        Some(digits.iter().rev().enumerate().filter(|(_, digit)| **digit == b'1').map(|(at, _)| at).collect())
    }

    /// Looks for keys, which no core file may have, and warns if one is asked for.
    pub fn look_for_keys(&mut self, core: &mut Core, statements: &[Statement]) {
        core.process.has_keys = have_keys(statements);
        let at = statements.iter().find(|s| s.words[0].value == b"worker_rlimit_core");
        if core.process.has_keys
            && core.process.rlimit_core.is_some_and(|most| most > 0)
            && let Some(at) = at
        {
            let hint = "to analyse a crash, use a configuration without keys, or let gdb watch the worker as root";
            self.warning_hint(at.span(), "no core file is written: it would have the private keys", hint);
        }
    }

    /// Warns of masks that are not one for each worker.
    pub fn check_cpu_affinity(&mut self, core: &Core, statements: &[Statement]) {
        let Some(CpuAffinity::Sets(sets)) = &core.process.affinity else { return };
        let at = statements.iter().find(|s| s.words[0].value == b"worker_cpu_affinity");
        if sets.len() > 1
            && core.worker_processes.is_some_and(|workers| workers != sets.len())
            && let Some(at) = at
        {
            let message = "the number of \"worker_processes\" is not equal to the number of \"worker_cpu_affinity\" masks, \
                           using last mask for remaining worker processes";
            self.warning(at.span(), message);
        }
    }
}

/// Whether a key is named anywhere.
fn have_keys(statements: &[Statement]) -> bool {
    statements.iter().any(|s| {
        let name = s.words[0].value.as_slice();
        name.ends_with(b"ssl_certificate_key")
            || name == b"ssl_session_ticket_key"
            || s.block.as_deref().is_some_and(have_keys)
    })
}
