//! Stores that lie, stall or never end: each costs a bound, and nothing local is lost.

use std::fs;
use std::time::Duration;

use gannet_fleet::limits::{ATTEMPTS_MAX, BODY_LEAST, DAMAGED_S, TIDY_S};
use gannet_fleet::{Follower, Patience};
use gannet_store::Pointer;

use crate::stand_in::{Answer, Asked, StandIn};
use crate::stores::{Fleet, fails, now, release, sign, succeeds};

/// A copy of the store with its first release, to which a second one was published since.
struct Victim {
    fleet: Fleet,
    server: StandIn,
    follower: Follower,
    first: Pointer,
    second: Pointer,
}

impl Victim {
    fn of(fleet: Fleet) -> Self {
        let first = fleet.publish(1);
        let server = StandIn::new(fleet.store());
        let mut follower = fleet.follower(&server.url());
        succeeds(&fleet, &mut follower);
        let second = fleet.publish(2);
        Self {
            fleet,
            server,
            follower,
            first,
            second,
        }
    }

    fn new() -> Self {
        Self::of(Fleet::new())
    }

    /// Starts the follower again, with these limits.
    fn with(mut self, patience: Patience) -> Self {
        // The next one takes its lock.
        drop(self.follower);
        self.fleet.patience = patience;
        let follower = self.fleet.follower(&self.server.url());
        Self { follower, ..self }
    }

    /// The lie is refused, more than once, and the truth is then taken over.
    fn refuses(mut self, expect: &str) {
        for _ in 0..2 {
            fails(&self.fleet, &mut self.follower, expect);
        }
        self.server.be_honest();
        // One that is damaged is not fetched again before that.
        let round = self.follower.round(now() + DAMAGED_S).unwrap();
        assert_eq!((round.pointer, round.is_new), (self.second, true));
        self.fleet.is_copied();
    }

    /// The pointer is this.
    fn refuses_pointer(self, text: impl Into<Vec<u8>>, expect: &str) {
        let text = text.into();
        self.server.lie(move |asked| match asked.path.as_str() {
            "current" => Answer::Instead(text.clone()),
            _ => Answer::Truth,
        });
        self.refuses(expect);
    }

    /// The file of the second release is this.
    fn refuses_release(self, content: Vec<u8>, expect: &str) {
        self.server.lie(move |asked| match is_release(asked) {
            true => Answer::Instead(content.clone()),
            false => Answer::Truth,
        });
        self.refuses(expect);
    }
}

fn is_release(asked: &Asked) -> bool {
    asked.path.starts_with("releases/")
}

/// A release that comes into force does not wait for what a copy has of the past.
#[test]
fn an_entry_of_the_log_that_does_not_come_is_asked_for_once() {
    let mut victim = Victim::new();
    let third = victim.fleet.publish(3);
    victim.server.lie(|asked| match asked.path.as_str() {
        "log/2" => Answer::Raw(Vec::new()),
        _ => Answer::Truth,
    });
    victim.server.asked();
    assert!(victim.follower.round(now()).is_err());
    let is_entry = |it: &Asked| it.path == "log/2";
    assert_eq!(
        victim
            .server
            .asked()
            .iter()
            .filter(|it| is_entry(it))
            .count(),
        1
    );
    let copied = fs::read(victim.fleet.copy().join("current")).unwrap();
    assert_eq!(Pointer::parse(&copied).unwrap(), third);
    // Who does not come back asks again.
    assert!(victim.follower.only_round(now()).is_err());
    let asked = victim.server.asked();
    let count = asked.iter().filter(|it| is_entry(it)).count();
    assert_eq!(count, ATTEMPTS_MAX as usize);
    victim.server.be_honest();
    victim.follower.round(now()).unwrap();
    victim.fleet.is_copied();
}

#[test]
fn a_torn_pointer() {
    let victim = Victim::new();
    let text = victim.second.to_text();
    victim.refuses_pointer(&text[..text.len() / 2], "cannot read pointer");
    Victim::new().refuses_pointer("", "cannot read pointer");
    Victim::new().refuses_pointer("<html>\n", "not 'gannet pointer 1'");
}

