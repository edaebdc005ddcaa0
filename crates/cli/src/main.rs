//! The `balanza` command.
fn main() {}
