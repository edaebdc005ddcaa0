//! The main context and `events`.

use super::defaults;
use crate::core::CoreBlock;
use crate::directives::{Context, Directive, Reader};
use crate::load::Builder;
use crate::model::{ErrorLog, Level, LogTarget};
use crate::tree::Statement;

impl Builder<'_> {
    /// The defaults of all directives.
    pub fn core_defaults(&mut self) -> CoreBlock {
        let mut block = CoreBlock::default();
        for (directive, statement) in defaults() {
            if let Reader::Core(read) = directive.reader {
                read(self, &mut block, statement);
            }
        }
        block.core.pid = Some(self.options.prefix.join(&self.options.pid));
        let path = &self.options.error_log;
        let target = if path.as_os_str() == "stderr" {
            LogTarget::Stderr
        } else {
            LogTarget::File(self.options.prefix.join(path))
        };
        block.core.error_log = vec![ErrorLog { target, level: Level::Error }];
        block
    }

    /// Reads a directive that has been admitted.
    pub fn core_directive(&mut self, block: &mut CoreBlock, directive: &Directive, s: &Statement) {
        match directive.reader {
            Reader::Core(read) => read(self, block, s),
            Reader::Check(check) => check(self, s),
            _ => {}
        }
    }

    /// The block `events`.
    pub fn events(&mut self, core: &mut CoreBlock, statements: &[Statement]) {
        for s in statements {
            if let Some(directive) = self.check(s, Context::Events)
                && self.admit(&mut core.given, directive, s)
            {
                self.core_directive(core, directive, s);
            }
        }
    }
}
