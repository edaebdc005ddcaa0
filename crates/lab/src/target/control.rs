//! Changes of a running target, by its control socket.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};

use super::answer::Server;

/// Path at which a control socket changes its target: `?slower=4`, `?failing=on`; `?slower=1` and `?failing=off` undo it.
pub const CHANGE_PATH: &str = "/_target/change";

impl Server {
    /// Changes the target, or answers a question about it.
    pub(super) fn control<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.uri().path() != CHANGE_PATH {
            return self.about_itself(request);
        }
        let (text, status) = match self.change(request.uri().query().unwrap_or_default()) {
            Some(()) => ("changed\n", StatusCode::OK),
            None => ("slower=NUMBER or failing=on|off is meant\n", StatusCode::BAD_REQUEST),
        };
        let mut response = self.tell(text.into(), "text/plain");
        *response.status_mut() = status;
        response
    }

    fn change(&self, query: &str) -> Option<()> {
        match query.split_once('=')? {
            ("slower", factor) => {
                let factor: f64 = factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0)?;
                self.set_speed(self.own_speed / factor);
            }
            ("failing", "on") => self.set_failing(true),
            ("failing", "off") => self.set_failing(false),
            _ => return None,
        }
        Some(())
    }
}
