//! `client_body_temp_path` and `proxy_temp_path`.

use std::sync::Arc;

use crate::load::Builder;
use crate::model::TempPath;
use crate::tree::Statement;
use crate::values;

impl Builder<'_> {
    /// A directory and its levels: up to three, of one to three characters each.
    pub fn temp_path(&mut self, s: &Statement) -> Option<Arc<TempPath>> {
        let mut levels = Vec::new();
        for word in &s.words[2..] {
            match values::number(&word.value).and_then(|level| usize::try_from(level).ok()) {
                Some(level @ 1..=3) => levels.push(level),
                _ => {
                    let hint = "a level is the number of characters of a directory's name, from 1 to 3";
                    self.error_hint(word.span, format!("\"{}\" directive invalid value", s.name()), hint);
                    return None;
                }
            }
        }
        let path = TempPath { directory: self.file_path(&s.words[1].value), levels };
        match self.temp_paths.get(&path.directory) {
            Some((known, span)) if **known != path => {
                let first = self.files.place(*span);
                let (path, file, line) = (path.directory.display(), first.file.display(), first.line);
                let message = format!("the same path name \"{path}\" in {file}:{line} has the different levels than");
                self.error_hint(s.span(), message, "use the same levels, or different directories");
                None
            }
            Some((known, _)) => Some(Arc::clone(known)),
            None => {
                let path = Arc::new(path);
                self.temp_paths.insert(path.directory.clone(), (Arc::clone(&path), s.span()));
                Some(path)
            }
        }
    }
}
