//! The answer of the health check at the metrics address.
//!
//! Its status says whether to send clients here: nothing of a single host changes that. What an operator
//! should look at follows in the text.

use gannet_http::semantics::response::Status;
use gannet_io::quantities::{counted, lasting};

use crate::bounds::limits::HEALTH_LINES_MAX;
use crate::observe::board::Board;
use crate::observe::board::unix_now;
use crate::observe::metrics::WorkerCounts;
use crate::report::exposition::About;
use crate::tls::certificates::{CertificateSet, Facts, now_unix};

/// Healthy if every worker has just answered, and no release is late.
pub(super) fn health(workers: &[WorkerCounts], about: &About) -> (Status, String) {
    let answering = workers.iter().filter(|worker| worker.is_up).count();
    if answering < workers.len() {
        let text = format!("{answering} of {} workers answer\n", workers.len());
        return (Status::SERVICE_UNAVAILABLE, text);
    }
    let now = unix_now();
    if about.board.late().is_at(now) {
        return (Status::SERVICE_UNAVAILABLE, of_late(&about.board, now));
    }
    let mut text = String::from("ok\n");
    text.push_str(&of_parts(&about.board));
    if let Some(store) = &about.certificates {
        text.push_str(&of_certificates(&store.current(), now_unix()));
    }
    (Status::OK, text)
}

/// That releases are late, and why, as far as it is known.
fn of_late(board: &Board, now: u64) -> String {
    let mut text = String::from("a release is late\n");
    let all = board.all();
    let late = all
        .iter()
        .filter(|it| it.late_from.is_some_and(|from| from <= now));
    for facts in late.take(HEALTH_LINES_MAX) {
        if let Some(why) = &facts.refusal {
            text.push_str(&format!("'{}': refused: {why}\n", facts.name));
        }
    }
    text
}

/// A line for each release of which only a part is here.
fn of_parts(board: &Board) -> String {
    let all = board.all();
    let releases = all.iter().flat_map(|it| &it.releases);
    let parts = releases.filter_map(|it| {
        let ([here, all], state) = (it.here()?, it.state.name());
        Some(format!(
            "release {}, {state}: {here} of {all} bytes are here\n",
            it.id
        ))
    });
    parts.take(HEALTH_LINES_MAX).collect()
}

/// A line for each certificate that has expired, will within days, or is not there.
fn of_certificates(set: &CertificateSet, now: i64) -> String {
    let expiring = set.facts().filter_map(|facts| expiry(facts, now));
    let awaited = set.awaited().map(|name| (name, "awaited".to_owned()));
    let mut lines: Vec<_> = expiring.chain(awaited).collect();
    lines.sort_unstable();
    let more = lines.len().saturating_sub(HEALTH_LINES_MAX);
    lines.truncate(HEALTH_LINES_MAX);
    let lines = lines.iter();
    let mut text: String = lines
        .map(|(name, what)| format!("certificate of '{name}': {what}\n"))
        .collect();
    if more > 0 {
        text.push_str(&format!(
            "and {}\n",
            counted(more as u64, "more certificate")
        ));
    }
    text
}

/// Renewal is due when a third of the lifetime is left: with half of that, it has failed for some time.
fn expiry(facts: &Facts, now: i64) -> Option<(&str, String)> {
    let (left, lifetime) = (facts.not_after - now, facts.not_after - facts.not_before);
    if left >= EXPIRY_SECONDS.min(lifetime / 6) {
        return None;
    }
    let name = facts.names.first().map_or(&*facts.subject, |name| &**name);
    let on = &facts.validity.1;
    let what = match left < 0 {
        true => format!("expired on {on}"),
        false => format!("expires in {}, on {on}", lasting(left.unsigned_abs())),
    };
    Some((name, what))
}

/// Seconds.
const DAY: i64 = 86_400;

/// Of a certificate with a long lifetime.
const EXPIRY_SECONDS: i64 = 7 * DAY;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, days: i64) -> Facts {
        Facts {
            names: vec![name.into()],
            has_addresses: false,
            subject: format!("CN={name}"),
            issuer: String::new(),
            not_before: 0,
            not_after: days * DAY,
            validity: (String::new(), "a day".into()),
            fingerprint: [0; 32],
        }
    }

    /// What is damaged is named, and nothing that is not late.
    #[test]
    fn why_a_release_is_late_is_said() {
        let board = Board::default();
        for (name, late_from, refusal) in [
            ("a", Some(5), Some("archive 'a' is damaged")),
            ("b", Some(7), Some("not yet late")),
            ("c", None, Some("refused, and not due")),
            ("d", Some(6), None),
        ] {
            board.add(crate::observe::board::ContentFacts {
                name: name.into(),
                late_from,
                refusal: refusal.map(str::to_owned),
                ..Default::default()
            });
        }
        let expect = "a release is late\n'a': refused: archive 'a' is damaged\n";
        assert_eq!(of_late(&board, 6), expect);
    }

    #[test]
    fn what_ends_within_days_is_said() {
        let said = |days, at| expiry(&facts("a.test", days), at).map(|(_, what)| what);
        assert_eq!(said(90, 82 * DAY), None);
        assert_eq!(
            said(90, 84 * DAY).as_deref(),
            Some("expires in 6 days, on a day")
        );
        assert_eq!(said(90, 91 * DAY).as_deref(), Some("expired on a day"));
        // Of six days, the last one.
        assert_eq!(said(6, 4 * DAY), None);
        assert_eq!(
            said(6, 5 * DAY + 1).as_deref(),
            Some("expires in 23 hours, on a day")
        );
    }
}
