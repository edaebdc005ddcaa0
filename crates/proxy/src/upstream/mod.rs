//! `proxy_pass` and `tunnel_pass`: composing the request, sending it, reading the answer, and passing it on.

mod answer;
mod attempt;
pub mod check;
mod client_watch;
mod connect;
mod cookies;
mod forward;
mod hedge;
mod hints;
mod http2;
mod line;
mod ntlm;
mod patterns;
mod relay;
mod reply;
mod request;
mod sticky;
mod store;
mod talk;
mod target;
mod tunnel;
mod unanswered;

pub use self::connect::serve as open_tunnel;
pub use self::forward::serve;
