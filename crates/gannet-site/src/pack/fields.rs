//! Renders the field blocks of an archive, as a live directory renders its fields.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use gannet_archive::{DictionaryId, FieldBlock, VariantDraft, VariantsId, Writer};
use gannet_content::answer::{Resource, VARY_BY_CODING, ready_fields};
use gannet_content::policy::dictionary::{USE_AS_DICTIONARY, VARY_BY_DICTIONARY};
use gannet_content::policy::digest;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::hash_tag;
use gannet_http::h2::hpack;
use gannet_http::semantics::decimal::write_decimal;
use gannet_http::semantics::field_names::write_title;
use gannet_http::semantics::ready_fields::{ReadyFields, block_lines};

use super::limits::{COMMON_COUNT_MAX, COMMON_FOUND_MAX};
use super::store::StoredVariant;

/// What determines the field blocks of a representation, besides its variants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Representation<'a> {
    pub(super) content_type: &'a str,
    pub(super) last_modified: Option<i64>,
    /// Its `cache-control`.
    pub(super) cache_control: &'static str,
    /// Additional fields.
    pub(super) fields: &'a [(&'a str, &'a [u8])],
    /// Changes to all of them by the site's rules.
    pub(super) changes: Option<&'a FieldChanges>,
    /// Its `use-as-dictionary`.
    pub(super) use_as: Option<&'a str>,
    /// Whether there are variants that are coded with a dictionary.
    pub(super) has_dictionaries: bool,
}

impl Representation<'_> {
    /// Its `vary`, with so many variants that need no dictionary.
    fn vary(&self, variant_count: usize) -> Option<&'static str> {
        match variant_count {
            _ if self.has_dictionaries => Some(VARY_BY_DICTIONARY),
            0 | 1 => None,
            _ => Some(VARY_BY_CODING),
        }
    }
}

/// Parts of field blocks that many files share: a million files have only a few.
#[derive(Debug)]
pub(super) struct CommonFields {
    /// The maximum number of parts.
    count_max: usize,
    /// Indexed by lines and cut.
    rendered: HashMap<CommonLines, Rc<Common>>,
    /// The last result for similar representations, indexed by a hash of what they share.
    found: HashMap<u64, Found>,
}

/// Lines in HTTP/1 form, and the offset of those that a 304 includes.
type CommonLines = (Vec<u8>, u16);

/// A common part in both forms.
#[derive(Debug)]
struct Common {
    lines: CommonLines,
    hpack: Option<ReadyFields>,
}

/// The common parts of representations that differ in length and digest only.
#[derive(Debug)]
struct Found {
    content_type: String,
    last_modified: Option<i64>,
    cache_control: &'static str,
    fields: Vec<(String, Vec<u8>)>,
    vary: Option<&'static str>,
    by_coding: [Option<Rc<Common>>; 6],
}

impl Found {
    fn of(representation: &Representation<'_>, vary: Option<&'static str>) -> Self {
        let owned = |(name, value): &(&str, &[u8])| (String::from(*name), value.to_vec());
        Self {
            content_type: representation.content_type.to_owned(),
            last_modified: representation.last_modified,
            cache_control: representation.cache_control,
            fields: representation.fields.iter().map(owned).collect(),
            vary,
            by_coding: Default::default(),
        }
    }

    fn fits(&self, representation: &Representation<'_>, vary: Option<&str>) -> bool {
        let own = self.fields.iter().map(|(n, v)| (n.as_str(), v.as_slice()));
        self.content_type == representation.content_type
            && self.last_modified == representation.last_modified
            && self.cache_control == representation.cache_control
            && self.vary == vary
            && own.eq(representation.fields.iter().copied())
    }
}

/// The lines of a block, split into those of one file and those that files share.
struct Split {
    /// Length, entity tag, and the pattern of its versions.
    own: Vec<u8>,
    length_end: u16,
    /// All other lines, and the offset of those that a 304 includes.
    common: CommonLines,
}

