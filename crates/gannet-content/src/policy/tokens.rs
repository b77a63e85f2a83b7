//! Tokenizes a page in pieces, so that a hostile one costs little.
//!
//! The tokenizer compares each attribute of a tag with those before it. So attributes are counted
//! before the tokenizer sees them. What is a tag depends on what came before it, which only the
//! tokenizer knows: it emits text at once, but nothing between a tag's `<` and its `>`. Hence a
//! tag is what begins like one and is followed by silence.

use std::cell::Cell;
use std::fmt;

use html5ever::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use super::limits::ATTRIBUTES_MAX;

/// Why a page cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CostlyMarkup {
    /// A tag has too many attributes.
    Attributes,
    /// Elements are nested so deeply that the work for each grows with all of them.
    Nesting,
}

impl fmt::Display for CostlyMarkup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attributes => write!(out, "a tag has more than {ATTRIBUTES_MAX} attributes"),
            Self::Nesting => write!(out, "its elements are nested too deeply"),
        }
    }
}

/// Tokenizes `text` and returns the sink. `is_exhausted` is called after each piece, to end it
/// early.
///
/// # Errors
/// The page is made to be costly.
pub fn tokenize<S: TokenSink>(
    sink: S,
    text: &str,
    is_exhausted: impl Fn(&S) -> bool,
) -> Result<S, CostlyMarkup> {
    tokenize_within(ATTRIBUTES_MAX, sink, text, is_exhausted)
}

fn tokenize_within<S: TokenSink>(
    attributes_max: usize,
    sink: S,
    text: &str,
    is_exhausted: impl Fn(&S) -> bool,
) -> Result<S, CostlyMarkup> {
    let watched = Watched {
        sink,
        has_emitted: Cell::new(false),
    };
    let options = TokenizerOpts {
        // It would be dropped from every piece.
        discard_bom: false,
        ..TokenizerOpts::default()
    };
    let tokenizer = Tokenizer::new(watched, options);
    let text = StrTendril::from(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut position = 0;
    let mut markup = Markup::Text;
    let input = BufferQueue::default();
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        let len = markup.piece(rest, attributes_max)?;
        tokenizer.sink.has_emitted.set(false);
        input.push_back(text.subtendril(position as u32, len as u32));
        // It pauses after scripts, which are not run.
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        if is_exhausted(&tokenizer.sink.sink) {
            return Err(CostlyMarkup::Nesting);
        }
        markup = match (rest[0], tokenizer.sink.has_emitted.get(), markup) {
            // What was emitted with it was text before it.
            (b'<', true, _) | (b'<', _, Markup::Text | Markup::Open) => Markup::Open,
            (_, true, _) => Markup::Text,
            _ => markup,
        };
        position += len;
    }
    tokenizer.end();
    Ok(tokenizer.sink.sink)
}

/// Notes that a token was emitted.
struct Watched<S> {
    sink: S,
    has_emitted: Cell<bool>,
}

impl<S: TokenSink> TokenSink for Watched<S> {
    type Handle = S::Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<S::Handle> {
        if !matches!(token, Token::ParseError(_)) {
            self.has_emitted.set(true);
        }
        self.sink.process_token(token, line)
    }

