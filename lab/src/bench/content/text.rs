//! Text as a documentation site has it: pages, styles and scripts of made-up words, which codings make
//! nearly as much shorter as real ones.

use std::fmt::Write;

use super::SplitMix;

/// Words of the vocabulary. Frequent ones come often, as in any language.
const WORDS: usize = 3_000;
const CONSONANTS: &[u8] = b"bcdfghjklmnprstvwz";
const VOWELS: &[u8] = b"aeiou";

/// Text of `len` bytes for files with `extension`, the same each time for a `seed`.
pub(super) fn pool(extension: &str, seed: u64, len: usize) -> Vec<u8> {
    let mut writer = Writer::new(seed);
    while writer.text.len() < len {
        match extension {
            "css" => writer.rule(),
            "js" => writer.function(),
            _ => writer.section(),
        }
    }
    let mut bytes = writer.text.into_bytes();
    bytes.truncate(len);
    bytes
}

struct Writer {
    random: SplitMix,
    words: Vec<String>,
    text: String,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let mut letter =
            |from: &[u8]| char::from(from[(random.next() % from.len() as u64) as usize]);
        let words = (0..WORDS).map(|rank| {
            // Rare words are longer.
            let syllables = 1 + (rank + 1).ilog2() / 4;
            (0..=syllables)
                .flat_map(|_| [letter(CONSONANTS), letter(VOWELS)])
                .collect()
        });
        Self {
            words: words.collect(),
            random,
            text: String::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next() % end
    }

    /// A word: the one of rank n about half as often as that of rank n / 2.
    fn word(&mut self) -> String {
        let even = self.below(1 << 20) as f64 / f64::from(1 << 20);
        let rank = (WORDS as f64).powf(even) as usize - 1;
        self.words[rank].clone()
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        let written = self.text.write_fmt(text);
        written.expect("a string takes all");
    }

    /// A section of a page: a signature, prose with links, an example.
    fn section(&mut self) {
        let (name, kind, number) = (self.word(), self.word(), self.below(400));
        self.write(format_args!(
            "<section id=\"method.{name}\" class=\"method\"><a class=\"src rightside\" \
             href=\"../../src/{kind}/{name}.html#{number}\">source</a><h4 class=\"code-header\">pub fn \
             <a href=\"#method.{name}\" class=\"fn\">{name}</a>(&amp;self, {kind}: <a class=\"struct\" \
             href=\"../{kind}/struct.{kind}.html\" title=\"struct {kind}\">{kind}</a>)</h4></section>\n"
        ));
        self.write(format_args!("<div class=\"docblock\">"));
        for _ in 0..=self.below(3) {
            self.paragraph();
        }
        let (first, second) = (self.word(), self.word());
        self.write(format_args!(
            "<div class=\"example-wrap\"><pre class=\"rust rust-example-rendered\"><code><span \
             class=\"kw\">let </span>{first} = {name}::<span class=\"ident\">{second}</span>(<span \
             class=\"number\">{number}</span>);\n<span class=\"macro\">assert_eq!</span>({first}.{name}(), \
             <span class=\"prelude-val\">Some</span>({number}));</code></pre></div></div>\n"
        ));
    }

    fn paragraph(&mut self) {
        self.write(format_args!("<p>"));
        for _ in 0..20 + self.below(40) {
            let word = self.word();
            match self.below(24) {
                0 => self.write(format_args!(
                    "<a href=\"../{word}/index.html\" title=\"mod {word}\"><code>{word}</code></a> "
                )),
                1 => self.write(format_args!("<code>{word}</code> ")),
                2 => self.write(format_args!("{word}, ")),
                3 => self.write(format_args!("{word}. ")),
                _ => self.write(format_args!("{word} ")),
            }
        }
        self.write(format_args!("</p>\n"));
    }

    fn rule(&mut self) {
        let (name, part) = (self.word(), self.word());
        let (color, size) = (self.below(1 << 24), self.below(64));
        self.write(format_args!(
            ".{name} > .{part}, .{name}:hover {{\n\tcolor: #{color:06x};\n\tbackground-color: \
             var(--{part}-background-color);\n\tpadding: {size}px 0 {size}px 8px;\n\tborder-bottom: 1px \
             solid var(--{name}-border-color);\n\tdisplay: flex;\n}}\n"
        ));
    }

    fn function(&mut self) {
        let (name, value, field) = (self.word(), self.word(), self.word());
        let number = self.below(1_000);
        self.write(format_args!(
            "function {name}({value}, {field}) {{\n    const {value}Element = \
             document.getElementById(\"{field}\");\n    if ({value}Element === null || \
             {value}.{field} > {number}) {{\n        return;\n    }}\n    \
             {value}Element.addEventListener(\"{name}\", event => {{\n        \
             {field}.push({{ {name}: {number}, {value}: event.{field} }});\n    }});\n}}\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// What gzip leaves of the documentation of the Rust standard library is 0.19; a tenth of that, or
    /// half of the text, would be no measure of servers that compress.
    #[test]
    fn text_compresses_like_that_of_sites() {
        for extension in ["html", "css", "js"] {
            let text = pool(extension, 1, 30_000);
            assert_eq!(text, pool(extension, 1, 30_000));
            assert!(text.is_ascii() && text.len() == 30_000);
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(&text).expect("memory");
            let len = encoder.finish().expect("memory").len();
            let share = len as f64 / text.len() as f64;
            assert!((0.1..0.3).contains(&share), "{extension}: {share}");
        }
    }
}
