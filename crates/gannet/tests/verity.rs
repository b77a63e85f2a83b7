//! Releases get fs-verity where the file system has it: from then on nobody can change them, so that their pages
//! go to every peer, and a required signature takes no copy.

#![cfg(feature = "fleet")]

use std::cell::Cell;
use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gannet_io::fixed::fix;
use gannet_store::files::{Files, SystemFiles};
use gannet_store::{Next, Publisher, ReleaseId, StoreError};
use gannet_testkit::client::get;
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::mount::Mount;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, FreePort, Gannet, command, gannet, gannet_in, left_out};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

/// Of a shorter body no pages would be sent, were it not fixed.
const LEN: usize = 2 << 20;
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LEN, 5));

/// A file system that has it, `None` if the kernel has none.
fn mounted() -> Option<Mount> {
    let mount = Mount::ext4(",verity")?;
    let probe = mount.join("probe");
    fs::write(&probe, "x").expect("written");
    match fix(&probe) {
        Ok(()) => Some(mount),
        Err(why) => {
            left_out("fs-verity", why);
            None
        }
    }
}

/// A folder with a long file in `site`, and keys.
fn with_site() -> Folder {
    let folder = Folder::new();
    folder.write("site/large.bin", &*BODY);
    gannet_in(&folder, ["keygen", "release"]).success();
    folder
}

/// Publishes the site.
fn publish(folder: &Folder, targets: &[&str]) {
    let flags = "publish site --quiet --fast --compress none --sign release.key";
    gannet_in(folder, flags.split(' ').chain(targets.iter().copied())).success();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The one release of a store.
fn release_of(store: &Path) -> PathBuf {
    let entries = fs::read_dir(store.join("releases")).expect("a store");
    let found: Vec<_> = entries.map(|it| it.expect("listed").path()).collect();
    let [release] = &found[..] else {
        panic!("one release: {found:?}");
    };
    release.clone()
}

fn has_verity(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).expect("it is there");
    found.stx_attributes.contains(StatxAttributes::VERITY)
}

