//! Errors of the API.

use balanza_config::model::membership::ChangeError;
use serde_json::json;

use crate::desk::Answer;

/// Where the codes are explained.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    status: u16,
    code: &'static str,
    text: String,
}

impl Failure {
    /// With a status, a code for programs and a text for people.
    pub fn new(status: u16, code: &'static str, text: impl Into<String>) -> Failure {
        Failure { status, code, text: text.into() }
    }

    /// Nothing has this path.
    pub fn no_path() -> Failure {
        Failure::new(404, "PathNotFound", "path not found")
    }

    /// The method is not allowed, or nothing may be changed here.
    pub fn no_method() -> Failure {
        Failure::new(405, "MethodDisabled", "method disabled")
    }

    /// A parameter of a server is wrong.
    pub fn format(text: impl Into<String>) -> Failure {
        Failure::new(400, "UpstreamConfFormatError", text)
    }

    /// Why, for people.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The response.
    pub fn answer(&self, request_id: &str) -> Answer {
        let error = json!({ "status": self.status, "text": self.text, "code": self.code });
        let body = json!({ "error": error, "request_id": request_id, "href": HREF });
        Answer {
            status: self.status,
            content_type: "application/json",
            body: body.to_string().into_bytes(),
            ..Answer::default()
        }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Failure {
        let (status, code) = match &error {
            ChangeError::NoUpstream(_) => (404, "UpstreamNotFound"),
            ChangeError::NoServer(_) => (404, "UpstreamServerNotFound"),
            ChangeError::OtherAddress => (400, "UpstreamServerImmutable"),
            ChangeError::Refused(_) => (400, "UpstreamConfFormatError"),
        };
        Failure::new(status, code, error.to_string())
    }
}
