//! The trailer section of a chunked body.

use crate::lines::{self, Lines};
use crate::{Field, Header};
use balanza_message::admission::NO_TRAILER;
use balanza_message::bytes::TOKEN;

/// Bytes of a trailer section.
const BYTES: usize = 8 * 1024;

/// Fields that say how a message is delimited or routed. A recipient that merged them into the head would read another
/// message than we did, so they are refused and not merely dropped.
const FRAMING: u64 = Header::TransferEncoding.bit() | Header::ContentLength.bit() | Header::Host.bit();

/// A trailer section while it is read.
#[derive(Debug, Clone, Default)]
pub struct Trailers {
    bytes: Vec<u8>,
    fields: Vec<Field>,
}

impl Trailers {
    /// The fields in order: spans in [`bytes`](Self::bytes).
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The section as sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(&self.bytes), field.value.of(&self.bytes)))
    }

    /// Whether there is nothing to forward.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
    }

    pub(crate) fn push(&mut self, b: u8) -> Result<(), &'static str> {
        if self.bytes.len() == BYTES {
            return Err("too large trailer section");
        }
        self.bytes.push(b);
        Ok(())
    }

    /// Parses what was gathered, when the section is complete.
    pub(crate) fn finish(&mut self) -> Result<(), &'static str> {
        let mut lines = Lines::new(&self.bytes, 0);
        while lines.at() < self.bytes.len() {
            let Some(line) = lines.next()? else { break };
            let field = lines::field(&self.bytes, line)?;
            if field.classes & TOKEN == 0 {
                return Err("invalid field name in the trailer section");
            }
            let header = field.header;
            if header.is_in(FRAMING) {
                return Err("framing field in the trailer section");
            }
            if !header.is_in(NO_TRAILER) {
                self.fields.push(Field { name: field.name, value: field.value, header });
            }
        }
        Ok(())
    }
}
