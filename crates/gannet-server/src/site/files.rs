//! The files that a worker sends from, by numbers that a guard's token can carry.
//!
//! All sites of a worker share one list, so that a number means one file however many sites there
//! are. A number is given again only when the guard of the file that had it has been ended.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use gannet_io::driver::{File, Meta};

use super::{ServedFile, Trust};

/// The files of a worker.
#[derive(Clone, Default)]
pub(crate) struct ServedFiles(Rc<RefCell<List>>);

#[derive(Default)]
struct List {
    by_number: Vec<Weak<ServedFile>>,
    free: Vec<u32>,
    /// Numbers of files that nobody serves any more, with their descriptors if they are guarded.
    dropped: Vec<(u32, Option<File>)>,
}

impl ServedFiles {
    /// A file with a number of its own; `meta` is what is known of a live one.
    pub(crate) fn add(&self, file: File, meta: Option<Meta>, trust: Trust) -> Rc<ServedFile> {
        let mut list = self.0.borrow_mut();
        let id = list.free.pop().unwrap_or_else(|| {
            list.by_number.push(Weak::new());
            u32::try_from(list.by_number.len() - 1).expect("descriptors are numbered by i32")
        });
        let served = Rc::new(ServedFile {
            file,
            trust: Cell::new(trust),
            id,
            meta,
            files: Some(self.clone()),
        });
        list.by_number[id as usize] = Rc::downgrade(&served);
        served
    }

    /// The file with this number, if it is still in use.
    pub(crate) fn at(&self, id: u32) -> Option<Rc<ServedFile>> {
        self.0.borrow().by_number.get(id as usize)?.upgrade()
    }

    /// Nobody serves the file with this number any more.
    pub(super) fn drop_file(&self, id: u32, guarded: Option<File>) {
        self.0.borrow_mut().dropped.push((id, guarded));
    }

    /// Descriptors of files that nobody serves any more, and whose guards are to be ended now.
    pub(crate) fn take_dropped(&self) -> Vec<File> {
        let mut list = self.0.borrow_mut();
        let List { free, dropped, .. } = &mut *list;
        let guarded = dropped.drain(..).filter_map(|(id, guarded)| {
            free.push(id);
            guarded
        });
        guarded.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> File {
        File::from(std::fs::File::open("/proc/self/exe").expect("it runs"))
    }

    #[test]
    fn a_number_means_one_file_until_its_guard_is_ended() {
        let files = ServedFiles::default();
        let (first, second) = (
            files.add(open(), None, Trust::Constant),
            files.add(open(), None, Trust::Copies),
        );
        assert_eq!((first.id, second.id), (0, 1));
        second.trust.set(Trust::Guarded);
        drop(second);
        assert!(files.at(1).is_none(), "nobody serves it");
        let third = files.add(open(), None, Trust::Copies);
        assert_eq!(third.id, 2, "the guard of number 1 may still break");
        assert_eq!(files.take_dropped().len(), 1, "the guard is to be ended");
        let fourth = files.add(open(), None, Trust::Copies);
        assert_eq!(fourth.id, 1);
        drop(fourth);
        assert_eq!(files.take_dropped().len(), 0, "it had no guard");
        for (file, number) in [(&first, 0), (&third, 2)] {
            let found = files.at(number).expect("in use");
            assert!(Rc::ptr_eq(&found, file));
        }
        assert!(files.at(u32::MAX).is_none());
    }
}
