//! What connections speak: how many now, altogether, and at most at once.

use std::ops::{AddAssign, Index};

/// What a connection speaks, once that is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// HTTP/1 in clear text.
    Http1,
    /// HTTP/1 over TLS.
    Http1Tls,
    /// HTTP/2 in clear text.
    Http2,
    /// HTTP/2 over TLS.
    Http2Tls,
    /// HTTP/3.
    Http3,
    /// A TLS handshake, as long as it has not succeeded.
    TlsHandshake,
    /// The same of QUIC.
    QuicHandshake,
}

impl Stage {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Http1,
        Self::Http1Tls,
        Self::Http2,
        Self::Http2Tls,
        Self::Http3,
        Self::TlsHandshake,
        Self::QuicHandshake,
    ];

    /// Its name in metrics and summaries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http1Tls => "http1-tls",
            Self::Http2 => "http2",
            Self::Http2Tls => "http2-tls",
            Self::Http3 => "http3",
            Self::TlsHandshake => "tls-handshake",
            Self::QuicHandshake => "quic-handshake",
        }
    }
}

/// The connections that are or were in one stage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InStage {
    /// Now.
    pub now: u64,
    /// Ever.
    pub total: u64,
    /// The most at once; over several workers, the sum of their separate maxima.
    pub peak: u64,
}

/// The connections in each stage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages([InStage; Stage::ALL.len()]);

impl Stages {
    /// A connection moves from one stage, which it keeps at `stage`, to another one or to its end.
    pub(crate) fn move_on(&mut self, stage: &mut Option<Stage>, to: Option<Stage>) {
        if let Some(left) = std::mem::replace(stage, to) {
            self.0[left as usize].now -= 1;
        }
        if let Some(to) = to {
            let entered = &mut self.0[to as usize];
            entered.now += 1;
            entered.total += 1;
            entered.peak = entered.peak.max(entered.now);
        }
    }
}

impl Index<Stage> for Stages {
    type Output = InStage;

    fn index(&self, stage: Stage) -> &InStage {
        &self.0[stage as usize]
    }
}

impl AddAssign<&Self> for Stages {
    fn add_assign(&mut self, other: &Self) {
        for (sum, one) in self.0.iter_mut().zip(other.0) {
            sum.now += one.now;
            sum.total += one.total;
            sum.peak += one.peak;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_in_one_stage_at_a_time() {
        let mut stages = Stages::default();
        let (mut one, mut other) = (None, None);
        stages.move_on(&mut one, Some(Stage::TlsHandshake));
        stages.move_on(&mut other, Some(Stage::TlsHandshake));
        stages.move_on(&mut one, Some(Stage::Http2Tls));
        stages.move_on(&mut other, None);
        stages.move_on(&mut other, Some(Stage::TlsHandshake));
        let of = |now, total, peak| InStage { now, total, peak };
        assert_eq!(stages[Stage::TlsHandshake], of(1, 3, 2));
        assert_eq!(stages[Stage::Http2Tls], of(1, 1, 1));
        assert_eq!(stages[Stage::Http1Tls], of(0, 0, 0));
        let mut sum = stages;
        sum += &stages;
        assert_eq!(sum[Stage::TlsHandshake], of(2, 6, 4));
    }

    #[test]
    fn stages_have_numbers_in_order() {
        assert!(
            Stage::ALL
                .iter()
                .enumerate()
                .all(|(number, it)| number == *it as usize)
        );
    }
}
