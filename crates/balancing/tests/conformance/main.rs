//! What holds for every algorithm of the registry, in every form: an entry is tested by being there.
//!
//! A check takes a [`subject::Subject`], which is the library, or the library told something else than the check
//! believes. `mutants` shows for each check a subject that it finds out.

mod chi_square;
mod eligibility;
mod forms;
mod keys;
mod limits;
mod mutants;
mod reasons;
mod reports;
mod returning;
mod shares;
mod subject;
mod threads;
mod times;
mod traces;
