//! The static and the dynamic table.

use std::collections::VecDeque;

/// The static table (RFC 7541, Appendix A). Its first index is 1.
pub const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// The initial size of every dynamic table. No other size is announced.
pub const SIZE: usize = 4096;

/// The overhead of an entry in the calculation of the table's size.
const OVERHEAD: usize = 32;

/// The dynamic table, with the newest field first.
#[derive(Default)]
pub struct Dynamic {
    /// Names and values, one after the other; evicted ones at the beginning.
    text: Vec<u8>,
    entries: VecDeque<Entry>,
    /// The size of the table, by HPACK's calculation.
    size: usize,
}

/// The position of a field in the text.
struct Entry {
    at: u16,
    name: u16,
    value: u16,
}

impl Entry {
    fn size(&self) -> usize {
        self.name as usize + self.value as usize + OVERHEAD
    }
}

impl Dynamic {
    /// The field with this index, counted from 0.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        let at = entry.at as usize;
        let value = at + entry.name as usize;
        Some((&self.text[at..value], &self.text[value..value + entry.value as usize]))
    }

    /// Adds a field in front and evicts old ones that no longer fit. A field larger than the table empties it.
    pub fn insert(&mut self, field: &[u8], name: usize, most: usize) {
        let size = field.len() + OVERHEAD;
        self.shrink(most.saturating_sub(size));
        if size > most {
            return;
        }
        self.make_room(field.len());
        // The text is always smaller than 64 KiB.
        let (at, name, value) = (self.text.len() as u16, name as u16, (field.len() - name) as u16);
        self.text.extend_from_slice(field);
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len().max(4));
        }
        self.entries.push_front(Entry { at, name, value });
        self.size += size;
    }

    /// Evicts entries until the size is at most `most`.
    pub fn shrink(&mut self, most: usize) {
        while self.size > most {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.text.clear();
        }
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes room in the text. It grows in small steps, because most connections have few fields in it.
    fn make_room(&mut self, length: usize) {
        if self.text.len() + length <= self.text.capacity() {
            return;
        }
        let gone = self.entries.back().map_or(0, |oldest| oldest.at);
        if gone as usize > self.text.len() / 4 {
            self.text.drain(..gone as usize);
            self.entries.iter_mut().for_each(|entry| entry.at -= gone);
        }
        if self.text.len() + length > self.text.capacity() {
            self.text.reserve_exact(length.max(self.text.len() / 2));
        }
    }
}
