//! Signed releases, from the keys to the server, as operators use them.

use std::fs;

use gannet_testkit::client::get;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{Folder, gannet_in};

#[test]
fn a_server_serves_what_was_signed_and_nothing_else() {
    let folder = Folder::new();
    folder.write("site/index.html", "front page ".repeat(3000));
    for name in ["release", "other"] {
        let ended = gannet_in(&folder, ["keygen", name]);
        assert_eq!(ended.status, Some(0), "{}", ended.err);
    }
    gannet_in(&folder, ["keygen", "other"]).failure(
        1,
        "gannet: cannot write 'other.key': file exists (EEXIST)\n\
         help: keys are not overwritten: choose another name\n",
    );
    let pack = |output: &str, more: &[&str]| {
        let arguments = ["pack", "site", "--fast", "-q", "-o", output];
        let ended = gannet_in(&folder, arguments.iter().chain(more));
        assert_eq!(ended.status, Some(0), "{}", ended.err);
    };
    pack("plain.gannet", &[]);
    pack("signed.gannet", &["--sign", "release.key"]);
    pack(
        "inflated.gannet",
        &["--sign", "release.key", "--drop-identity"],
    );
    let verified = gannet_in(&folder, ["verify", "signed.gannet", "-p", "release.pub"]);
    assert!(
        verified.text().contains(": intact, signed, "),
        "{}",
        verified.err
    );

    let public = folder.join("release.pub");
    let public = public.to_str().expect("UTF-8");
    let refused = |path: &str, key: &str, cause: &str, help: &str| {
        gannet_in(&folder, ["serve", path, "--require-signature", key]).failure(
            1,
            &format!("gannet: cannot serve '{path}': {cause}\nhelp: {help}\n"),
        );
    };
    let pack_help = "sign it when it is packed: 'gannet pack --sign KEY'";
    refused("plain.gannet", "release.pub", "it is not signed", pack_help);
    refused(
        "signed.gannet",
        "other.pub",
        "it was signed with another key",
        "is this the right release, and the right public key?",
    );
    refused(
        "site",
        "release.pub",
        "only archives have signatures",
        "pack the directory: 'gannet pack DIR --sign KEY'",
    );
    let mut bytes = fs::read(folder.join("signed.gannet")).expect("written");
    bytes[4096] ^= 1;
    folder.write("changed.gannet", bytes);
    refused(
        "changed.gannet",
        "release.pub",
        "the body at offset 4096 is not what was signed",
        "it was changed after it was signed; download it again",
    );
    on_both_engines(|engine| {
        let flags = ["--require-signature", public];
        for archive in ["signed.gannet", "inflated.gannet"] {
            let server = engine.serve(folder.join(archive), &flags);
            let body = get(&server, "/").expect(200).body;
            assert!(body.starts_with(b"front page"), "{archive}");
        }
    });
}
