//! Workloads of the archive format for counting instructions: `cargo xtask instructions`.
//!
//! `archive_instructions NAME COUNT` runs it COUNT times; without arguments it prints the names.

use std::hint::black_box;

use gannet_archive::{
    Archive, ArchiveError, Coding, CodingSet, Content, FieldBlock, Key, Options, Superblock,
    VariantDraft, Writer,
};
use gannet_testkit::workload;

const NAMES: [&str; 2] = ["archive-lookup", "archive-miss"];

fn main() -> Result<(), ArchiveError> {
    let Some((name, count)) = workload(&NAMES) else {
        return Ok(());
    };
    let paths: Vec<String> = (0..1000)
        .map(|n| format!("/articles/{}/page-{n}.html", n % 97))
        .collect();
    let archive = build(&paths)?;
    let suffix = match name {
        "archive-lookup" => "",
        "archive-miss" => "x",
        _ => unreachable!("it is one of them"),
    };
    let asked: Vec<String> = paths.iter().map(|path| format!("{path}{suffix}")).collect();
    for path in asked.iter().cycle().take(count as usize) {
        let entry = archive.lookup(Key::content(black_box(path.as_bytes())));
        let variant = entry.and_then(|entry| entry.select(CodingSet::ALL));
        assert_eq!(variant.is_some(), suffix.is_empty());
        black_box(variant);
    }
    Ok(())
}

fn build(paths: &[String]) -> Result<Archive<Vec<u8>>, ArchiveError> {
    let mut writer = Writer::new(Options::default());
    for path in paths {
        let length = format!("Content-Length: {}\r\n", path.len());
        let (tag, block) = (
            format!("\"{path}\""),
            format!("{length}content-type: text/html\r\n"),
        );
        let draft = VariantDraft {
            coding: Coding::Identity,
            blob: writer.add_bytes(path.as_bytes()).id,
            entity_tag: tag.as_bytes(),
            h1: FieldBlock {
                bytes: block.as_bytes(),
                length_end: length.len() as u16,
                shared_start: length.len() as u16,
                ..FieldBlock::default()
            },
            hpack: None,
        };
        let content = Content {
            content_type: b"text/html",
            variants: writer.add_variants(&[draft]),
            ..Content::default()
        };
        writer.add_content(Key::content(path.as_bytes()), &content);
    }
    let parts = writer.finish()?;
    let superblock = Superblock::parse(&parts.superblock, parts.file_len)?;
    Archive::new(superblock, parts.metadata)
}
