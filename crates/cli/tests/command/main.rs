//! The command as its users meet it: what it prints, its exit codes, its processes and signals.

mod lab;
mod once;
mod recommend;
mod serving;
mod simulate;
mod support;
mod systems;
