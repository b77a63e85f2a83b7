//! Settings of both ends (RFC 9113 section 6.5.2).

use super::error::Why;
use super::frame::STREAM_MASK;
use super::frame::settings::SettingId;
use super::limits::{DYNAMIC_TABLE_MAX, STREAMS_MAX};
use crate::binary::limits::FIELD_SECTION_MAX;

/// What we announce. All others keep their initial values: table of 4096 bytes, windows of 65,535
/// bytes, frames of 16,384.
pub(crate) const OURS: [(SettingId, u32); 3] = [
    (SettingId::MAX_CONCURRENT_STREAMS, STREAMS_MAX),
    (SettingId::MAX_HEADER_LIST_SIZE, FIELD_SECTION_MAX),
    (SettingId::NO_RFC7540_PRIORITIES, 1),
];

/// The peer's settings, as far as they matter to a server that does not push.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    /// The initial window of each stream.
    pub(crate) initial_window: u32,
    /// The longest frame payload that the peer accepts.
    pub(crate) frame_payload_max: u32,
    /// A table size update is owed at the beginning of the next field block: the peer has lowered
    /// its table limit below the size last agreed on.
    pub(crate) owes_size_update: bool,
    /// The update to 0 was sent, so no later limit is below it.
    is_table_zero: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            initial_window: 65_535,
            frame_payload_max: 16_384,
            owes_size_update: false,
            is_table_zero: false,
        }
    }
}

impl PeerSettings {
    /// Applies a setting. Returns by how much all streams' windows change.
    ///
    /// # Errors
    /// For a value out of range; a window that is too large is a flow-control error.
    pub(crate) fn apply(&mut self, id: SettingId, value: u32) -> Result<i64, Why> {
        match id {
            SettingId::HEADER_TABLE_SIZE => {
                self.owes_size_update |= value < DYNAMIC_TABLE_MAX && !self.is_table_zero;
            }
            SettingId::ENABLE_PUSH | SettingId::NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(Why::SettingValue);
            }
            SettingId::INITIAL_WINDOW_SIZE => {
                if value > STREAM_MASK {
                    return Err(Why::WindowOverflow);
                }
                let change = i64::from(value) - i64::from(self.initial_window);
                self.initial_window = value;
                return Ok(change);
            }
            SettingId::MAX_FRAME_SIZE => {
                if !(16_384..1 << 24).contains(&value) {
                    return Err(Why::SettingValue);
                }
                self.frame_payload_max = value;
            }
            _ => {}
        }
        Ok(0)
    }

    /// The update was written.
    pub(crate) fn note_size_update(&mut self) {
        self.owes_size_update = false;
        self.is_table_zero = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let check = |id, value, expect| {
            let mut settings = PeerSettings::default();
            assert_eq!(settings.apply(id, value), expect, "{id:?} {value}");
        };
        check(SettingId::ENABLE_PUSH, 1, Ok(0));
        check(SettingId::ENABLE_PUSH, 2, Err(Why::SettingValue));
        check(SettingId::NO_RFC7540_PRIORITIES, 2, Err(Why::SettingValue));
        check(SettingId::INITIAL_WINDOW_SIZE, 0, Ok(-65_535));
        check(SettingId::INITIAL_WINDOW_SIZE, 65_536, Ok(1));
        check(
            SettingId::INITIAL_WINDOW_SIZE,
            1 << 31,
            Err(Why::WindowOverflow),
        );
        check(SettingId::MAX_FRAME_SIZE, 16_383, Err(Why::SettingValue));
        check(SettingId::MAX_FRAME_SIZE, 1 << 24, Err(Why::SettingValue));
        check(SettingId::MAX_FRAME_SIZE, (1 << 24) - 1, Ok(0));
        check(SettingId(0xabcd), u32::MAX, Ok(0));
    }

    #[test]
    fn a_size_update_is_owed_once() {
        let mut settings = PeerSettings::default();
        settings
            .apply(SettingId::HEADER_TABLE_SIZE, 65_536)
            .expect("in range");
        assert!(!settings.owes_size_update);
        settings
            .apply(SettingId::HEADER_TABLE_SIZE, 0)
            .expect("in range");
        settings
            .apply(SettingId::HEADER_TABLE_SIZE, 4096)
            .expect("in range");
        assert!(settings.owes_size_update);
        settings.note_size_update();
        settings
            .apply(SettingId::HEADER_TABLE_SIZE, 0)
            .expect("in range");
        assert!(!settings.owes_size_update);
    }
}
