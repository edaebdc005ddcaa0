//! `try_files`.

use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Fallback, TriedFile, TryFiles};
use crate::tree::Statement;
use crate::values;

impl Builder<'_> {
    /// `try_files FILE … URI`, or `=STATUS` at the end.
    pub fn try_files(&mut self, s: &Statement) -> Option<TryFiles> {
        let (last, files) = s.args().split_last()?;
        let files: Vec<Option<TriedFile>> = files.iter().map(|word| self.tried_file(word)).collect();
        let fallback = match last.value.strip_prefix(b"=") {
            None => Fallback::Redirect(self.template(last)?),
            Some(code) => match values::number(code).filter(|code| *code <= 999) {
                Some(code) => Fallback::Status(code as u16),
                None => {
                    self.error(last.span, format!("invalid code \"{}\"", last.text()));
                    return None;
                }
            },
        };
        Some(TryFiles { files: files.into_iter().collect::<Option<_>>()?, fallback })
    }

    fn tried_file(&mut self, word: &Word) -> Option<TriedFile> {
        let is_directory = word.value.ends_with(b"/");
        let value = word.value.strip_suffix(b"/").unwrap_or(&word.value).to_vec();
        Some(TriedFile { name: self.template(&Word { value, ..word.clone() })?, is_directory })
    }
}