impl Split {
    fn of(block: FieldBlock<'_>) -> Self {
        let (length, rest) = block.bytes.split_at(block.length_end.into());
        let cut = block.shared_start - block.length_end;
        let (before, shared) = rest.split_at(cut.into());
        let (mut own, mut common) = (length.to_vec(), before.to_vec());
        for (name, _, line) in block_lines(shared) {
            let is_own = [&b"etag"[..], USE_AS_DICTIONARY.as_bytes()]
                .iter()
                .any(|it| it.eq_ignore_ascii_case(name));
            let to = if is_own { &mut own } else { &mut common };
            to.extend_from_slice(line);
        }
        Self {
            own,
            length_end: block.length_end,
            common: (common, cut),
        }
    }
}

impl Split {
    /// All lines in the order sent, and their two cuts.
    fn joined(&self) -> (Vec<u8>, (u16, u16)) {
        let (length, own) = self.own.split_at(self.length_end.into());
        let (before, shared) = self.common.0.split_at(self.common.1.into());
        let cuts = (self.length_end, self.length_end + self.common.1);
        ([length, before, own, shared].concat(), cuts)
    }
}

/// A variant's fields, prepared for its draft.
struct Rendered {
    tag: String,
    /// Length and entity tag; all lines if none are shared.
    own: Vec<u8>,
    length_end: u16,
    shared_start: u16,
    own_hpack: Option<ReadyFields>,
    common: Option<Rc<Common>>,
}

/// Adds the variants of a representation with their field blocks. Entity tags are digests of the
/// stored bytes, so that another version of an encoder changes them.
///
/// # Errors
///
/// The content type if it cannot be sent in a field.
pub(super) fn add_variants(
    representation: &Representation<'_>,
    variants: &[StoredVariant],
    common: &mut CommonFields,
    writer: &mut Writer,
) -> Result<VariantsId, String> {
    let mut rendered = Vec::with_capacity(variants.len());
    let vary = representation.vary(variants.len());
    for variant in variants {
        let digest = writer.digest_of(variant.blob);
        let tag = hash_tag(&digest, variant.coding);
        rendered.push(common.fields_of(representation, variant, tag, vary)?);
    }
    let drafts: Vec<_> = variants
        .iter()
        .zip(&rendered)
        .map(|(variant, one)| one.draft(variant))
        .collect();
    Ok(writer.add_variants(&drafts))
}

/// Adds the variants of a representation that are coded with dictionaries, as [`add_variants`] adds
/// the others.
///
/// # Errors
///
/// The content type if it cannot be sent in a field.
pub(super) fn add_dictionary_variants(
    representation: &Representation<'_>,
    variants: &[(StoredVariant, DictionaryId)],
    common: &mut CommonFields,
    writer: &mut Writer,
) -> Result<VariantsId, String> {
    let mut rendered = Vec::with_capacity(variants.len());
    for (variant, _) in variants {
        let tag = hash_tag(&writer.digest_of(variant.blob), variant.coding);
        let vary = representation.vary(0);
        rendered.push(common.fields_of(representation, variant, tag, vary)?);
    }
    let drafts: Vec<_> = variants
        .iter()
        .zip(&rendered)
        .map(|((variant, dictionary), one)| (one.draft(variant), *dictionary))
        .collect();
    Ok(writer.add_dictionary_variants(&drafts))
}

impl Rendered {
    /// From the block's own lines with their two cuts, or from all lines.
    fn new(tag: String, own: Vec<u8>, cuts: (u16, u16), common: Option<Rc<Common>>) -> Self {
        let (length_end, shared_start) = cuts;
        let own_hpack = hpack::ready::render(FieldBlock {
            bytes: &own,
            length_end,
            shared_start,
            ..FieldBlock::default()
        });
        Self {
            tag,
            own,
            length_end,
            shared_start,
            own_hpack,
            common,
        }
    }

    fn draft(&self, variant: &StoredVariant) -> VariantDraft<'_> {
        let common = self.common.as_ref().map(|common| &common.lines);
        let (common, common_shared_start) = common.map_or((&[][..], 0), |(b, cut)| (b, *cut));
        VariantDraft {
            coding: variant.coding,
            blob: variant.blob,
            entity_tag: self.tag.as_bytes(),
            h1: FieldBlock {
                bytes: &self.own,
                length_end: self.length_end,
                shared_start: self.shared_start,
                common,
                common_shared_start,
            },
            hpack: self.hpack(),
        }
    }

    fn hpack(&self) -> Option<FieldBlock<'_>> {
        let own = self.own_hpack.as_ref()?.as_block();
        let common = match &self.common {
            Some(common) => common.hpack.as_ref()?.as_block(),
            None => FieldBlock::default(),
        };
        Some(FieldBlock {
            common: common.bytes,
            common_shared_start: common.shared_start,
            ..own
        })
    }
}

