//! The key of a certificate that is ordered, and the order: on the disk before a server is sent
//! anything, and until the certificate is there. An orderer that is killed in between continues that order after its restart.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rcgen::KeyPair;

use super::certificate::{FROM, is_from};
use super::error::AcmeError;
use super::folder;
use crate::limits::{ORDER_LEN_MAX, ORDER_RESERVED};

/// Before the URL of an order.
const ORDER: &str = "Order ";

/// See the module documentation.
pub(super) struct OrderDraft {
    file: File,
    key: KeyPair,
    /// The file without an order.
    text: String,
    order: Option<String>,
}

impl OrderDraft {
    /// What was begun at this server, or something new; with room for the certificate on the disk.
    ///
    /// # Errors
    /// The certificate could not be written either.
    pub(super) fn open(path: &Path, server: &str) -> Result<Self, AcmeError> {
        // What is damaged, or from another server, is begun anew.
        let earlier = folder::read(path, ORDER_LEN_MAX).ok().flatten();
        let earlier = earlier.filter(|content| is_from(server, content));
        let earlier = earlier.and_then(|content| String::from_utf8(content).ok());
        let earlier = earlier.and_then(|text| Some((KeyPair::from_pem(&text).ok()?, text)));
        let order = earlier.as_ref().and_then(|(_, text)| {
            let line = text.lines().find_map(|line| line.strip_prefix(ORDER));
            line.filter(|_| text.ends_with('\n')).map(str::to_owned)
        });
        let refuse = AcmeError::io("write", path);
        let draft = || -> io::Result<Self> {
            let key = match earlier {
                Some((key, _)) => key,
                None => KeyPair::generate().map_err(io::Error::other)?,
            };
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let draft = Self {
                file: options.open(path)?,
                text: format!("{FROM}{server}\n{}\n", key.serialize_pem().trim()),
                key,
                order,
            };
            draft.write()?;
            Ok(draft)
        };
        draft().map_err(refuse)
    }

    pub(super) fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The URL of an order that has not come to its end.
    pub(super) fn order(&self) -> Option<&str> {
        self.order.as_deref()
    }

    /// Notes that there is this order, or none any more.
    pub(super) fn note(&mut self, order: Option<&str>) {
        self.order = order.map(str::to_owned);
        // The order continues without: the room for it is there, and the file only serves those who are
        // killed.
        let _ = self.write();
    }

    /// Gives up the room that was kept for the certificate, which comes next.
    pub(super) fn make_room(&self) {
        // If the room is missing, that is reported when the certificate is written.
        let _ = self.file.set_len(self.content().len() as u64);
    }

    /// The certificate is there.
    pub(super) fn remove(path: &Path) {
        // A later run continues a finished order, and gets the same certificate.
        let _ = fs::remove_file(path);
    }

    fn content(&self) -> String {
        let order = self.order.as_ref();
        let order = order.map(|order| format!("{ORDER}{order}\n"));
        self.text.clone() + &order.unwrap_or_default()
    }

    /// The key is in the same place each time, so that there is no moment without it.
    fn write(&self) -> io::Result<()> {
        let content = self.content();
        self.file.write_all_at(content.as_bytes(), 0)?;
        self.file.set_len(content.len() as u64)?;
        folder::keep_room(&self.file, ORDER_RESERVED)?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use gannet_testkit::Folder;

    use super::*;

    #[test]
    fn an_order_and_its_key_outlast_a_restart() {
        let folder = Folder::new();
        let path = folder.join(".a.test.order");
        let open = |server: &str| OrderDraft::open(&path, server).expect("written");
        let mut draft = open("https://ca.test/");
        assert_eq!(draft.order(), None);
        draft.note(Some("https://ca.test/order/1"));
        let key = draft.key().serialize_pem();
        let again = open("https://ca.test/");
        assert_eq!(again.order(), Some("https://ca.test/order/1"));
        assert_eq!(again.key().serialize_pem(), key);
        draft.note(None);
        draft.make_room();
        let again = open("https://ca.test/");
        assert_eq!((again.order(), again.key().serialize_pem()), (None, key));
        // Another server is asked anew, and so is one of which only a part is there.
        draft.note(Some("https://ca.test/order/22"));
        let len = fs::metadata(&path).expect("there").len();
        again.file.set_len(len - 1).expect("cut");
        assert_eq!(open("https://ca.test/").order(), None);
        let other = open("https://other.test/");
        assert_ne!(other.key().serialize_pem(), draft.key().serialize_pem());
        OrderDraft::remove(&path);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_damaged_is_begun_anew_and_where_nothing_can_be_written_nothing_is_ordered() {
        let folder = Folder::new();
        let path = folder.join(".a.test.order");
        for text in ["", "Ordered from https://ca.test/\nnothing\n", "\u{0}"] {
            fs::write(&path, text.repeat(1000)).expect("written");
            let draft = OrderDraft::open(&path, "https://ca.test/").expect("anew");
            assert!(draft.order().is_none());
            let key = draft.key().serialize_pem();
            let again = OrderDraft::open(&path, "https://ca.test/").expect("there");
            assert_eq!(again.key().serialize_pem(), key);
        }
        let gone = OrderDraft::open(&folder.join("gone/.a.test.order"), "https://ca.test/");
        let why = gone.map(drop).expect_err("refused").to_string();
        assert!(why.contains("ENOENT"), "{why}");
    }
}
