//! `gannet follow`, as operators run it: from a web server to a server of the copy, and what it says.

#![cfg(feature = "fleet")]

#[path = "fleet/on_demand.rs"]
mod on_demand;
#[path = "fleet/receiving.rs"]
mod receiving;
#[path = "fleet/serving.rs"]
mod serving;
mod store;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use gannet_testkit::client::get;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};
use serving::origin;
use store::{current, file_of, line, publish, with_site};

/// A follower that runs until the end of the test, and its messages.
struct Follows {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Follows {
    fn start(folder: &Folder, url: &str) -> Self {
        let arguments = ["follow", url, "copy", "--interval", "1s"];
        Self::of(command().args(arguments), folder)
    }

    fn of(command: &mut Command, folder: &Folder) -> Self {
        let command = command.current_dir(folder.path()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        Self {
            child,
            lines: Box::new(errors.lines().map_while(Result::ok)),
        }
    }

    /// Its next message has these words.
    fn says(&mut self, expect: &str) {
        let line = self.lines.next().expect("it is running");
        assert!(line.contains(expect), "{line}");
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that runs while the program is replaced asks the next follower in another way: the log says so, and
/// releases come.
#[test]
fn a_follower_says_that_its_server_is_of_another_version() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    let mut follow = command();
    let arguments = "--interval 1s --on-demand 64M".split(' ');
    follow.args(["follow", &url, "copy"]).args(arguments);
    follow.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut follows = Follows::of(&mut follow, &folder);
    let mut questions = follows.child.stdin.take().expect("piped");
    follows.says("serial 1");
    questions.write_all(&[0; 2 * 44]).expect("it reads");
    follows.says("cannot fetch what the server asks for: it is of another version of gannet");
    follows.says("restart the server");
    folder.write("site/new.txt", "new");
    publish(&folder, &["-q"]).success();
    follows.says("serial 2");
}

/// An operator who names authorities means those alone.
#[test]
fn authorities_that_are_not_there_are_said() {
    let folder = Folder::new();
    let mut follow = command();
    follow.args(["follow", "https://localhost:1/store", "copy", "--once"]);
    follow.current_dir(folder.path()).env_remove("SSL_CERT_DIR");
    // What has the form of a certificate alone is none.
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    folder.write("broken.pem", no_certificate);
    for file in ["no-such.pem", "broken.pem"] {
        follow.env("SSL_CERT_FILE", file);
        run(&mut follow).failure(
            1,
            "gannet: cannot trust any store: no certificate of an authority is where SSL_CERT_FILE says\n\
             help: name a file of certificates in PEM form, or leave it out to trust the system's\n",
        );
    }
}

#[test]
fn a_store_in_a_folder_needs_no_authorities() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let url = format!("file://{}/store", folder.path().display());
    let mut follow = command();
    follow.args(["follow", &url, "copy", "--once"]);
    follow
        .current_dir(folder.path())
        .env("SSL_CERT_FILE", "no-such.pem");
    run(&mut follow).success();
}

#[test]
fn a_server_of_a_copy_serves_what_is_published_far_away() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let origin = Gannet::serve(folder.path(), &[]);
    let url = format!("http://{}/store", origin.address());
    let copied = gannet_in(&folder, ["follow", &url, "copy", "--once"]).success();
    let release = line(&current(&folder), "release").to_owned();
    let expect = format!(
        "'copy': serial 1, release {}, copied from {url}",
        &release[..16]
    );
    assert!(copied.text().starts_with(&expect), "{}", copied.text());
    let again = gannet_in(&folder, ["follow", &url, "copy", "-1"]).success();
    assert!(again.text().contains(", as at http://"), "{}", again.text());

    let server = Gannet::serve(folder.join("copy"), &[]);
    assert!(get(&server, "/").text().contains("One"));
    let mut follows = Follows::start(&folder, &url);
    follows.says("serial 1");
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    publish(&folder, &["-q"]).success();
    follows.says("serial 2");
    until("the server has the second release", || {
        get(&server, "/").text().contains("Two")
    });
    gannet_in(&folder, ["rollback", "store"]).success();
    follows.says("serial 3");
    until("the server has the first release again", || {
        get(&server, "/").text().contains("One")
    });

    // The origin goes, is missed once, and serving goes on.
    origin.stop();
    follows.says("cannot read");
    assert!(get(&server, "/").text().contains("One"));
    let busy = gannet_in(&folder, ["rollback", "copy"]);
    let expect = "cannot change store 'copy': another publisher is at work";
    assert!(busy.err.contains(expect), "{busy:?}");
}

/// For reading, S3 with a bucket in its paths is a web server that gets signed requests.
#[test]
fn a_bucket_is_followed_with_credentials_of_the_environment() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let origin = Gannet::serve(folder.path(), &[]);
    let mut follow = command();
    follow
        .args(["follow", "s3://store", "copy", "-1"])
        .current_dir(folder.path())
        .env("AWS_ENDPOINT_URL", format!("http://{}", origin.address()))
        .env("AWS_REGION", "eu-central-1")
        .env("AWS_ACCESS_KEY_ID", "ann")
        .env("AWS_SECRET_ACCESS_KEY", "a secret");
    let copied = run(&mut follow).success();
    assert!(copied.text().contains("serial 1"), "{}", copied.text());
    assert!(
        copied.text().contains("from s3://store ("),
        "{}",
        copied.text()
    );
}

#[test]
fn what_cannot_be_followed_is_said() {
    let folder = with_site();
    let check = |arguments: &[&str], status: i32, expect: &str| {
        let all = ["follow"].iter().chain(arguments);
        let ended = gannet_in(&folder, all);
        assert_eq!(ended.status, Some(status), "{ended:?}");
        assert!(ended.err.contains(expect), "{ended:?}");
    };
    check(&["./store", "copy", "-1"], 2, "relative URL");
    check(&["ftp://h/s", "copy", "-1"], 2, "not a URL of a store");
    let closed = "http://127.0.0.1:1/store";
    check(
        &[closed, "copy", "-1"],
        1,
        "connection refused (ECONNREFUSED)",
    );
    check(&[closed, "site", "-1"], 1, "it is not a store");
    check(&[closed, "copy", "-1", "-i", "10ms"], 2, "--interval 10ms");
    check(&[closed, "copy", "-1", "-l", "1K"], 2, "--limit-rate 1K");
    check(&[closed, "copy", "-1", "-d", "x"], 2, "--disk x");
    check(&[closed, "copy", "-1", "-p", "x"], 2, "--public-key x");
    publish(&folder, &["-q"]).success();
    let url = format!("file://{}", folder.join("store").display());
    check(
        &[&url, "copy", "-1", "-d", "1K"],
        1,
        "cannot copy to 'copy'",
    );
    gannet_in(&folder, ["keygen", "release"]).success();
    check(
        &[&url, "copy", "-1", "-p", "release.pub"],
        1,
        "it is not signed",
    );
    let signed = publish(&folder, &["-q", "--sign", "release.key"]);
    assert_eq!(signed.status, Some(0), "{signed:?}");
    gannet_in(&folder, ["follow", &url, "copy", "-1", "-p", "release.pub"]).success();
    let release = line(&current(&folder), "release").to_owned();
    let name = format!("copy/releases/{release}.gannet");
    for (copied, original) in [
        ("copy/current", folder.join("store/current")),
        (&name, file_of(&folder, &release)),
    ] {
        let copied = fs::read(folder.join(copied)).unwrap();
        assert!(copied == fs::read(original).unwrap());
    }
}
