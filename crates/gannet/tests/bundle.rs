//! `gannet bundle`: an image as container runtimes read it, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use gannet_testkit::{Folder, command, gannet_in, program, run};

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "home");
    gannet_in(&folder, ["pack", "site", "-q", "-o", "site.gannet"]).success();
    folder
}

fn files(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(tar);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("sound");
        let path = entry.path().expect("UTF-8").display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("whole");
        (path, content)
    };
    archive.entries().expect("a tar").map(read).collect()
}

#[test]
fn an_archive_alone_is_a_volume_and_the_same_twice() {
    let folder = site();
    let make = |name: &str| {
        let flags = ["site.gannet", "--no-program", "--name", "r.example/docs:7"];
        let arguments = ["bundle"].into_iter().chain(flags).chain(["-o", name]);
        let mut command = command();
        command.current_dir(folder.path()).args(arguments);
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        let said = run(&mut command).success();
        (
            said.text().to_owned(),
            fs::read(folder.join(name)).expect("made"),
        )
    };
    let (said, image) = make("image.tar");
    assert!(said.starts_with("image.tar: r.example/docs:7, "), "{said}");
    let digest = said.trim_end().rsplit("sha256:").next().expect("one");
    let files_of = files(&image);
    assert!(
        files_of.contains_key(&format!("blobs/sha256/{digest}")),
        "{said}"
    );
    let archive = fs::read(folder.join("site.gannet")).expect("made");
    let layers = files_of.values().filter(|it| it.len() > archive.len());
    let layers: Vec<_> = layers.map(|it| files(it)).collect();
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0]["site.gannet"], archive);
    assert_eq!(make("again.tar").1, image, "the same bytes");
}

#[test]
fn what_cannot_be_an_image_is_refused() {
    let folder = site();
    folder.write("image.tar", "earlier");
    let refuse = |flags: &[&str], status: i32, expect: &str| {
        let arguments = [&["bundle", "-o", "image.tar"], flags].concat();
        gannet_in(&folder, arguments).failure(status, expect);
        let earlier = fs::read(folder.join("image.tar")).expect("there");
        assert_eq!(earlier, b"earlier");
    };
    refuse(
        &["--no-program"],
        2,
        "gannet: without ARCHIVE and program the image would be empty\n\
         help: name an archive, or leave out --no-program\n",
    );
    refuse(
        &["site.gannet", "--no-program", "-n", "Docs"],
        2,
        "gannet: cannot name an image 'Docs': a name has lower-case letters and digits, with '.', '_' \
         or '-' between\n\
         help: name it such as 'registry.example.org/docs:1.2' with --name\n",
    );
    refuse(
        &["site", "--no-program"],
        1,
        "gannet: cannot open archive 'site': is a directory (EISDIR)\n\
         help: a folder is no archive: 'gannet pack site -o site.gannet' makes one of it\n",
    );
    // The program of tests needs a C library.
    let own = fs::canonicalize(program()).expect("there");
    let expect = format!(
        "gannet: cannot put '{}' into an image: it needs a C library, which is not in one\n\
         help: use a static program, as 'cargo xtask dist' makes it, or make an image of the \
         archive alone with --no-program\n",
        own.display()
    );
    refuse(&["site.gannet"], 1, &expect);
}