#[test]
fn an_older_pointer() {
    let mut victim = Victim::new();
    succeeds(&victim.fleet, &mut victim.follower);
    let old = victim.first.to_text();
    victim
        .server
        .lie(move |_| Answer::Instead(old.clone().into_bytes()));
    let refused = "it has serial 1, and serial 2 was in force already";
    fails(&victim.fleet, &mut victim.follower, refused);
    // Neither does a follower take it up that begins now, even without its pointer.
    drop(victim.follower);
    let mut follower = victim.fleet.follower(&victim.server.url());
    fails(&victim.fleet, &mut follower, refused);
    fs::remove_file(victim.fleet.copy().join("current")).unwrap();
    fails(&victim.fleet, &mut follower, refused);
    victim.server.be_honest();
    succeeds(&victim.fleet, &mut follower);
}

#[test]
fn another_pointer_of_the_same_serial() {
    let mut victim = Victim::new();
    succeeds(&victim.fleet, &mut victim.follower);
    let mut other = victim.second.clone();
    other.note = "not what it was".into();
    let text = other.to_text();
    victim
        .server
        .lie(move |_| Answer::Instead(text.clone().into_bytes()));
    let refused = "it has serial 2, and serial 2 was in force already";
    fails(&victim.fleet, &mut victim.follower, refused);
}

#[test]
fn a_pointer_that_is_not_signed_by_the_key() {
    let victim = Victim::of(Fleet::signed());
    let text = victim.second.to_text();
    victim.refuses_pointer(text, "it is not signed");
    let victim = Victim::of(Fleet::signed());
    let other = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
    let text = sign(&victim.second.to_text(), &other);
    victim.refuses_pointer(text, "another key");
    let victim = Victim::of(Fleet::signed());
    let text = victim.fleet.text(&victim.second);
    let text = text.replace("serial 2\n", "serial 9\n");
    victim.refuses_pointer(text, "its signature is wrong");
}

/// Neither does it raise the serial that the next one has to exceed, whether it was copied before the
/// key was required, or is in the log.
#[test]
fn an_unsigned_pointer_with_a_high_serial_locks_nobody_out() {
    let victim = Victim::of(Fleet::signed());
    let high = victim
        .second
        .to_text()
        .replace("serial 2\n", "serial 999\n");
    victim.refuses_pointer(high.clone(), "it is not signed");
    let victim = Victim::of(Fleet::signed());
    fs::write(victim.fleet.copy().join("current"), &high).unwrap();
    fs::write(victim.fleet.copy().join("log/999"), &high).unwrap();
    let Victim {
        fleet,
        server,
        follower,
        ..
    } = victim;
    drop(follower);
    let round = fleet.follower(&server.url()).round(now()).unwrap();
    assert_eq!((round.pointer.serial, round.is_new), (2, true));
}

#[test]
fn an_expired_pointer() {
    let victim = Victim::new();
    let mut expired = victim.second.clone();
    expired.expires = Some(now() - 1);
    victim.refuses_pointer(expired.to_text(), "serial 2 has expired");
}

#[test]
fn a_pointer_to_more_than_there_may_be() {
    let victim = Victim::new();
    let mut endless = victim.second.clone();
    endless.size = u64::MAX;
    victim.refuses_pointer(endless.to_text(), "its releases would have");
    // Within the bound, nothing is written before the file's length is known.
    let victim = Victim::new();
    let mut large = victim.second.clone();
    large.size = 32 << 30;
    let expect = format!("it has {} bytes, and its pointer says", victim.second.size);
    victim.refuses_pointer(large.to_text(), &expect);
}

#[test]
fn a_release_with_a_changed_byte() {
    let second = release(2);
    for at in [5, 5000, 100_000, second.len() - 100] {
        let mut changed = second.clone();
        changed[at] ^= 1;
        Victim::new().refuses_release(changed, "releases/");
    }
}

#[test]
fn a_release_that_is_another_one() {
    Victim::new().refuses_release(release(3), "it is not the file that its pointer names");
    let len = release(2).len();
    Victim::new().refuses_release(vec![0; len], "magic");
}

#[test]
fn a_release_that_is_truncated_or_longer() {
    let second = release(2);
    let (half, len) = (second.len() / 2, second.len());
    let expect = format!("it has {half} bytes, and its pointer says {len}");
    Victim::new().refuses_release(second[..half].to_vec(), &expect);
    let expect = format!("it has {} bytes", len + 1);
    Victim::new().refuses_release([&second[..], b"x"].concat(), &expect);
}

