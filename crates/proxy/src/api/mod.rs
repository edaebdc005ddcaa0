//! `api`: what runs, as JSON, and its change, with the paths and objects of version 9 of NGINX Plus's API.
//!
//! `handler` is the worker's part: it reads the request and leaves it at the desk. `thread` takes the requests from there, one
//! after the other. `router` finds what a path means, the other files have the objects behind the paths.

mod failure;
mod handler;
mod history;
mod keyvals;
mod objects;
mod own;
mod plane;
mod prometheus;
mod router;
mod server;
mod service;
mod thread;
mod upstreams;
mod zones;

pub use self::failure::Failure;
pub use self::handler::{serve, serve_metrics};
pub use self::plane::{Decide, Plane, View};
pub use self::thread::start;