fn is_refused(path: &Path) -> bool {
    let opened = fs::File::options().write(true).open(path);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A peer of which nobody knows what it has read: it may be a proxy, which passes pages on.
const UNKNOWN: [&str; 4] = ["--cache-memory", "0", "--trust", "127.0.0.1"];

/// Whether the start says so of what is served.
fn says(server: &Gannet, part: &str) {
    let lines = server.start_lines();
    assert!(lines.iter().any(|it| it.contains(part)), "{lines:?}");
}

/// The server sends the file's own pages to such a peer.
fn sends_pages(server: &Gannet) {
    says(server, "fixed by fs-verity)");
    let before = server.lent();
    assert!(get(server, "/large.bin").expect(200).body == *BODY);
    let pages = server.lent() - before;
    assert!(pages >= LEN as u64, "{pages} bytes as pages");
}

/// By the commands, the second over HTTP. Where a file system alone lacks it, `doctor` says what gives it that, once it
/// has a store.
#[test]
fn published_and_followed_releases_have_verity() {
    let (Some(with), Some(without)) = (mounted(), Mount::ext4("")) else {
        return;
    };
    let folder = with_site();
    let (store, copy) = (with.join("store"), with.join("copy"));
    publish(&folder, &[text(&store)]);
    let origin = Gannet::serve(with.path(), &[]);
    let url = format!("http://{}/store", origin.address());
    gannet(["follow", &url, text(&copy), "--once"]).success();
    for release in [&store, &copy].map(|it| release_of(it)) {
        assert!(has_verity(&release), "{}", release.display());
        assert!(is_refused(&release), "{}", release.display());
    }
    on_both_engines(|engine| sends_pages(&engine.serve(&copy, &UNKNOWN)));

    let other = without.join("other");
    publish(&folder, &[text(&other)]);
    assert!(!has_verity(&release_of(&other)));
    fs::copy(release_of(&other), without.join("c.gannet")).expect("copied");
    fs::create_dir(without.join("d")).expect("made");
    let (archive, directory) = (without.join("c.gannet"), without.join("d"));
    let sites = ["a", "b", "c", "d"]
        .iter()
        .zip([copy, other, archive, directory]);
    let sites = sites.map(|(host, place)| format!("--site={host}={}", place.display()));
    let doctor = ["doctor", "--port=0"].map(str::to_owned).into_iter();
    let found = gannet(doctor.chain(sites));
    let helps = found.text().matches("'tune2fs -O verity DEVICE'").count();
    let is_fixed = found.text().contains("on ext4, fixed by fs-verity");
    assert!(is_fixed && helps == 1, "{}", found.text());
}

/// In its sandbox. The required signature takes no copy of it; of a file that may change once it is verified it does.
#[test]
fn a_received_release_has_verity() {
    let Some(mount) = mounted() else {
        return;
    };
    let folder = with_site();
    let (copy, port) = (mount.join("copy"), FreePort::new());
    let address = port.address().to_string();
    let signed = ["--require-signature", "release.pub"];
    let mut serve = command();
    serve.args(["serve", text(&copy), "--receive", &address, "--port", "0"]);
    serve.args(["--sandbox", "require"]).args(signed);
    serve.args(UNKNOWN).current_dir(folder.path());
    let server = std::thread::scope(|scope| {
        let server = scope.spawn(|| Gannet::start(&mut serve));
        until("it receives", || TcpStream::connect(&address).is_ok());
        publish(&folder, &["store", &format!("http://{address}")]);
        server.join().expect("it serves")
    });
    let release = release_of(&copy);
    assert!(has_verity(&release) && is_refused(&release));
    sends_pages(&server);
    drop(server);

    let archive = mount.join("site.gannet");
    fs::copy(&release, &archive).expect("copied");
    let serve = || {
        let mut serve = command();
        serve.arg(&archive).args(["--port", "0"]).args(signed);
        Gannet::start(serve.args(UNKNOWN).current_dir(folder.path()))
    };
    says(&serve(), "in memory)");
    fix(&archive).expect("it has verity");
    sends_pages(&serve());
}

/// The system's files, and another program that overwrites a release once it has its name.
#[derive(Default)]
struct Meddled {
    is_refused: Cell<bool>,
}

impl Files for &Meddled {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        SystemFiles.make_folder(path)
    }

    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        SystemFiles.create(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)?;
        let opened = fs::File::options().write(true).open(to);
        let changed = opened.and_then(|file| file.write_all_at(b"X", 0));
        self.is_refused.set(changed.is_err());
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }

    fn flush_folder(&self, path: &Path) -> io::Result<()> {
        SystemFiles.flush_folder(path)
    }
}

/// What a publisher places cannot be changed once it is read for the pointer. A follower's file is read before it gets
/// its name, and fixed afterwards: it is removed if it is not what the pointer names then.
#[test]
fn a_release_that_is_changed_before_it_is_fixed_is_not_taken() {
    let Some(mount) = mounted() else {
        return;
    };
    let archive = mount.join("archive");
    fs::write(&archive, "archive\n".repeat(99)).expect("written");
    let meddled = Meddled::default();
    let open = |store| Publisher::open_with(&mount.join(store), "test", 1, &meddled);

    let publisher = open("store").expect("a store");
    publisher.copy(&archive).expect("copied");
    let id = ReleaseId::of_build_id(&[7; 32]);
    let placed = publisher.place(id, |_| false).expect("placed");
    assert!(meddled.is_refused.get());
    let pointer = publisher.next(Next::at_once(id, placed), 1);
    let pointer = pointer.expect("a pointer");
    let is_named = publisher.store().intact_file(&pointer);
    is_named.expect("the file is what its pointer names");
    // One that is there already stays, and the new draft goes, which cannot be changed either.
    publisher.copy(&archive).expect("copied");
    let again = publisher.place(id, |_| false).expect("placed");
    assert!(again.was_there);
    release_of(&mount.join("store"));

    let follower = open("copy").expect("a store");
    let part = follower.part_path(id);
    fs::copy(&archive, part).expect("copied");
    let target = follower.store().release_path(id);
    let refused = follower.adopt_release(&pointer);
    assert!(!meddled.is_refused.get(), "it is fixed under its name");
    assert!(matches!(refused, Err(StoreError::OtherFile(path)) if path == target));
    assert!(!target.exists());
}
