//! CRC-32 (IEEE 802.3, reflected, polynomial 0xEDB88320), eight bytes at a time ("slicing by 8").

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { (c >> 1) ^ 0xedb8_8320 } else { c >> 1 };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = (t[k - 1][i] >> 8) ^ t[0][(t[k - 1][i] & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// A running checksum.
#[derive(Clone, Copy)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub fn new() -> Crc32 {
        Crc32(!0)
    }

    pub fn update(mut self, bytes: &[u8]) -> Crc32 {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let x = u64::from_le_bytes(*chunk) ^ u64::from(self.0);
            self.0 = (0..8).fold(0, |c, k| c ^ TABLES[7 - k][(x >> (8 * k)) as usize & 0xff]);
        }
        for byte in rest {
            self.0 = (self.0 >> 8) ^ TABLES[0][((self.0 ^ u32::from(*byte)) & 0xff) as usize];
        }
        self
    }

    pub fn finish(self) -> u32 {
        !self.0
    }
}

/// The checksum of `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    Crc32::new().update(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
        for cut in 0..20 {
            let text = b"The quick brown fox jumps over the lazy dog";
            assert_eq!(Crc32::new().update(&text[..cut]).update(&text[cut..]).finish(), 0x414f_a339);
        }
    }
}
