//! Rules that work, but hardly as they are meant.
