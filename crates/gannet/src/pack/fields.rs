//! The ready field blocks of what is packed, rendered as a live directory renders them.

use gannet_archive::{Coding, FieldBlock, VariantDraft, VariantsId, Writer};
use gannet_content::answer::{Resource, ready_fields};
use gannet_content::policy::digest;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::hash_tag;
use gannet_http::h2::hpack;
use gannet_http::semantics::coding::Coding as ContentCoding;

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

/// Adds the variants of a representation with their field blocks. Entity tags come from the
/// digests of the stored bytes, so that another release of an encoder makes another tag.
///
/// # Errors
///
/// The content type that cannot be sent in a field.
pub(super) fn add_variants(
    representation: &Representation<'_>,
    variants: &[StoredVariant],
    writer: &mut Writer,
) -> Result<VariantsId, String> {
    let mut rendered = Vec::with_capacity(variants.len());
    for variant in variants {
        let coding = content_coding(variant.coding);
        let tag = hash_tag(&variant.digest, coding);
        let repr_digest = variant.sha256.as_ref().map(digest::value);
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
            vary: variants.len() > 1,
            cache_control: Some(representation.cache_control),
            fields: &fields,
        };
        let fail = |_| representation.content_type.to_string();
        let mut ready = ready_fields(&resource).map_err(fail)?;
        if let Some(changes) = representation.changes {
            ready = changes.apply_to_block(ready.as_block()).map_err(fail)?;
        }
        let hpack = hpack::ready::render(ready.as_block());
        rendered.push((tag, ready, hpack));
    }
    let drafts: Vec<_> = variants
        .iter()
        .zip(&rendered)
        .map(|(variant, (tag, ready, hpack))| {
            let block = ready.as_block();
            VariantDraft {
                coding: variant.coding,
                blob: variant.blob,
                entity_tag: tag.as_bytes(),
                h1: block.bytes,
                length_end: block.length_end,
                shared_start: block.shared_start,
                hpack: hpack.as_ref().map(|hpack| {
                    let block = hpack.as_block();
                    FieldBlock {
                        bytes: block.bytes,
                        length_end: block.length_end,
                        shared_start: block.shared_start,
                    }
                }),
            }
        })
        .collect();
    Ok(writer.add_variants(&drafts))
}

fn content_coding(coding: Coding) -> ContentCoding {
    match coding {
        Coding::Identity => ContentCoding::Identity,
        Coding::Gzip => ContentCoding::Gzip,
        Coding::Brotli => ContentCoding::Brotli,
        Coding::Zstd => ContentCoding::Zstd,
    }
}