impl Default for CommonFields {
    fn default() -> Self {
        Self {
            count_max: COMMON_COUNT_MAX,
            rendered: HashMap::new(),
            found: HashMap::new(),
        }
    }
}

impl CommonFields {
    /// The fields of a variant. If only its length and digest are new, only those are rendered.
    fn fields_of(
        &mut self,
        representation: &Representation<'_>,
        variant: &StoredVariant,
        tag: String,
        vary: Option<&'static str>,
    ) -> Result<Rendered, String> {
        let is_plain = representation.changes.is_none() && variant.sha256.is_none();
        let hash = is_plain.then(|| self.hash(representation, vary));
        let found = hash.and_then(|hash| self.found.get(&hash));
        let found = found.filter(|found| found.fits(representation, vary));
        let common = found.and_then(|found| found.by_coding[variant.coding as usize].clone());
        if let Some(common) = common {
            let (own, length_end) = own_lines(variant.len, &tag, representation.use_as);
            let cuts = (length_end, length_end);
            return Ok(Rendered::new(tag, own, cuts, Some(common)));
        }
        let has_found = found.is_some();
        let ready = render(representation, variant, &tag, vary)?;
        let lines = Split::of(ready.as_block());
        let Some(common) = self.common(&lines.common) else {
            let (block, cuts) = lines.joined();
            return Ok(Rendered::new(tag, block, cuts, None));
        };
        if let Some(hash) = hash {
            if self.found.len() >= COMMON_FOUND_MAX {
                self.found.clear();
            }
            if !has_found {
                self.found.insert(hash, Found::of(representation, vary));
            }
            if let Some(found) = self.found.get_mut(&hash) {
                found.by_coding[variant.coding as usize] = Some(Rc::clone(&common));
            }
        }
        let cuts = (lines.length_end, lines.length_end);
        Ok(Rendered::new(tag, lines.own, cuts, Some(common)))
    }

    fn hash(&self, representation: &Representation<'_>, vary: Option<&str>) -> u64 {
        let Representation {
            content_type,
            last_modified,
            cache_control,
            ..
        } = representation;
        let hasher = self.found.hasher();
        hasher.hash_one((content_type, last_modified, cache_control, vary))
    }

    /// `None` if there are too many.
    fn common(&mut self, lines: &CommonLines) -> Option<Rc<Common>> {
        if let Some(known) = self.rendered.get(lines) {
            return Some(Rc::clone(known));
        }
        if self.rendered.len() >= self.count_max {
            return None;
        }
        let hpack = hpack::ready::render(FieldBlock {
            bytes: &lines.0,
            shared_start: lines.1,
            ..FieldBlock::default()
        });
        let common = Rc::new(Common {
            lines: lines.clone(),
            hpack,
        });
        self.rendered.insert(lines.clone(), Rc::clone(&common));
        Some(common)
    }
}

/// The part of [`render`]'s output that depends on length, entity tag and path, and where the length
/// ends.
fn own_lines(len: u64, tag: &str, use_as: Option<&str>) -> (Vec<u8>, u16) {
    let mut own = Vec::with_capacity(64);
    own.extend_from_slice(b"Content-Length: ");
    write_decimal(len, &mut own);
    own.extend_from_slice(b"\r\n");
    // About 40 bytes.
    let length_end = own.len() as u16;
    own.extend_from_slice(b"ETag: ");
    own.extend_from_slice(tag.as_bytes());
    own.extend_from_slice(b"\r\n");
    if let Some(value) = use_as {
        write_title(USE_AS_DICTIONARY, &mut own);
        own.extend_from_slice(format!(": {value}\r\n").as_bytes());
    }
    (own, length_end)
}

