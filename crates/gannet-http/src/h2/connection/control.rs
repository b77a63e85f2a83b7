//! Frames that concern the connection or a stream itself: SETTINGS, PING, WINDOW_UPDATE and so on.

use super::receive::{FrameFault, Outcome};
use super::{Connection, End};
use crate::binary::budget::Cost;
use crate::binary::priority::Priority;
use crate::h2::error::{StreamError, Why};
use crate::h2::frame::{
    FrameHeader, flags, goaway, ping, priority, priority_update, rst_stream, settings,
    window_update,
};
use crate::h2::limits::SETTINGS_FREE;
use crate::h2::streams::Closed;

impl Connection {
    pub(super) fn receive_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        check_connection(header)?;
        self.budget.charge(Cost::Settings)?;
        if header.has(flags::ACK) {
            return if payload.is_empty() {
                Ok(Outcome::Nothing)
            } else {
                Err(Why::FrameLength.into())
            };
        }
        let all = settings::parse(payload)?;
        if let Some(many) = all.len().checked_sub(SETTINGS_FREE) {
            // A frame has room for 2,730.
            self.budget.charge(Cost::ManySettings(many as u16))?;
        }
        let mut window_change = 0;
        for (id, value) in all {
            // Changes add up: only the last value matters, and a window that is too large in
            // between is never used.
            window_change += self.peer.apply(id, value)?;
        }
        if window_change != 0 {
            self.shift_windows(window_change)?;
        }
        settings::write_ack(&mut self.control);
        Ok(Outcome::Nothing)
    }

    /// RFC 9113 6.9.2.
    fn shift_windows(&mut self, by: i64) -> Result<(), Why> {
        let open: Vec<_> = self.streams.iter().map(|(slot, _)| slot).collect();
        for slot in open {
            self.streams.get_mut(slot).send_window.shift(by)?;
            self.streams.requeue(slot);
        }
        Ok(())
    }

    pub(super) fn receive_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        check_connection(header)?;
        self.budget.charge(Cost::Ping)?;
        let opaque = ping::parse(payload)?;
        if !header.has(flags::ACK) {
            ping::write(&opaque, true, &mut self.control);
        } else if opaque == super::time::DRAIN_PING && matches!(self.end, End::Announced { .. }) {
            self.end_finally();
        }
        Ok(Outcome::Nothing)
    }

    pub(super) fn receive_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        self.budget.charge(Cost::WindowUpdate)?;
        let increment = window_update::parse(payload)?;
        if header.stream == 0 {
            if increment == 0 {
                return Err(Why::ZeroIncrement.into());
            }
            self.send_window.grow(increment)?;
            return Ok(Outcome::Nothing);
        }
        self.check_not_idle(header.stream)?;
        let Some(slot) = self.streams.find(header.stream) else {
            return Ok(Outcome::Nothing);
        };
        let fault = |why| FrameFault::Stream(header.stream, StreamError::of(why));
        if increment == 0 {
            return Err(fault(Why::ZeroIncrement));
        }
        let window = &mut self.streams.get_mut(slot).send_window;
        window.grow(increment).map_err(fault)?;
        self.streams.requeue(slot);
        Ok(Outcome::Nothing)
    }

    pub(super) fn receive_rst_stream(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        self.check_not_idle(header.stream)?;
        rst_stream::parse(payload)?;
        let Some(slot) = self.streams.find(header.stream) else {
            self.budget.charge(Cost::Ignored)?;
            return Ok(Outcome::Nothing);
        };
        let is_callers = self.is_callers(slot);
        self.close_stream(slot, Closed::ByPeer);
        if !is_callers {
            self.budget.charge(Cost::Ignored)?;
            return Ok(Outcome::Nothing);
        }
        self.budget.charge(Cost::Reset)?;
        Ok(Outcome::Reset {
            stream: header.stream,
        })
    }

    /// Deprecated: only its form is checked (RFC 9113 section 5.3.2).
    pub(super) fn receive_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        self.budget.charge(Cost::Priority)?;
        if header.stream == 0 {
            return Err(Why::StreamIdentifier.into());
        }
        let why = match priority::depends_on(payload) {
            Ok(other) if other != header.stream => return Ok(Outcome::Nothing),
            Ok(_) => Why::SelfDependency,
            Err(why) => why,
        };
        // An idle stream cannot be reset: RFC 9113 5.4.2 leaves only a connection error.
        match self.streams.find(header.stream) {
            Some(_) => Err(FrameFault::Stream(header.stream, StreamError::of(why))),
            None => Err(why.into()),
        }
    }

    /// RFC 9218 7.1.
    pub(super) fn receive_priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        self.budget.charge(Cost::PriorityUpdate)?;
        check_connection(header)?;
        let (stream, value) = priority_update::parse(payload)?;
        if stream & 1 == 0 {
            return Err(Why::StreamIdentifier.into());
        }
        let priority = Priority::parse(value);
        if stream > self.last_stream {
            self.early_priorities.set(stream, priority);
        } else if let Some(slot) = self.streams.find(stream) {
            self.streams.prioritize(slot, priority);
        }
        Ok(Outcome::Nothing)
    }

    /// The peer opens no more streams; those already open are served to their end.
    pub(super) fn receive_goaway(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        check_connection(header)?;
        goaway::parse(payload)?;
        self.budget.charge(Cost::Ignored)?;
        self.has_peer_goaway = true;
        Ok(Outcome::Nothing)
    }
}

/// Frames that concern the connection must have stream identifier 0.
fn check_connection(header: FrameHeader) -> Result<(), Why> {
    if header.stream == 0 {
        Ok(())
    } else {
        Err(Why::StreamIdentifier)
    }
}
