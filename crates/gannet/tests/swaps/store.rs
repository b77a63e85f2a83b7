//! Releases of a store.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_store::{Next, Publisher, ReleaseId};
use gannet_testkit::client::{Client, get, metrics};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::{Gannet, Signal, gannet_in};

use super::{ASSETS, Site, assert_asset, asset, becomes};

/// A store of its own for each engine.
struct Store<'s> {
    site: &'s Site,
    name: String,
}

impl Store<'_> {
    fn of(engine: Engine, site: &Site) -> Store<'_> {
        let name = format!("store-{}", engine.name());
        Store { site, name }
    }

    fn id(&self, release: u32) -> ReleaseId {
        let path = self.site.folder.join(format!("{release}.gannet"));
        let bytes = fs::read(path).expect("packed");
        let superblock = gannet_archive::Superblock::parse(&bytes[..4096], bytes.len() as u64);
        ReleaseId::of_build_id(superblock.expect("an archive").build_id())
    }

    /// The file of a release.
    fn file(&self, release: u32) -> PathBuf {
        let name = format!("{}/releases/{}.gannet", self.name, self.id(release));
        self.site.folder.join(name)
    }

    /// Publishes a release; those in `void` answer nothing any more.
    fn publish(&self, release: u32, void: &[u32]) {
        self.publish_after(release, void, || ());
    }

    /// The same; `before` is done before the pointer is in force.
    fn publish_after(&self, release: u32, void: &[u32], before: impl FnOnce()) {
        let folder = self.site.folder.join(&self.name);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.expect("after 1970").as_secs();
        let publisher = Publisher::open(&folder, "test", now).expect("a store");
        let path = self.site.folder.join(format!("{release}.gannet"));
        publisher.copy(&path).expect("copied");
        let id = self.id(release);
        let placed = publisher.place(id, |_| true).expect("placed");
        let next = Next {
            void: void.iter().map(|it| self.id(*it)).collect(),
            ..Next::at_once(id, placed)
        };
        let pointer = publisher.next(next, now).expect("a pointer");
        before();
        let committed = publisher.commit(&pointer, &pointer.to_text());
        committed.expect("published");
    }

    fn serve(&self, engine: Engine, flags: &[&str]) -> Gannet {
        engine.serve(self.site.folder.join(&self.name), flags)
    }
}

#[test]
fn void_releases_answer_nothing_and_a_server_that_starts_knows_those_kept() {
    let site = Site::packed(&[1, 2, 3]);
    on_both_engines(|engine| {
        let store = Store::of(engine, &site);
        store.publish(1, &[]);
        let server = store.serve(engine, &["--workers", "2"]);
        store.publish(2, &[]);
        becomes(&server, 2);
        assert_asset(get(&server, &asset(1, "small")), 1, "small");
        assert_eq!(server.stop().status, Some(0));
        let server = store.serve(engine, &["--workers", "2"]);
        until("it has opened what is kept", || {
            get(&server, &asset(1, "small")).status == 200
        });
        store.publish(3, &[1]);
        becomes(&server, 3);
        for _ in 0..4 {
            get(&server, &asset(1, "small")).expect(404);
            assert_asset(get(&server, &asset(2, "small")), 2, "small");
        }
        // Its pages as well: it is the current one, and the one before comes back.
        store.publish(2, &[3, 1]);
        becomes(&server, 2);
        get(&server, &asset(3, "small")).expect(404);
    });
}

/// A server that lacks the release which should be current says that it is not ready, and looks at
/// once when asked.
#[test]
fn a_server_that_is_late_is_not_ready() {
    let site = Site::packed(&[1, 2]);
    on_both_engines(|engine| {
        let store = Store::of(engine, &site);
        store.publish(1, &[]);
        let flags = ["--health", "/-/ready", "--metrics", "127.0.0.1:0"];
        let server = store.serve(engine, &flags);
        let health = || {
            let metrics = server.metrics().expect("it has metrics");
            let inner = Client::connect(metrics).request("GET", "/health", &[]);
            [inner.status, get(&server, "/-/ready").status]
        };
        assert_eq!(health(), [200; 2]);
        // As where the files of a store are copied one after the other.
        let file = store.file(2);
        let away = file.with_extension("away");
        store.publish_after(2, &[], || fs::rename(&file, &away).expect("moved"));
        until("it is late", || health() == [503; 2]);
        let late = get(&server, "/-/ready").expect(503);
        assert_eq!(late.field("cache-control"), Some("no-store"), "{late:?}");
        assert_eq!(get(&server, "/").expect(200).text(), "page of release 1");
        fs::rename(&away, &file).expect("moved");
        server.signal(Signal::HUP);
        becomes(&server, 2);
        until("it is ready", || health() == [200; 2]);
    });
}

/// An older pointer is refused, each time that a signal asks for a look.
#[test]
fn a_signal_asks_for_a_look() {
    let site = Site::packed(&[1, 2]);
    on_both_engines(|engine| {
        let store = Store::of(engine, &site);
        store.publish(1, &[]);
        let pointer = site.folder.join(format!("{}/current", store.name));
        let first = fs::read(&pointer).expect("published");
        let server = store.serve(engine, &["--metrics", "127.0.0.1:0"]);
        store.publish(2, &[]);
        becomes(&server, 2);
        fs::write(&pointer, first).expect("written");
        let refused = || {
            let text = metrics(&server);
            let mut lines = text.text().lines();
            let is_older = |line: &&str| line.contains("reason=\"older\"");
            let value = lines
                .find(is_older)
                .and_then(|line| line.rsplit(' ').next());
            value.map_or(0, |value| value.parse().expect("a number"))
        };
        until("it is refused", || refused() == 1);
        server.signal(Signal::HUP);
        until("it is refused again", || refused() == 2);
        assert_eq!(get(&server, "/").expect(200).text(), "page of release 2");
    });
}

/// With a required signature a pointer counts only if it is signed, and kept releases are sent from
/// copies that nobody can change.
#[test]
fn a_signed_store_is_served() {
    let site = Site::new();
    gannet_in(&site.folder, ["keygen", "release"]).success();
    for release in [1, 2, 3] {
        site.write_site(release, "");
        site.pack(release, &[]);
    }
    let public = site.folder.join("release.pub");
    let public = public.to_str().expect("UTF-8");
    on_both_engines(|engine| {
        let store = Store::of(engine, &site);
        let publish = |release: u32| {
            let archive = format!("{release}.gannet");
            let arguments = ["publish", &archive, &store.name, "--sign", "release.key"];
            let ended = gannet_in(&site.folder, arguments);
            // It warns of the asset whose name stays.
            assert_eq!(ended.status, Some(0), "{ended:?}");
        };
        publish(1);
        let mut server = store.serve(engine, &["--require-signature", public]);
        publish(2);
        becomes(&server, 2);
        let line = server.next_error_line().expect("it says so");
        assert!(line.contains("serving release"), "{line}");
        let file = store.file(1);
        let len = fs::metadata(&file).expect("it is kept").len();
        fs::write(&file, vec![b'x'; len as usize]).expect("overwritten");
        for (name, _) in ASSETS {
            assert_asset(get(&server, &asset(1, name)), 1, name);
        }
        // Without a key anybody can write it.
        store.publish(3, &[]);
        let line = server.next_error_line().expect("it says so");
        let is_refused = line.contains("refused the new release") && line.contains("not signed");
        assert!(is_refused, "{line}");
        assert_eq!(get(&server, "/").expect(200).text(), "page of release 2");
        assert_asset(get(&server, &asset(1, "small")), 1, "small");
    });
}
