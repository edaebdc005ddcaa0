//! Flow control (RFC 9113, 5.2).

/// The largest window.
pub const MOST: i64 = (1 << 31) - 1;

/// The windows that a connection begins with.
pub const INITIAL: u32 = 65_535;

/// What may come, and what the peer was not told of yet.
#[derive(Debug, Clone, Copy)]
pub struct Receiving {
    /// What the peer may still send. Below 0 after the window was made smaller.
    window: i64,
    /// What has been read since it was told.
    read: u32,
    /// How much may be on its way.
    most: u32,
}

impl Receiving {
    /// A window of this size.
    pub fn new(most: u32) -> Receiving {
        Receiving { window: most.into(), read: 0, most }
    }

    /// Something has come; false if it may not.
    pub fn take(&mut self, length: u32) -> bool {
        self.window -= i64::from(length);
        self.window >= 0 || length == 0
    }

    /// Something has been read. Returns what the peer is to be told now: not every small piece.
    pub fn give_back(&mut self, length: u32) -> Option<u32> {
        self.read += length;
        // Who may send little more is told of little: what else may be on its way can belong to others, who do not read it.
        if self.read == 0 || self.read < self.most / 2 && i64::from(self.read) < self.window {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        self.window += i64::from(read);
        Some(read)
    }

    /// The peer knows of another size now.
    pub fn resize(&mut self, most: u32) {
        self.window += i64::from(most) - i64::from(self.most);
        self.most = most;
    }
}

/// What may be sent.
#[derive(Debug, Clone, Copy)]
pub struct Sending(i64);

impl Sending {
    /// A window of this size.
    pub fn new(window: u32) -> Sending {
        Sending(window.into())
    }

    /// Bytes that may be sent.
    pub fn room(self) -> usize {
        self.0.max(0) as usize
    }

    /// Bytes are sent.
    pub fn take(&mut self, length: usize) {
        self.0 -= length as i64;
    }

    /// More may be sent, or less; false if the window becomes too large.
    pub fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_told_together() {
        let mut window = Receiving::new(100);
        assert!(window.take(40) && window.take(0));
        assert_eq!((window.give_back(30), window.give_back(10)), (None, None), "60 may still come");
        assert!(window.take(60));
        assert!(!Receiving::take(&mut window.clone(), 1));
        assert_eq!(window.give_back(20), Some(60));
        assert!(window.take(60) && !window.take(1));
    }

    #[test]
    fn who_may_send_nothing_more_is_told_of_little() {
        let mut window = Receiving::new(100);
        assert!(window.take(100));
        assert_eq!(window.give_back(1), Some(1), "the other 99 may never be read");
    }

    #[test]
    fn a_window_may_become_smaller_than_what_was_sent() {
        let mut window = Receiving::new(100);
        assert!(window.take(80));
        window.resize(50);
        assert!(window.take(0) && !window.clone().take(1));
        assert_eq!(window.give_back(80), Some(80));
        assert!(window.take(50));
        let mut sending = Sending::new(10);
        sending.take(10);
        assert!(sending.change(-5) && sending.room() == 0);
        assert!(sending.change(MOST + 5) && !sending.change(1));
    }
}