#[test]
fn a_release_that_is_gone() {
    let victim = Victim::new();
    let gone = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    victim.server.lie(move |asked| match is_release(asked) {
        true => Answer::Raw(gone.to_vec()),
        false => Answer::Truth,
    });
    victim.refuses("there is none");
}

#[test]
fn bodies_that_always_break_off() {
    let mut victim = Victim::new();
    victim.server.lie(|asked| match is_release(asked) {
        true => Answer::Cut(1),
        false => Answer::Truth,
    });
    victim.server.asked();
    fails(&victim.fleet, &mut victim.follower, "releases/");
    let asked = victim.server.asked().into_iter().filter(is_release);
    assert_eq!(asked.count(), ATTEMPTS_MAX as usize);
    victim.server.be_honest();
    succeeds(&victim.fleet, &mut victim.follower);
}

/// A link on which no body lasts, but each brings something: the release arrives.
#[test]
fn bodies_that_break_off_after_a_while() {
    let mut victim = Victim::new();
    let len = usize::try_from(BODY_LEAST).unwrap() + 1000;
    victim.server.lie(move |asked| match is_release(asked) {
        true => Answer::Cut(len),
        false => Answer::Truth,
    });
    victim.server.asked();
    succeeds(&victim.fleet, &mut victim.follower);
    let asked = victim.server.asked().into_iter().filter(is_release);
    let count = asked.count();
    assert!(count > ATTEMPTS_MAX as usize, "{count}");
}

/// What costs a whole download is not tried again at every look.
#[test]
fn a_damaged_release_is_fetched_once_an_hour() {
    let mut victim = Victim::new();
    let mut changed = release(2);
    changed[100_000] ^= 1;
    victim.server.lie(move |asked| match is_release(asked) {
        true => Answer::Instead(changed.clone()),
        false => Answer::Truth,
    });
    let first = fails(&victim.fleet, &mut victim.follower, "not the file");
    let fetches = |follower: &mut Follower, now| {
        victim.server.asked();
        let error = follower.round(now).unwrap_err();
        assert_eq!(error.to_string(), first.to_string());
        victim.server.asked().iter().any(is_release)
    };
    let begun = now();
    assert!(!fetches(&mut victim.follower, begun));
    assert!(!fetches(&mut victim.follower, begun + DAMAGED_S - 60));
    assert!(fetches(&mut victim.follower, begun + DAMAGED_S + 60));
    // Another pointer may have been made to mend it.
    victim.server.be_honest();
    victim.fleet.publish(3);
    succeeds(&victim.fleet, &mut victim.follower);
}

/// A kept release that cannot be had takes nothing from the others.
#[test]
fn a_kept_release_that_is_damaged_or_forbidden_is_left_out() {
    let forbidden = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for is_forbidden in [true, false] {
        let fleet = Fleet::new();
        let kept = fleet.publish(1);
        let in_force = fleet.publish(2);
        let server = StandIn::new(fleet.store());
        let name = format!("releases/{}.gannet", kept.release);
        let mut changed = release(1);
        changed[100_000] ^= 1;
        server.lie(move |asked| match (asked.path == name, is_forbidden) {
            (true, true) => Answer::Raw(forbidden.to_vec()),
            (true, false) => Answer::Instead(changed.clone()),
            _ => Answer::Truth,
        });
        let mut follower = fleet.follower(&server.url());
        let round = follower.round(now()).unwrap();
        assert_eq!((round.pointer, round.is_new), (in_force, true));
        assert_eq!(
            round.left_out.len(),
            usize::from(!is_forbidden),
            "{:?}",
            round.left_out
        );
        server.asked();
        let round = follower.round(now()).unwrap();
        assert!(round.left_out.is_empty() && !round.is_new);
        assert!(!server.asked().iter().any(is_release));
        // Later it is looked for again, which is not said again.
        let later = now() + TIDY_S;
        assert!(follower.round(later).unwrap().left_out.is_empty());
        assert!(server.asked().iter().any(is_release));
        server.be_honest();
        follower.round(later + TIDY_S).unwrap();
        fleet.is_copied();
    }
}

