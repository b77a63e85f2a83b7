//! The page to load: resources that block its first paint, and thirty pictures. Its files are the
//! same in every run, and compression shortens none.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// Number of pictures.
const PICTURES: usize = 30;

/// Side of the smallest picture, and the increase for each next one, in pixels of three bytes.
const SIDE: usize = 32;
const SIDE_STEP: usize = 2;

/// The files of the page, with their names in its folder.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Writes the page to the folder.
pub(crate) fn write(folder: &Path) -> Result<Files> {
    let mut random = Random(1);
    let mut files = Files::new();
    let mut add = |name: &str, content: Vec<u8>| files.push((name.to_owned(), content));

    let mut styles = "@font-face { font-family: one; src: url(one.woff2); font-display: swap }\n\
         @font-face { font-family: two; src: url(two.woff2); font-display: swap }\n\
         body { font-family: one; margin: 1em } h1 { font-family: two }\n"
        .to_owned();
    random.comment(&mut styles, 24_000);
    add("page.css", styles.into_bytes());
    let mut styles = "img { float: left; margin: 2px }\n".to_owned();
    random.comment(&mut styles, 8_000);
    add("pictures.css", styles.into_bytes());

    let mut script = "document.documentElement.className = 'scripts';\n".to_owned();
    random.comment(&mut script, 12_000);
    add("early.js", script.into_bytes());
    for (name, len) in [("page.js", 40_000), ("late.js", 16_000)] {
        let mut script = format!("document.body.dataset.{} = '1';\n", &name[..4]);
        random.comment(&mut script, len);
        add(name, script.into_bytes());
    }
    // They are not valid fonts; it suffices that they are requested and arrive.
    for (name, len) in [("one.woff2", 26_000), ("two.woff2", 22_000)] {
        add(name, random.bytes(len));
    }
    let mut body = "<h1>A page</h1>\n".to_owned();
    for picture in 0..PICTURES {
        let name = format!("{picture}.bmp");
        add(&name, random.picture(SIDE + SIDE_STEP * picture));
        let _ = writeln!(body, "<p>Picture {picture}</p><img src={name} alt=''>");
    }
    let mut page = "<!doctype html><html lang=en><meta charset=utf-8><title>A page</title>\n\
         <link rel=icon href='data:,'>\n\
         <link rel=stylesheet href=page.css><link rel=stylesheet href=pictures.css>\n\
         <script src=early.js></script>\n\
         <script defer src=page.js></script><script defer src=late.js></script>\n"
        .to_owned();
    page.push_str(&body);
    page.push_str("<!--");
    page.push_str(&random.text(10_000));
    page.push_str("-->\n");
    add("index.html", page.into_bytes());

    fs::create_dir_all(folder)?;
    for (name, content) in &files {
        fs::write(folder.join(name), content)?;
    }
    Ok(files)
}

/// A random generator (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }

    fn text(&mut self, len: usize) -> String {
        let letter =
            |random: &mut Self| b"abcdefghijklmnopqrstuvwxyz      "[(random.next() >> 59) as usize];
        (0..len).map(|_| char::from(letter(self))).collect()
    }

    fn comment(&mut self, text: &mut String, len: usize) {
        let words = self.text(len.saturating_sub(text.len() + 5));
        let _ = writeln!(text, "/*{words}*/");
    }

    /// A bitmap of noise (BMP, 24 bits).
    fn picture(&mut self, side: usize) -> Vec<u8> {
        let row = (side * 3).next_multiple_of(4);
        let len = row * side;
        let mut file = b"BM".to_vec();
        let mut add = |value: usize| file.extend_from_slice(&(value as u32).to_le_bytes());
        for value in [
            54 + len,
            0,
            54,
            40,
            side,
            side,
            1 | 24 << 16,
            0,
            len,
            0,
            0,
            0,
            0,
        ] {
            add(value);
        }
        file.extend_from_slice(&self.bytes(len));
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_same_each_time_and_its_files_are_as_long_as_they_say() {
        let folder = std::env::temp_dir().join(format!("gannet-page-{}", std::process::id()));
        let files = write(&folder).expect("a writable temporary directory");
        assert_eq!(files, write(&folder).expect("writable"));
        assert_eq!(files.len(), PICTURES + 8);
        let total: usize = files.iter().map(|(_, content)| content.len()).sum();
        assert!((400_000..700_000).contains(&total), "{total}");
        for (name, content) in &files {
            if name.ends_with(".bmp") {
                let len = u32::from_le_bytes(content[2..6].try_into().expect("four bytes"));
                assert_eq!(len as usize, content.len());
            }
        }
        let page = fs::read_to_string(folder.join("index.html")).expect("written");
        for (name, _) in files.iter().filter(|(name, _)| !name.ends_with("woff2")) {
            assert!(
                name == "index.html" || page.contains(&format!("={name}")),
                "{name}"
            );
        }
        fs::remove_dir_all(folder).expect("ours");
    }
}
