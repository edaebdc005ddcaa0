//! Formats of logs.

use std::sync::Arc;

use crate::model::LogFormat;

/// A `log_format`, with its place in the text: it must stand before its use.
pub(crate) struct Format {
    pub format: Arc<LogFormat>,
    pub order: u32,
}
