//! Flow control (RFC 9113, 5.2).

/// The largest window size.
pub const MOST: i64 = (1 << 31) - 1;

/// The initial size of every window.
pub const INITIAL: u32 = 65_535;

/// The window for received bytes, and how much of it has to be announced again.
#[derive(Debug, Clone, Copy)]
pub struct Receiving {
    /// How many bytes the peer may still send. Negative after the window was made smaller.
    window: i64,
    /// Bytes that have been read and not yet announced to the peer.
    read: u32,
    /// The size of the window.
    most: u32,
}

impl Receiving {
    /// A window of this size.
    pub fn new(most: u32) -> Receiving {
        Receiving { window: most.into(), read: 0, most }
    }

    /// Counts received bytes. Returns false if they exceed the window.
    pub fn take(&mut self, length: u32) -> bool {
        self.window -= i64::from(length);
        self.window >= 0 || length == 0
    }

    /// Counts bytes that have been read. Returns the increment to announce now; small ones are collected.
    pub fn give_back(&mut self, length: u32) -> Option<u32> {
        self.read += length;
        // If little of the window is left, small increments are announced too: the rest may be bytes of other streams,
        // which are not being read.
        if self.read == 0 || self.read < self.most / 2 && i64::from(self.read) < self.window {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        self.window += i64::from(read);
        Some(read)
    }

    /// Changes the size of the window, once the peer knows the new size.
    pub fn resize(&mut self, most: u32) {
        self.window += i64::from(most) - i64::from(self.most);
        self.most = most;
    }
}

/// The window for sent bytes.
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

    /// Counts sent bytes.
    pub fn take(&mut self, length: usize) {
        self.0 -= length as i64;
    }

    /// Changes the window by this amount. Returns false if it becomes too large.
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