/// A head that promises so many bytes.
fn head(asked: &Asked, len: usize) -> String {
    let head = format!("content-length: {len}\r\nconnection: close\r\n");
    match &asked.range {
        None => format!("HTTP/1.1 200 OK\r\netag: \"x\"\r\n{head}\r\n"),
        Some(range) => {
            let (start, last) = (range.start, range.end - 1);
            let all = release(2).len();
            format!(
                "HTTP/1.1 206 Partial Content\r\n{head}content-range: bytes {start}-{last}/{all}\r\n\r\n"
            )
        }
    }
}

#[test]
fn a_pointer_without_an_end() {
    let mut victim = Victim::new();
    let endless = |asked: &Asked| Answer::Endless(head(asked, usize::MAX >> 1));
    victim.server.lie(endless);
    let refused = "it is longer than it should be";
    fails(&victim.fleet, &mut victim.follower, refused);
    victim.server.until_left(1, &victim.follower);
}

#[test]
fn a_release_without_an_end() {
    let mut victim = Victim::new();
    victim.server.lie(|asked| match is_release(asked) {
        true => Answer::Endless(head(asked, usize::MAX >> 1)),
        false => Answer::Truth,
    });
    fails(&victim.fleet, &mut victim.follower, "releases/");
    victim.server.until_left(1, &victim.follower);
    victim.server.be_honest();
    succeeds(&victim.fleet, &mut victim.follower);
}

#[test]
fn an_error_without_an_end() {
    let mut victim = Victim::new();
    victim.server.lie(|_| {
        let head = "HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n";
        Answer::Endless(head.to_owned())
    });
    let error = fails(&victim.fleet, &mut victim.follower, "status 500");
    assert!(error.to_string().len() < 400, "{error}");
    victim.server.until_left(1, &victim.follower);
}

#[test]
fn a_head_without_an_end() {
    let mut victim = Victim::new();
    victim
        .server
        .lie(|_| Answer::Endless("HTTP/1.1 200 OK\r\nx: ".to_owned()));
    fails(&victim.fleet, &mut victim.follower, "/current'");
    victim.server.until_left(1, &victim.follower);
}

#[test]
fn a_pointer_and_a_release_that_drip() {
    let victim = Victim::new();
    let patient = victim.fleet.patience;
    // A limit is short only while everything exceeds it.
    let mut victim = victim.with(Patience {
        window: Duration::from_millis(100),
        ..patient
    });
    victim.server.lie(|asked| match is_release(asked) {
        true => Answer::Drip(head(asked, asked.range.as_ref().unwrap().len())),
        false => Answer::Truth,
    });
    fails(&victim.fleet, &mut victim.follower, "it comes too slowly");
    victim.server.until_left(5, &victim.follower);
    let mut victim = victim.with(Patience {
        answer: Duration::from_millis(300),
        ..patient
    });
    victim.server.lie(|asked| Answer::Drip(head(asked, 1000)));
    fails(&victim.fleet, &mut victim.follower, "no answer in time");
    victim.server.until_left(6, &victim.follower);
    victim.server.be_honest();
    let mut victim = victim.with(patient);
    succeeds(&victim.fleet, &mut victim.follower);
}

#[test]
fn a_log_that_lies() {
    let fleet = Fleet::signed();
    fleet.publish(1);
    fleet.publish(2);
    let third = fleet.publish(3);
    let server = StandIn::new(fleet.store());
    let unsigned = third.to_text().replace("serial 3", "serial 2");
    server.lie(move |asked| match asked.path.as_str() {
        "log/2" => Answer::Instead(unsigned.clone().into_bytes()),
        _ => Answer::Truth,
    });
    let mut follower = fleet.follower(&server.url());
    let round = follower.round(now()).unwrap();
    assert_eq!((round.pointer, round.is_new), (third, true));
    let logged = fs::read_dir(fleet.copy().join("log")).unwrap();
    assert_eq!(logged.count(), 1, "what cannot be used is not copied");
}

#[test]
fn a_redirect_that_goes_round() {
    let mut victim = Victim::new();
    let url = victim.server.url();
    victim.server.lie(move |_| {
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {url}/current\r\n");
        Answer::Raw(format!("{head}content-length: 0\r\nconnection: close\r\n\r\n").into_bytes())
    });
    victim.server.asked();
    fails(&victim.fleet, &mut victim.follower, "/current'");
    assert!(victim.server.asked().len() < 20);
}
