//! Frames (RFC 9113, 4 and 6): what is in front of each, and what the numbers in them mean.

/// Bytes in front of what a frame carries.
pub const HEAD: usize = 9;

/// The most that a frame carries, either way: no other size is announced, and a larger one would hold the other streams.
pub const MOST: usize = 16_384;

/// Kinds of frames.
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// Settings.
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Why a stream or a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    Cancel = 8,
    CompressionError = 9,
    EnhanceYourCalm = 11,
}

/// What is in front of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Head {
    /// Reads one from the first bytes of these.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let &[a, b, c, kind, flags, s @ ..] = bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Head { length, kind, flags, stream: u32::from_be_bytes(s) & STREAM })
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Whether it has a flag.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The bits of a stream's number, and of a window's increment.
const STREAM: u32 = (1 << 31) - 1;

/// The number in four bytes, without the bit that is reserved.
pub fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & STREAM
}

/// What the frame carries without padding.
pub fn unpadded(head: Head, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.len().checked_sub(padding.into()).map(|length| &rest[..length])
}
