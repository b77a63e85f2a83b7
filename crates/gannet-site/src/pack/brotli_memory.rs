//! A pool of memory for the Brotli encoder, reused from file to file.
//!
//! The encoder needs some megabytes of zeroed tables for each file, however small. Allocating them
//! from the kernel each time takes several times as long as compressing a page.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use brotli::enc::{Allocator, BrotliAlloc, SliceWrapper, SliceWrapperMut};

use super::limits::{ENCODER_MEMORY_MAX, ENCODER_MEMORY_MIN};

/// Vectors by item type; one pool per thread.
type Pool = Rc<RefCell<HashMap<TypeId, Vec<Box<dyn Any>>>>>;

/// The encoder's allocator. Clones share a pool.
#[derive(Clone, Default)]
pub(super) struct BrotliMemory {
    pool: Pool,
}

/// Borrowed items; returned to the pool on drop.
pub(super) struct Loan<T: 'static> {
    items: Vec<T>,
    pool: Option<Pool>,
}

impl BrotliAlloc for BrotliMemory {}

impl<T: Clone + Default + 'static> Allocator<T> for BrotliMemory {
    type AllocatedMemory = Loan<T>;

    fn alloc_cell(&mut self, count: usize) -> Loan<T> {
        let len = count.saturating_mul(size_of::<T>());
        if !(ENCODER_MEMORY_MIN..=ENCODER_MEMORY_MAX).contains(&len) {
            return Loan {
                items: vec![T::default(); count],
                pool: None,
            };
        }
        let mut items = self.take(count).unwrap_or_default();
        items.clear();
        items.resize(count, T::default());
        Loan {
            items,
            pool: Some(Rc::clone(&self.pool)),
        }
    }

    fn free_cell(&mut self, loan: Loan<T>) {
        drop(loan);
    }
}

impl BrotliMemory {
    /// The smallest pooled vector with room for `count` items.
    fn take<T: 'static>(&self, count: usize) -> Option<Vec<T>> {
        let mut pool = self.pool.borrow_mut();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_lent_again_and_cleared() {
        let mut memory = BrotliMemory::default();
        let mut first: Loan<u32> = memory.alloc_cell(ENCODER_MEMORY_MIN);
        first.slice_mut().fill(7);
        let place = first.slice().as_ptr();
        drop(first);
        let second: Loan<u32> = memory.alloc_cell(ENCODER_MEMORY_MIN - 1);
        assert_eq!(second.slice().as_ptr(), place);
        assert!(second.slice().iter().all(|item| *item == 0));
        let other: Loan<u32> = memory.alloc_cell(ENCODER_MEMORY_MIN);
        assert_ne!(other.slice().as_ptr(), place);
        let small: Loan<u8> = memory.alloc_cell(10);
        assert_eq!(small.slice(), [0; 10]);
    }
}
