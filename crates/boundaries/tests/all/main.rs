//! The inputs in `fuzz/corpus`, replayed.

mod corpora;
mod seeds;
