//! Decodes header blocks into fields.

use super::table::{Dynamic, SIZE, STATIC};
use super::{Invalid, huffman};

/// Larger than any number that is valid here.
const MOST: usize = 1 << 24;

/// The longest table name that is copied for an unwanted field, because one or two bytes can request a copy.
const NAME_UNWANTED: usize = 256;

/// Decodes the header blocks of a connection.
pub struct Decoder {
    /// None while the table is empty.
    dynamic: Option<Box<Dynamic>>,
    /// The size that the peer has set for the table.
    most: usize,
    /// A field of the block has been read, so a size update is no longer allowed.
    begun: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { dynamic: None, most: SIZE, begun: false }
    }
}

/// Why decoding has stopped.
enum Stop {
    /// The field continues in the next piece of the block.
    Incomplete,
    Invalid,
}

impl From<Invalid> for Stop {
    fn from(_: Invalid) -> Stop {
        Stop::Invalid
    }
}

/// A string as it was received.
#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    huffman: bool,
}

impl Text<'_> {
    fn append(self, to: &mut Vec<u8>) -> Result<(), Invalid> {
        if self.huffman {
            return huffman::decode(self.bytes, to);
        }
        to.extend_from_slice(self.bytes);
        Ok(())
    }
}

/// The rest of a block.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let (&byte, rest) = self.0.split_first().ok_or(Stop::Incomplete)?;
        self.0 = rest;
        Ok(byte)
    }

    /// Reads a number that begins in the low bits of `first` (RFC 7541, 5.1).
    fn number(&mut self, first: u8, bits: u32) -> Result<usize, Stop> {
        let mask = (1 << bits) - 1;
        let mut value = usize::from(first) & mask;
        if value < mask {
            return Ok(value);
        }
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if value >= MOST || shift > 21 {
                return Err(Stop::Invalid);
            }
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> Result<Text<'a>, Stop> {
        let first = self.byte()?;
        let length = self.number(first, 7)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Stop::Incomplete)?;
        self.0 = rest;
        Ok(Text { bytes, huffman: first & 0x80 != 0 })
    }
}

impl Decoder {
    /// Begins a block.
    pub fn begin(&mut self) {
        self.begun = false;
    }

    /// Decodes the complete fields of a piece of a block, and returns how many bytes they took. Each field is appended
    /// to `text`, then `each` is called with the positions where the field begins and where its name ends. `each` may
    /// remove the field again, and returns whether more fields are `wanted`. Fields that are not wanted cost no more
    /// than reading their bytes.
    ///
    /// # Errors
    /// The block is not valid. The connection has to be closed.
    pub fn decode(
        &mut self,
        block: &[u8],
        text: &mut Vec<u8>,
        mut wanted: bool,
        mut each: impl FnMut(&mut Vec<u8>, usize, usize) -> bool,
    ) -> Result<usize, Invalid> {
        let mut reader = Reader(block);
        loop {
            let left = reader.0.len();
            if left == 0 {
                return Ok(block.len());
            }
            match self.read_one(&mut reader, text, &mut wanted, &mut each) {
                Ok(()) => {}
                Err(Stop::Incomplete) => return Ok(block.len() - left),
                Err(Stop::Invalid) => return Err(Invalid),
            }
        }
    }

    fn read_one(
        &mut self,
        reader: &mut Reader<'_>,
        text: &mut Vec<u8>,
        wanted: &mut bool,
        each: &mut impl FnMut(&mut Vec<u8>, usize, usize) -> bool,
    ) -> Result<(), Stop> {
        let (begin, first) = (text.len(), reader.byte()?);
        if first & 0x80 != 0 {
            let (name, value) = self.get(reader.number(first, 7)?)?;
            if *wanted {
                text.extend_from_slice(name);
                text.extend_from_slice(value);
                *wanted = each(text, begin, begin + name.len());
            }
            self.begun = true;
            return Ok(());
        }
        if first & 0xe0 == 0x20 {
            let size = reader.number(first, 5)?;
            if self.begun || size > SIZE {
                return Err(Stop::Invalid);
            }
            self.resize(size);
            return Ok(());
        }
        let is_kept = first & 0x40 != 0;
        let index = reader.number(first, if is_kept { 6 } else { 4 })?;
        let literal = if index == 0 { Some(reader.text()?) } else { None };
        let value = reader.text()?;
        match literal {
            Some(name) => name.append(text)?,
            None => {
                let (name, _) = self.get(index)?;
                if !*wanted && name.len() > NAME_UNWANTED {
                    return Err(Stop::Invalid);
                }
                text.extend_from_slice(name);
            }
        }
        let name_end = text.len();
        value.append(text)?;
        self.begun = true;
        if is_kept {
            self.insert(&text[begin..], name_end - begin);
        }
        if *wanted {
            *wanted = each(text, begin, name_end);
        } else {
            text.truncate(begin);
        }
        Ok(())
    }

    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), Invalid> {
        let Some(index) = index.checked_sub(1) else { return Err(Invalid) };
        if let Some(&field) = STATIC.get(index) {
            return Ok(field);
        }
        self.dynamic.as_ref().and_then(|dynamic| dynamic.get(index - STATIC.len())).ok_or(Invalid)
    }

    fn insert(&mut self, field: &[u8], name: usize) {
        self.dynamic.get_or_insert_default().insert(field, name, self.most);
        self.free_empty();
    }

    fn resize(&mut self, size: usize) {
        self.most = size;
        if let Some(dynamic) = &mut self.dynamic {
            dynamic.shrink(size);
        }
        self.free_empty();
    }

    fn free_empty(&mut self) {
        if self.dynamic.as_ref().is_some_and(|dynamic| dynamic.is_empty()) {
            self.dynamic = None;
        }
    }
}
