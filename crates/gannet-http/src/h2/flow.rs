//! Flow-control windows (RFC 9113 section 5.2 and 6.9).

use super::error::Why;
use super::frame::STREAM_MASK;

/// The largest window.
pub(crate) const WINDOW_MAX: i32 = STREAM_MASK as i32;

/// The number of bytes that may be sent. A change of settings can make it negative (RFC 9113
/// section 6.9.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    /// A window of the initial size, at most 2^31 - 1.
    pub(crate) fn new(size: u32) -> Self {
        debug_assert!(size <= STREAM_MASK, "settings are checked");
        Self(size as i32)
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(crate) fn available(self) -> u32 {
        self.0.max(0) as u32
    }

    /// Subtracts sent bytes, at most those available.
    #[inline]
    pub(crate) fn consume(&mut self, len: u32) {
        debug_assert!(len <= self.available(), "sent within the window");
        self.0 -= len as i32;
    }

    /// Grows by a WINDOW_UPDATE's increment.
    ///
    /// # Errors
    /// [`Why::WindowOverflow`] above [`WINDOW_MAX`]; the window then stays as it is.
    #[inline]
    pub(crate) fn grow(&mut self, increment: u32) -> Result<(), Why> {
        self.shift(i64::from(increment))
    }

    /// Grows or shrinks as SETTINGS_INITIAL_WINDOW_SIZE changes.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub(crate) fn shift(&mut self, by: i64) -> Result<(), Why> {
        let size = i64::from(self.0) + by;
        if size > i64::from(WINDOW_MAX) {
            return Err(Why::WindowOverflow);
        }
        // There is no lower limit to check: a window shrinks only from sizes that it was given, so
        // it cannot pass -(2^31 - 1).
        self.0 = size.max(i64::from(i32::MIN)) as i32;
        Ok(())
    }
}

/// How much the peer may send on the connection. Received content is discarded at once, and the
/// window replenished in large steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    left: u32,
}

impl ReceiveWindow {
    /// A window of this size.
    pub(crate) fn new(size: u32) -> Self {
        Self { size, left: size }
    }

    /// Subtracts received bytes. Returns by how much to replenish the window now: not at all, or by
    /// everything received, once it is half of the window.
    ///
    /// # Errors
    /// [`Why::WindowExceeded`] if more was sent than allowed.
    pub(crate) fn receive(&mut self, len: u32) -> Result<Option<u32>, Why> {
        self.left = self.left.checked_sub(len).ok_or(Why::WindowExceeded)?;
        let received = self.size - self.left;
        if received < self.size / 2 {
            return Ok(None);
        }
        self.left = self.size;
        Ok(Some(received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_windows_shrink_below_zero_and_never_grow_beyond_the_largest() {
        let mut window = SendWindow::new(100);
        window.consume(60);
        assert_eq!(window.shift(-100), Ok(()));
        assert_eq!((window, window.available()), (SendWindow(-60), 0));
        assert_eq!(window.grow(61), Ok(()));
        assert_eq!(window.available(), 1);
        assert_eq!(window.grow(STREAM_MASK), Err(Why::WindowOverflow));
        assert_eq!(window.grow(STREAM_MASK - 1), Ok(()));
        assert_eq!(window.available(), STREAM_MASK);
    }

    #[test]
    fn receive_windows_are_given_back_by_halves() {
        let mut window = ReceiveWindow::new(100);
        assert_eq!(window.receive(49), Ok(None));
        assert_eq!(window.receive(52), Err(Why::WindowExceeded));
        assert_eq!(window.receive(51), Ok(Some(100)));
        assert_eq!(window.receive(50), Ok(Some(50)));
        assert_eq!(window.receive(100), Ok(Some(100)));
    }
}
