//! `api`: what runs, as JSON, and its change, with the paths and objects of version 9 of NGINX Plus's API.
//!
//! `handler` is the worker's part: it reads the request and leaves it at the desk. `thread` takes the requests from there, one
//! after the other. `table` has all paths, of which `router` finds the one of a request and `openapi` makes the description. `resources`
//! has what they do, the other files have the objects behind the paths.

mod diff;
mod experiments;
mod failure;
mod handler;
mod history;
mod keyvals;
mod objects;
mod openapi;
mod own;
mod plane;
mod prometheus;
mod resources;
mod router;
mod row;
mod server;
mod service;
mod shadows;
mod sources;
mod table;
mod thread;
mod upstreams;
mod zones;

pub use self::failure::Failure;
pub use self::handler::{serve, serve_metrics};
pub use self::plane::{Decide, Plane, View};
pub use self::thread::start;
