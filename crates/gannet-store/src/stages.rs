//! Stages: which share of the nodes activates a release how long after the first.

use std::fmt;

use crate::limits::STAGES_MAX;
use crate::quantity::{duration_text, parse_duration};

/// One stage of an activation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stage {
    /// The share of the nodes that has activated when this stage begins, 1 to 100.
    pub percent: u8,
    /// When it begins, in seconds after the moment of activation.
    pub after_s: u64,
}

impl Stage {
    /// Reads a list: `5% +0s, 50% +10m, 100% +30m`. Both grow from stage to stage, and the last one
    /// is of all nodes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, &'static str> {
        let mut stages: Vec<Self> = Vec::new();
        for item in text.split(", ") {
            let stage = Self::parse(item).ok_or("not a list such as '5% +0s, 100% +30m'")?;
            let is_later = stages.last().is_none_or(|before: &Self| {
                before.percent < stage.percent && before.after_s < stage.after_s
            });
            if !is_later {
                return Err("percentages and times must grow from stage to stage");
            }
            stages.push(stage);
        }
        if stages.last().is_none_or(|last| last.percent != 100) {
            return Err("the last stage must be 100%");
        }
        if stages.len() > STAGES_MAX {
            return Err("more than 4 stages");
        }
        Ok(stages)
    }

    fn parse(text: &str) -> Option<Self> {
        let (percent, after) = text.split_once("% +")?;
        let percent = crate::quantity::parse_count(percent)?;
        Some(Self {
            percent: u8::try_from(percent)
                .ok()
                .filter(|it| (1..=100).contains(it))?,
            after_s: parse_duration(after)?,
        })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}% +{}", self.percent, duration_text(self.after_s))
    }
}

/// The list that [`Stage::parse_list`] reads.
pub(crate) fn list_text(stages: &[Stage]) -> String {
    let stages: Vec<_> = stages.iter().map(ToString::to_string).collect();
    stages.join(", ")
}

/// A number below 100 for a node and a serial: the first bytes of the BLAKE3 digest of the serial
/// (8 bytes, little-endian) and the name, as a little-endian number of 8 bytes, modulo 100. So
/// other nodes are the first ones with each serial.
pub(crate) fn share_of(node: &str, serial: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&serial.to_le_bytes());
    hasher.update(node.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first) % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_grow_up_to_all_nodes() {
        let text = "5% +0s, 50% +10m, 100% +30m";
        let stages = Stage::parse_list(text).unwrap();
        assert_eq!(stages.len(), 3);
        assert_eq!(list_text(&stages), text);
        for bad in [
            "",
            "5%",
            "5% +0s",
            "100% 0s",
            "100% +0s, 100% +1s",
            "50% +1s, 100% +1s",
            "0% +0s, 100% +1s",
            "101% +0s",
            "100% +0s,",
            "1% +1s, 2% +2s, 3% +3s, 4% +4s, 100% +5s",
        ] {
            assert!(Stage::parse_list(bad).is_err(), "{bad}");
        }
    }

    /// The share is part of the format: nodes of other versions must agree.
    #[test]
    fn shares_are_even_and_differ_by_serial() {
        let first = (0..1000).filter(|node| share_of(&format!("node-{node}"), 7) < 10);
        let first: Vec<_> = first.collect();
        assert!((70..=130).contains(&first.len()), "{}", first.len());
        let again = first
            .iter()
            .filter(|node| share_of(&format!("node-{node}"), 8) < 10);
        assert!(again.count() < 30);
    }
}
