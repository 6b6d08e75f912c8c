//! The program `muster`.
fn main() {}
