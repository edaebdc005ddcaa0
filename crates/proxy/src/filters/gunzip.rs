//! Decompression of gzip's format, for clients that do not know it.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Broken, Filter, Flow, Step};

/// Any window that gzip has.
const WINDOW: u8 = 15;

const FAILED: Broken = Broken("inflate() failed");

/// Decompresses a body of one or several members.
pub struct Gunzip {
    decompress: Decompress,
    /// A member has ended and no other has begun.
    between: bool,
}

impl Default for Gunzip {
    fn default() -> Gunzip {
        Gunzip { decompress: Decompress::new_gzip(WINDOW), between: false }
    }
}

impl Filter for Gunzip {
    fn step(&mut self, input: &[u8], flow: Flow, out: &mut [u8]) -> Result<Step, Broken> {
        let (mut taken, mut made) = (0, 0);
        loop {
            if self.between {
                if taken == input.len() {
                    return Ok(Step { taken, made, done: true });
                }
                self.decompress = Decompress::new_gzip(WINDOW);
                self.between = false;
            }
            let before = (self.decompress.total_in(), self.decompress.total_out());
            let result = self.decompress.decompress(&input[taken..], &mut out[made..], FlushDecompress::None);
            let status = result.map_err(|_| FAILED)?;
            taken += (self.decompress.total_in() - before.0) as usize;
            made += (self.decompress.total_out() - before.1) as usize;
            if made == out.len() && status != Status::StreamEnd {
                return Ok(Step { taken, made, done: false });
            }
            match status {
                Status::StreamEnd => self.between = true,
                _ if taken < input.len() => return Err(FAILED),
                _ if flow == Flow::End => return Err(FAILED),
                _ => return Ok(Step { taken, made, done: true }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::Chain;
    use super::super::tests::run;
    use super::*;

    fn packed(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(body: &[u8], cuts: &[usize]) -> Result<Vec<u8>, Broken> {
        let mut chain = Chain::default();
        chain.add(Gunzip::default());
        run(&mut chain, body, cuts, Flow::More)
    }

    #[test]
    fn members_are_joined_and_large_ones_come_in_parts() {
        let large = vec![b'x'; 5_000_000];
        let body = [packed(b"one"), packed(b""), packed(&large)].concat();
        assert_eq!(unpacked(&body, &[3, 9, 20, 31]).unwrap(), [&b"one"[..], &large].concat());
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error() {
        let body = packed(b"a text that is long enough to be damaged");
        assert!(unpacked(&body[..body.len() - 1], &[]).is_err());
        let mut damaged = body.clone();
        damaged[15] ^= 0x55;
        assert!(unpacked(&damaged, &[]).is_err());
        assert!(unpacked(b"no gzip at all", &[]).is_err());
        assert!(unpacked(&[&body[..], b"garbage"].concat(), &[]).is_err());
        assert!(unpacked(b"", &[]).is_err());
    }
}
