//! `experiment` and `experiment_arm`: methods that take turns, and are compared.

use balanza_balancing::registry::Host;

use super::balance::METHODS;
use super::{UpstreamBlock, place, written};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{ARMS_MAX, Experiment, ExperimentArm, ExperimentSettings};
use crate::tree::Statement;

/// An `experiment` while its upstream is read.
pub(crate) struct ExperimentDraft<'s> {
    settings: ExperimentSettings,
    starts: bool,
    statement: &'s Statement,
}

impl Builder<'_> {
    /// `experiment [block=TIME] … [start=on|off]`.
    pub fn experiment<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let (mut settings, mut starts) = (ExperimentSettings::default(), false);
        for (at, word) in s.args().iter().enumerate() {
            if self.check_quotes(word).is_none() {
                continue;
            }
            let text = word.text();
            let (name, value) = text.split_once('=').unwrap_or((&text, ""));
            if s.args()[..at].iter().any(|other| other.parameter().0 == word.parameter().0) {
                self.error(word.span, format!("duplicate parameter \"{name}\""));
                continue;
            }
            match name {
                "start" if matches!(value, "on" | "off") => starts = value == "on",
                "start" => self.error_hint(word.span, "invalid value of \"start\"", "\"on\" or \"off\""),
                name if ExperimentSettings::NAMES.contains(&name) => {
                    if let Err(expected) = settings.set(name, value) {
                        self.error_hint(word.span, format!("invalid value \"{value}\" of \"{name}\""), expected);
                    }
                }
                _ => self.invalid_parameter(word, &[&ExperimentSettings::NAMES[..], &["start"]].concat()),
            }
        }
        if let Err(wrong) = settings.check() {
            self.error_hint(place(s, "washout="), wrong, "make blocks longer: the rest of a block is what counts");
        }
        draft.experiment = Some(ExperimentDraft { settings, starts, statement: s });
    }

    /// `experiment_arm METHOD …`: a directive that chooses a method, or an algorithm as in `balance`.
    pub fn experiment_arm<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let mut words = s.words[1..].to_vec();
        if !METHODS.contains(&words[0].text().as_str()) {
            words.insert(0, Word { value: b"balance".to_vec(), ..words[0].clone() });
        }
        let method = Statement { words, block: None, order: s.order };
        let mut inner = UpstreamBlock::new(draft.name.clone());
        if self.check_of_upstream(&method).is_none() {
            return;
        }
        self.balance_directive(&mut inner, &method);
        let Some((balance, _)) = inner.balance else { return };
        let arm = ExperimentArm { balance, text: written(&method) };
        if draft.arms.iter().any(|(other, _)| other.text == arm.text) {
            let hint = "an arm is known by the text of its method";
            return self.error_hint(s.words[1].span, format!("duplicate arm \"{}\"", arm.text), hint);
        }
        if draft.arms.len() + 1 == ARMS_MAX {
            let hint = "the method of the upstream is one of them";
            return self.error_hint(s.words[1].span, format!("more than {ARMS_MAX} arms"), hint);
        }
        if arm.balance.spec.entry().host == Host::Program {
            let message = format!("\"{}\" cannot be an arm", arm.balance.spec.entry().name);
            let hint = "make it the method of the upstream: the arms are compared with that";
            return self.error_hint(s.words[1].span, message, hint);
        }
        draft.arms.push((arm, s));
    }

    /// What an upstream needs for its experiment.
    pub fn check_experiment(&mut self, draft: &UpstreamBlock<'_>, method: &str) {
        for (arm, s) in &draft.arms {
            if arm.text == method {
                let hint = "the upstream's own method is an arm in any case";
                self.error_hint(s.words[1].span, format!("\"{method}\" is the method of the upstream"), hint);
            }
            let entry = arm.balance.spec.entry();
            if !entry.backup && draft.servers.iter().any(|(server, _)| server.backup) {
                let message = format!("\"{}\" cannot be an arm in an upstream with backup servers", entry.name);
                self.error_hint(s.words[1].span, message, "as a balancing method it does not support \"backup\"");
            }
        }
        let Some(experiment) = &draft.experiment else {
            if let Some((_, s)) = draft.arms.first() {
                self.error_hint(s.span(), "\"experiment_arm\" without \"experiment\"", "add `experiment;`");
            }
            return;
        };
        let s = experiment.statement;
        if draft.arms.is_empty() {
            let hint = "add what is compared with the method of the upstream, for example `experiment_arm least_conn;`";
            self.error_hint(s.span(), "\"experiment\" has no arm", hint);
        }
        if draft.zone.is_none() {
            let name = &draft.name;
            let message = format!("\"experiment\" requires upstream \"{name}\" to be in shared memory");
            self.error_hint(s.span(), message, "add `zone NAME SIZE;` to the upstream");
        }
        let limits = |draft: &UpstreamBlock<'_>| {
            draft.overload.concurrency.is_some() || draft.servers.iter().any(|(server, _)| server.max_conns > 0)
        };
        if experiment.settings.full.is_some() && !limits(draft) && !draft.servers.is_empty() {
            let hint = "it is the part of their \"max_conns\" that is in use";
            self.error_hint(place(s, "full="), "\"full\" needs servers with \"max_conns\"", hint);
        }
    }
}

impl UpstreamBlock<'_> {
    /// The experiment, complete.
    pub fn experiment(&mut self) -> Option<Experiment> {
        let ExperimentDraft { settings, starts, .. } = self.experiment.take()?;
        let arms = std::mem::take(&mut self.arms).into_iter().map(|(arm, _)| arm).collect();
        Some(Experiment { settings, starts, arms })
    }
}