    fn end(&self) {
        self.sink.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.sink
            .adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Where the tokenizer is, as far as its silence shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Markup {
    /// In text of any kind: of the page, a script, a title.
    Text,
    /// After a `<`.
    Open,
    /// In a tag, if it is silent; and the number of its attributes so far.
    Tag(TagPart, usize),
    /// In a comment or the like, if it is silent.
    Other,
}

/// The part of a tag (HTML, sections 13.2.5.8 and 13.2.5.32 to 13.2.5.40).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TagPart {
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

impl TagPart {
    fn after(self, byte: u8) -> Self {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c');
        match (self, byte) {
            (Self::Quoted(quote), _) if byte == quote => Self::BeforeName,
            (Self::Quoted(_), _) | (_, b'>') => self,
            (Self::BeforeValue, b'"' | b'\'') => Self::Quoted(byte),
            (Self::BeforeValue, _) if is_space => self,
            (Self::BeforeValue, _) => Self::Unquoted,
            (Self::Name, _) if is_space => Self::AfterName,
            (Self::BeforeName | Self::AfterName, _) if is_space => self,
            (Self::TagName | Self::Unquoted, _) if is_space => Self::BeforeName,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::TagName | Self::BeforeName | Self::Name | Self::AfterName, b'/') => {
                Self::BeforeName
            }
            (Self::BeforeName | Self::AfterName, _) => Self::Name,
            _ => self,
        }
    }
}

impl Markup {
    /// The length of the next piece of `rest`, which is not empty. A `<` is a piece of its own, and
    /// a `>` ends one.
    ///
    /// # Errors
    /// A tag has too many attributes.
    fn piece(&mut self, rest: &[u8], attributes_max: usize) -> Result<usize, CostlyMarkup> {
        if *self == Self::Open && rest[0] != b'<' {
            *self = match rest {
                // Emits nothing, and is over.
                [b'/', b'>', ..] => {
                    *self = Self::Text;
                    return Ok(2);
                }
                [b'/', letter, ..] if letter.is_ascii_alphabetic() => {
                    *self = Self::Tag(TagPart::TagName, 0);
                    return Ok(1);
                }
                [letter, ..] if letter.is_ascii_alphabetic() => Self::Tag(TagPart::TagName, 0),
                _ => Self::Other,
            };
        }
        for (at, byte) in rest.iter().enumerate() {
            if *byte == b'<' && at > 0 {
                return Ok(at);
            }
            if let Self::Tag(part, count) = self {
                let next = part.after(*byte);
                let is_new = next == TagPart::Name && *part != TagPart::Name;
                if is_new && *count == attributes_max {
                    // If it is a tag, the tokenizer is silent about all before this.
                    return if at > 0 {
                        Ok(at)
                    } else {
                        Err(CostlyMarkup::Attributes)
                    };
                }
                (*part, *count) = (next, *count + usize::from(is_new));
            }
            if matches!(byte, b'<' | b'>') {
                return Ok(at + 1);
            }
        }
        Ok(rest.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use html5ever::tokenizer::TagKind;
    use html5ever::tokenizer::states::RawKind;

    use super::*;

    /// Keeps all tokens as text, with joined characters.
    #[derive(Default)]
    struct Sink {
        tokens: RefCell<Vec<String>>,
        most: Cell<usize>,
        has_duplicates: Cell<bool>,
    }

    impl TokenSink for Sink {
        type Handle = ();

        fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
            let tokens = &mut *self.tokens.borrow_mut();
            match token {
                Token::ParseError(error) => {
                    let is_duplicate = error.contains("Duplicate");
                    self.has_duplicates
                        .set(self.has_duplicates.get() || is_duplicate);
                }
                Token::CharacterTokens(text) => match tokens.last_mut() {
                    Some(last) if last.starts_with('#') => last.push_str(&text),
                    _ => tokens.push(format!("#{text}")),
                },
                Token::TagToken(tag) => {
                    tokens.push(format!("{line} {tag:?}"));
                    self.most.set(self.most.get().max(tag.attrs.len()));
                    let kind = match &*tag.name {
                        _ if tag.kind == TagKind::EndTag => return TokenSinkResult::Continue,
                        "script" => RawKind::ScriptData,
                        "style" => RawKind::Rawtext,
                        "title" => RawKind::Rcdata,
                        _ => return TokenSinkResult::Continue,
                    };
                    return TokenSinkResult::RawData(kind);
                }
                other => tokens.push(format!("{other:?}")),
            }
            TokenSinkResult::Continue
        }
    }

    fn unbounded(text: &str) -> Sink {
        let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
        let input = BufferQueue::default();
        input.push_back(StrTendril::from(text));
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        tokenizer.end();
        tokenizer.sink
    }

    /// In any text, the tag with most attributes is found before it is tokenized, and otherwise the
    /// tokens are the same.
    #[test]
    fn attributes_are_counted_wherever_the_tokenizer_finds_a_tag() {
        const PIECES: [&str; 32] = [
            "<",
            ">",
            "/",
            "<b",
            "</b",
            "</",
            "<!--",
            "-->",
            "--",
            "<!",
            "<?",
            "=",
            "\"",
            "'",
            " ",
            "\n",
            "&amp",
            "&",
            ";",
            "<script",
            "</script",
            "<style>",
            "</style",
            "<title>",
            "</title",
            "</scr",
            "x",
            "\u{e9}",
            "\u{feff}",
            "\0",
            "<![CDATA[",
            "<!doctype",
        ];
        let mut random = 1_u64;
        let mut next = move |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        for round in 0..20_000 {
            let mut text = String::new();
            for index in 0..next(24) {
                match next(3) {
                    0 => text.push_str(&format!(" a{index}")),
                    _ => text.push_str(PIECES[next(PIECES.len())]),
                }
            }
            // Ends whatever tag is open.
            text.push_str("a\"'>");
            let plain = unbounded(&text);
            let most = plain.most.get();
            let within = |max| tokenize_within(max, Sink::default(), &text, |_| false);
            if !plain.has_duplicates.get() {
                let bounded = within(most).map(|sink| sink.tokens.into_inner());
                assert_eq!(bounded, Ok(plain.tokens.into_inner()), "{round}: {text:?}");
            }
            if most > 0 {
                let bounded = within(most - 1).map(|_| ());
                assert_eq!(bounded, Err(CostlyMarkup::Attributes), "{round}: {text:?}");
            }
        }
    }
}
