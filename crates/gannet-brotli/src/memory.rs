//! Memory for the encoder: a pool that is reused from file to file, or none.
//!
//! The encoder needs some megabytes of zeroed tables for each file, however small. Allocating them
//! from the kernel each time takes several times as long as compressing a page.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use brotli::enc::{Allocator, BrotliAlloc, SliceWrapper, SliceWrapperMut};

/// Vectors by item type.
type Pool = Rc<RefCell<HashMap<TypeId, Vec<Box<dyn Any>>>>>;

/// The encoder's memory. By default nothing of it is kept.
#[derive(Clone, Default)]
pub struct Memory {
    pool: Option<Pool>,
}

/// Borrowed items; returned to the pool on drop.
pub struct Loan<T: 'static> {
    items: Vec<T>,
    pool: Option<Pool>,
}

impl BrotliAlloc for Memory {}

impl<T: Clone + Default + 'static> Allocator<T> for Memory {
    type AllocatedMemory = Loan<T>;

    fn alloc_cell(&mut self, count: usize) -> Loan<T> {
        let len = count.saturating_mul(size_of::<T>());
        let Some(pool) = self.pool.as_ref().filter(|_| POOLED.contains(&len)) else {
            return Loan {
                items: vec![T::default(); count],
                pool: None,
            };
        };
        let mut items = take(pool, count).unwrap_or_default();
        items.clear();
        items.resize(count, T::default());
        Loan {
            items,
            pool: Some(Rc::clone(pool)),
        }
    }

    fn free_cell(&mut self, loan: Loan<T>) {
        drop(loan);
    }
}

impl Memory {
    /// A pool. Clones share it, and keep it from file to file.
    #[must_use]
    pub fn pooled() -> Self {
        Self {
            pool: Some(Pool::default()),
        }
    }
}

/// The smallest pooled vector with room for `count` items.
fn take<T: 'static>(pool: &Pool, count: usize) -> Option<Vec<T>> {
    let mut pool = pool.borrow_mut();
    let kept = pool.get_mut(&TypeId::of::<T>())?;
    let capacity = |one: &dyn Any| one.downcast_ref::<Vec<T>>().map_or(0, Vec::capacity);
    let (number, _) = kept
        .iter()
        .enumerate()
        .map(|(number, one)| (number, capacity(one.as_ref())))
        .filter(|(_, capacity)| *capacity >= count)
        .min_by_key(|(_, capacity)| *capacity)?;
    let found = kept.swap_remove(number).downcast().ok()?;
    Some(*found)
}

impl<T: 'static> Default for Loan<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            pool: None,
        }
    }
}

impl<T: 'static> SliceWrapper<T> for Loan<T> {
    fn slice(&self) -> &[T] {
        &self.items
    }
}

impl<T: 'static> SliceWrapperMut<T> for Loan<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T: 'static> Drop for Loan<T> {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else {
            return;
        };
        let items = std::mem::take(&mut self.items);
        let mut pool = pool.borrow_mut();
        let kept = pool.entry(TypeId::of::<T>()).or_default();
        if kept.len() < KEPT_PER_TYPE {
            kept.push(Box::new(items));
        }
    }
}

/// The encoder uses only a few of each type at a time.
const KEPT_PER_TYPE: usize = 8;

/// Lengths of tables in bytes that are worth pooling. Longer ones belong to large files, where they cost
/// nothing, and every thread has its own pool.
const POOLED: RangeInclusive<usize> = 16 << 10..=8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_lent_again_and_cleared() {
        let mut memory = Memory::pooled();
        let count = *POOLED.start();
        let mut first: Loan<u32> = memory.alloc_cell(count);
        first.slice_mut().fill(7);
        let place = first.slice().as_ptr();
        drop(first);
        let second: Loan<u32> = memory.alloc_cell(count - 1);
        assert_eq!(second.slice().as_ptr(), place);
        assert!(second.slice().iter().all(|item| *item == 0));
        let other: Loan<u32> = memory.alloc_cell(count);
        assert_ne!(other.slice().as_ptr(), place);
        let small: Loan<u8> = memory.alloc_cell(10);
        assert_eq!(small.slice(), [0; 10]);
    }

    #[test]
    fn nothing_is_kept_without_a_pool() {
        let mut memory = Memory::default();
        let loan: Loan<u32> = memory.alloc_cell(*POOLED.start());
        assert!(loan.pool.is_none());
        assert!(loan.slice().iter().all(|item| *item == 0));
    }
}