fn render(
    representation: &Representation<'_>,
    variant: &StoredVariant,
    tag: &str,
    vary: Option<&str>,
) -> Result<ReadyFields, String> {
    let repr_digest = variant.sha256.as_deref().map(digest::value);
    let mut fields = representation.fields.to_vec();
    fields.extend(
        repr_digest
            .iter()
            .map(|v| (digest::REPR_DIGEST, v.as_bytes())),
    );
    let use_as = representation.use_as;
    fields.extend(use_as.map(|value| (USE_AS_DICTIONARY, value.as_bytes())));
    let resource = Resource {
        content_type: representation.content_type,
        coding: variant.coding,
        len: variant.len,
        entity_tag: tag,
        last_modified: representation.last_modified,
        vary,
        cache_control: Some(representation.cache_control),
        fields: &fields,
        common: None,
    };
    let fail = |_| representation.content_type.to_string();
    let mut ready = ready_fields(&resource).map_err(fail)?;
    if let Some(changes) = representation.changes {
        ready = changes.apply_to_block(ready.as_block()).map_err(fail)?;
    }
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use gannet_archive::{Archive, Coding, Content, Key, Options, Superblock};

    use super::*;

    const FURTHER: [(&str, &[u8]); 2] = [("x-one", b"1"), ("x-two", b"2")];

    /// An archive with many variants, some alike and some not.
    fn archive(mut common: impl FnMut() -> CommonFields, keeps: bool) -> Archive<Vec<u8>> {
        let mut writer = Writer::new(Options::default());
        let mut kept = common();
        for number in 0..60u8 {
            let blob = writer.add_bytes(&[number; 9]).id;
            let path = format!("/{number}");
            let representation = Representation {
                content_type: ["text/html", "text/css"][usize::from(number % 2)],
                last_modified: (number % 3 > 0).then_some(1_600_000_000 + i64::from(number % 5)),
                cache_control: ["no-cache", "max-age=5"][usize::from(number % 7 / 4)],
                fields: &FURTHER[..usize::from(number % 11 / 4)],
                changes: None,
                use_as: [None, Some("match=\"/a.*.js\"")][usize::from(number % 19 / 10)],
                has_dictionaries: number % 23 < 5,
            };
            let variant = |coding, sha256| StoredVariant {
                coding,
                blob,
                sha256,
                len: 9,
                is_decoded: false,
            };
            let digest = (number % 13 == 0).then(|| Box::new([number; 32]));
            let variants = [
                variant(Coding::Identity, digest),
                variant(Coding::Gzip, None),
            ];
            let variants = &variants[..1 + usize::from(number % 17 > 0)];
            if !keeps {
                kept = common();
            }
            let variants = add_variants(&representation, variants, &mut kept, &mut writer);
            let content = Content {
                content_type: representation.content_type.as_bytes(),
                variants: variants.expect("fields that may be sent"),
                ..Content::default()
            };
            writer.add_content(Key::content(path.as_bytes()), &content);
        }
        let parts = writer.finish().expect("a sound archive");
        let superblock = Superblock::parse(&parts.superblock, parts.file_len).expect("sound");
        Archive::new(superblock, parts.metadata).expect("sound")
    }

    /// All lines of all variants in the order sent.
    fn lines(archive: &Archive<Vec<u8>>) -> Vec<Vec<u8>> {
        let variants = archive
            .entries()
            .flat_map(|entry| entry.variants().collect::<Vec<_>>());
        variants
            .map(|variant| {
                let block = variant.h1();
                let (before, behind) = block.common.split_at(block.common_shared_start.into());
                let (length, rest) = block.bytes.split_at(block.length_end.into());
                [length, before, rest, behind].concat()
            })
            .collect()
    }

    #[test]
    fn what_is_found_again_is_what_would_be_rendered() {
        let found = archive(CommonFields::default, true);
        let rendered = archive(CommonFields::default, false);
        assert!(found.metadata() == rendered.metadata());
    }

    #[test]
    fn beyond_a_number_of_common_parts_blocks_stand_for_themselves() {
        let whole = archive(CommonFields::default, true);
        let few = || CommonFields {
            count_max: 3,
            ..CommonFields::default()
        };
        let mixed = archive(few, true);
        assert_eq!(lines(&mixed), lines(&whole));
        let own_len = |archive: &Archive<Vec<u8>>| {
            let entries = archive.entries();
            let lens = entries.flat_map(|entry| {
                let lens = entry.variants().map(|variant| variant.h1().bytes.len());
                lens.collect::<Vec<_>>()
            });
            lens.filter(|len| *len > 100).count()
        };
        assert_eq!(own_len(&whole), 0);
        assert!(own_len(&mixed) > 50);
    }
}
