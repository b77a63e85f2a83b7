//! The ready field blocks of what is packed, rendered as a live directory renders them.

use std::collections::HashMap;

use gannet_archive::{Coding, FieldBlock, VariantDraft, VariantsId, Writer};
use gannet_content::answer::{Resource, ready_fields};
use gannet_content::policy::digest;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::hash_tag;
use gannet_http::h2::hpack::{self, ready::ReadyHpack};
use gannet_http::semantics::coding::Coding as ContentCoding;
use gannet_http::semantics::ready_fields::block_lines;
use gannet_http::semantics::response::ReadyBlock;

use super::store::StoredVariant;

/// What the field blocks of one representation say, beside its variants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Representation<'a> {
    pub(super) content_type: &'a str,
    pub(super) last_modified: Option<i64>,
    /// How long it may be kept.
    pub(super) cache_control: &'static str,
    /// Further fields.
    pub(super) fields: &'a [(&'a str, &'a [u8])],
    /// What the site's rules make of all of them.
    pub(super) changes: Option<&'a FieldChanges>,
}

/// Common parts of field blocks in HTTP/2's form, by their lines and their cut: a million files
/// have a few.
#[derive(Debug, Default)]
pub(super) struct CommonFields {
    rendered: HashMap<(Vec<u8>, u16), Option<ReadyHpack>>,
}

/// The lines of a block: those of one file, and those that other files have too.
struct Split {
    /// The length, and the entity tag.
    own: Vec<u8>,
    length_end: u16,
    /// All else, and where what a 304 carries begins in it.
    common: (Vec<u8>, u16),
}

impl Split {
    fn of(block: ReadyBlock<'_>) -> Self {
        let (length, rest) = block.bytes.split_at(block.length_end.into());
        let cut = block.shared_start - block.length_end;
        let (before, shared) = rest.split_at(cut.into());
        let first = block_lines(shared).next();
        let tag = first.filter(|(name, _, _)| *name == b"etag");
        let tag = tag.map_or(&[][..], |(_, _, line)| line);
        Self {
            own: [length, tag].concat(),
            length_end: block.length_end,
            common: ([before, &shared[tag.len()..]].concat(), cut),
        }
    }
}

/// A variant's fields, ready for its draft.
struct Rendered {
    tag: String,
    lines: Split,
    own_hpack: Option<ReadyHpack>,
}

/// Adds the variants of a representation with their field blocks. Entity tags come from the
/// digests of the stored bytes, so that another release of an encoder makes another tag.
///
/// # Errors
///
/// The content type that cannot be sent in a field.
pub(super) fn add_variants(
    representation: &Representation<'_>,
    variants: &[StoredVariant],
    common: &mut CommonFields,
    writer: &mut Writer,
) -> Result<VariantsId, String> {
    let mut rendered = Vec::with_capacity(variants.len());
    for variant in variants {
        let digest = writer.digest_of(variant.blob);
        let one = render(representation, variant, &digest, variants.len() > 1)?;
        common.render(&one.lines.common);
        rendered.push(one);
    }
    let drafts: Vec<_> = variants
        .iter()
        .zip(&rendered)
        .map(|(variant, one)| VariantDraft {
            coding: variant.coding,
            blob: variant.blob,
            entity_tag: one.tag.as_bytes(),
            h1: &one.lines.own,
            length_end: one.lines.length_end,
            shared_start: one.lines.length_end,
            common: &one.lines.common.0,
            common_shared_start: one.lines.common.1,
            hpack: common.hpack(one),
        })
        .collect();
    Ok(writer.add_variants(&drafts))
}

impl CommonFields {
    fn render(&mut self, lines: &(Vec<u8>, u16)) {
        if self.rendered.contains_key(lines) {
            return;
        }
        let hpack = hpack::ready::render(ReadyBlock {
            bytes: &lines.0,
            shared_start: lines.1,
            ..ReadyBlock::default()
        });
        self.rendered.insert(lines.clone(), hpack);
    }

    fn hpack<'a>(&'a self, one: &'a Rendered) -> Option<FieldBlock<'a>> {
        let own = one.own_hpack.as_ref()?.as_block();
        let common = self.rendered.get(&one.lines.common)?.as_ref()?.as_block();
        Some(FieldBlock {
            bytes: own.bytes,
            length_end: own.length_end,
            shared_start: own.length_end,
            common: common.bytes,
            common_shared_start: common.shared_start,
        })
    }
}

fn render(
    representation: &Representation<'_>,
    variant: &StoredVariant,
    blob_digest: &[u8; 32],
    vary: bool,
) -> Result<Rendered, String> {
    let coding = content_coding(variant.coding);
    let tag = hash_tag(blob_digest, coding);
    let repr_digest = variant.sha256.as_deref().map(digest::value);
    let mut fields = representation.fields.to_vec();
    fields.extend(
        repr_digest
            .iter()
            .map(|v| (digest::REPR_DIGEST, v.as_bytes())),
    );
    let resource = Resource {
        content_type: representation.content_type,
        coding,
        len: variant.len,
        entity_tag: &tag,
        last_modified: representation.last_modified,
        vary,
        cache_control: Some(representation.cache_control),
        fields: &fields,
    };
    let fail = |_| representation.content_type.to_string();
    let mut ready = ready_fields(&resource).map_err(fail)?;
    if let Some(changes) = representation.changes {
        ready = changes.apply_to_block(ready.as_block()).map_err(fail)?;
    }
    let lines = Split::of(ready.as_block());
    let own_hpack = hpack::ready::render(ReadyBlock {
        bytes: &lines.own,
        length_end: lines.length_end,
        shared_start: lines.length_end,
        ..ReadyBlock::default()
    });
    Ok(Rendered {
        tag,
        lines,
        own_hpack,
    })
}

fn content_coding(coding: Coding) -> ContentCoding {
    match coding {
        Coding::Identity => ContentCoding::Identity,
        Coding::Gzip => ContentCoding::Gzip,
        Coding::Brotli => ContentCoding::Brotli,
        Coding::Zstd => ContentCoding::Zstd,
    }
}
