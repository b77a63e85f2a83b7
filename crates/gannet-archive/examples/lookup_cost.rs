//! Prints the cost of a lookup in nanoseconds, in small and large archives.
//!
//! `cargo run --release -p gannet-archive --example lookup_cost`

use std::hint::black_box;
use std::time::Instant;

use gannet_archive::{
    Archive, ArchiveError, Body, Coding, CodingSet, Content, FieldBlock, Key, Options, Stored,
    Superblock, VariantDraft, Writer,
};

fn main() -> Result<(), ArchiveError> {
    for count in [10, 1_000, 100_000, 1_000_000] {
        measure(count)?;
    }
    Ok(())
}

fn measure(count: u32) -> Result<(), ArchiveError> {
    let paths: Vec<String> = (0..count)
        .map(|n| format!("/articles/{}/page-{n}.html", n % 97))
        .collect();
    let (archive, open_ms) = build(&paths)?;
    // A stride that visits every path and defeats the prefetcher.
    let order: Vec<&str> = (0..paths.len())
        .map(|n| paths[n * 7919 % paths.len()].as_str())
        .collect();
    let rounds = (4_000_000 / order.len()).max(1);
    let lookup = best_ns(rounds, &order, |path| {
        archive.lookup(Key::content(path.as_bytes())).is_some()
    });
    let select = best_ns(rounds, &order, |path| {
        archive
            .lookup(Key::content(path.as_bytes()))
            .and_then(|entry| entry.select(CodingSet::ALL))
            .is_some_and(|variant| {
                let body_len = match variant.body() {
                    Body::Plain(Stored::Tiny(bytes)) => bytes.len() as u64,
                    Body::Plain(Stored::Blob { len, .. }) | Body::Decoded { len, .. } => len,
                };
                let lines: usize = variant.h1().pieces().map(sum).into_iter().sum();
                lines as u64 + body_len > 0
            })
    });
    let misses: Vec<String> = order.iter().map(|path| format!("{path}x")).collect();
    let misses: Vec<&str> = misses.iter().map(String::as_str).collect();
    let miss = best_ns(rounds, &misses, |path| {
        archive.lookup(Key::content(path.as_bytes())).is_none()
    });
    println!(
        "{count:>9} entries: lookup {lookup:>6.1} ns, with variant and body {select:>6.1} ns, \
         miss {miss:>6.1} ns, longest probe {}, open {open_ms:.2} ms, metadata {} bytes",
        archive.index_shape().1,
        archive.metadata().len()
    );
    Ok(())
}

/// Reads every byte, as sending does.
fn sum(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize::from(*byte)).sum()
}

fn best_ns(rounds: usize, paths: &[&str], look: impl Fn(&str) -> bool) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..rounds {
            for path in paths {
                assert!(look(black_box(path)));
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (rounds * paths.len()) as f64);
    }
    best
}

fn build(paths: &[String]) -> Result<(Archive<Vec<u8>>, f64), ArchiveError> {
    let mut writer = Writer::new(Options::default());
    for path in paths {
        let drafts = [Coding::Identity, Coding::Gzip, Coding::Brotli, Coding::Zstd].map(|coding| {
            let body = format!("{} {path}", &"xxxxxx"[coding as usize..]);
            let tag = format!("\"{path}-{}\"", coding as u8);
            let length = format!("Content-Length: {}\r\n", body.len());
            let block = format!("{length}etag: {tag}\r\n");
            let id = writer.add_bytes(body.as_bytes()).id;
            (coding, id, tag, block, length.len() as u16)
        });
        let drafts = drafts
            .each_ref()
            .map(|(coding, blob, tag, block, length_end)| VariantDraft {
                coding: *coding,
                blob: *blob,
                entity_tag: tag.as_bytes(),
                h1: FieldBlock {
                    bytes: block.as_bytes(),
                    length_end: *length_end,
                    shared_start: *length_end,
                    common: b"Content-Type: text/html; charset=utf-8\r\n\
                        Last-Modified: Sat, 21 Nov 2026 08:00:00 GMT\r\nVary: accept-encoding\r\n",
                    common_shared_start: 40,
                },
                hpack: None,
            });
        let variants = writer.add_variants(&drafts);
        let content = Content {
            content_type: b"text/html",
            variants,
            ..Content::default()
        };
        writer.add_content(Key::content(path.as_bytes()), &content);
    }
    let parts = writer.finish()?;
    let start = Instant::now();
    let superblock = Superblock::parse(&parts.superblock, parts.file_len)?;
    let archive = Archive::new(superblock, parts.metadata)?;
    Ok((archive, start.elapsed().as_secs_f64() * 1e3))
}
