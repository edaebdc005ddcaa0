//! Frames that control the connection and its streams: PRIORITY, RST_STREAM, SETTINGS, PING and WINDOW_UPDATE.

use super::{Core, Ending, Fatal, PING, WRONG_SIZE, WRONG_STREAM, fatal, protocol};
use crate::server::flow;
use crate::server::frame::{self, Reason, flag, kind, setting};

const TOO_LARGE: Fatal = fatal(Reason::FlowControlError, "client sent SETTINGS frame with too large window");

impl Core {
    pub(super) fn receive_priority(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fatal> {
        let &[a, b, c, d, _] = payload else { return Err(WRONG_SIZE) };
        if frame::number([a, b, c, d]) != head.stream {
            return Ok(());
        }
        match self.streams.find(head.stream) {
            Some(_) => self.stream_error(head.stream, Reason::ProtocolError),
            None => Err(protocol("client sent a stream that depends on itself")),
        }
    }

    pub(super) fn receive_reset(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fatal> {
        if payload.len() != 4 {
            return Err(WRONG_SIZE);
        }
        if self.is_idle(head.stream) {
            return Err(WRONG_STREAM);
        }
        self.mark_reset(head.stream);
        Ok(())
    }

    /// Whether a stream is idle (not yet opened).
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.last && self.ending != Ending::Last
    }

    pub(super) fn receive_settings(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fatal> {
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(WRONG_SIZE);
            }
            if !std::mem::replace(&mut self.settled, true) && self.settings.window < flow::INITIAL {
                for stream in self.streams.all() {
                    stream.receiving.resize(self.settings.window);
                    // An increment too small to announce for a larger window may be all that the client waits for in
                    // the smaller one.
                    if let Some(by) = stream.receiving.give_back(0).filter(|_| !stream.received) {
                        self.output.window_update(stream.id, by);
                    }
                }
            }
            return Ok(());
        }
        let (settings, []) = payload.as_chunks::<6>() else { return Err(WRONG_SIZE) };
        self.begun = true;
        let mut window = self.window;
        for &[a, b, c, d, e, f] in settings {
            self.apply(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]), &mut window)?;
        }
        self.resize_windows(window)?;
        self.output.frame(kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn apply(&mut self, name: u16, value: u32, window: &mut u32) -> Result<(), Fatal> {
        const WRONG: Fatal = protocol("client sent SETTINGS frame with invalid value");
        match name {
            setting::HEADER_TABLE_SIZE => self.table_due = true,
            setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(WRONG),
            setting::MAX_FRAME_SIZE if !(frame::MOST as u32..1 << 24).contains(&value) => return Err(WRONG),
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(value) > flow::MOST {
                    return Err(TOO_LARGE);
                }
                *window = value;
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the client's new initial window to all streams, once for each SETTINGS frame, however often the frame
    /// sets it.
    fn resize_windows(&mut self, window: u32) -> Result<(), Fatal> {
        let by = i64::from(window) - i64::from(std::mem::replace(&mut self.window, window));
        if by == 0 {
            return Ok(());
        }
        for stream in self.streams.all() {
            if !stream.sending.change(by) {
                return Err(TOO_LARGE);
            }
            if by > 0 {
                stream.wake_writer();
            }
        }
        Ok(())
    }

    pub(super) fn receive_ping(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fatal> {
        if payload.len() != 8 {
            return Err(WRONG_SIZE);
        }
        if !head.has(flag::ACK) {
            self.output.frame(kind::PING, flag::ACK, 0, payload);
        } else if payload == PING && matches!(self.ending, Ending::Told(_)) {
            // Everything that the client sent before it received our GOAWAY has arrived.
            self.tell_last();
        }
        Ok(())
    }

    pub(super) fn receive_window_update(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fatal> {
        let Ok(bytes) = payload.try_into() else { return Err(WRONG_SIZE) };
        let (id, by) = (head.stream, frame::number(bytes));
        if id == 0 {
            if by == 0 {
                return Err(protocol("client sent WINDOW_UPDATE frame with increment 0"));
            }
            return match self.sending.change(by.into()) {
                true => Ok(()),
                false => Err(fatal(Reason::FlowControlError, "client violated connection flow control")),
            };
        }
        if self.is_idle(id) {
            return Err(WRONG_STREAM);
        }
        let Some(stream) = self.streams.of(id).filter(|stream| !stream.reset) else { return Ok(()) };
        if by == 0 {
            return self.stream_error(id, Reason::ProtocolError);
        }
        if !stream.sending.change(by.into()) {
            return self.stream_error(id, Reason::FlowControlError);
        }
        stream.wake_writer();
        Ok(())
    }
}
