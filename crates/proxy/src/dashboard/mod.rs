//! `dashboard`: a page for browsers that shows what runs. It asks the API and nothing else.
//!
//! The page, its style and its script are answers of one location, told apart by the query: so the location may have any path.

use std::borrow::Cow;

use balanza_message::Method;

use crate::exchange::Exchange;
use crate::html;
use crate::response::{self, Local};
use crate::step::Step;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// The parts have one scope; the last one starts the page.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("tools.js"),
    include_str!("source.js"),
    include_str!("reasons.js"),
    include_str!("tables.js"),
    include_str!("shadows.js"),
    include_str!("experiments.js"),
    include_str!("upstreams.js"),
    include_str!("details.js"),
    include_str!("zones.js"),
    include_str!("main.js"),
);

/// In the page, what stands for the path of the API.
const API: &str = "{{api}}";

/// Nothing comes from elsewhere, no text becomes markup or code, and no other page shows this one.
const POLICY: &[u8] = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Answers with the page or a part of it.
pub async fn serve(x: &mut Exchange, api: &str) -> Step {
    if !matches!(x.request.method, Method::Get | Method::Head) {
        return Step::Error(405);
    }
    let (content_type, text) = part(&x.route.args, api);
    let fields: [(&[u8], &[u8]); 3] = [
        (b"X-Content-Type-Options", b"nosniff"),
        (b"Referrer-Policy", b"no-referrer"),
        // A new binary may bring a new page.
        (b"Cache-Control", b"no-cache"),
    ];
    let field: (&[u8], &[u8]) = (b"Content-Security-Policy", POLICY);
    let local = Local { status: 200, content_type, body: text.as_bytes(), field: Some(field) };
    match response::send_with(x, local, &fields).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

/// The media type and the text of what a query asks for.
fn part(args: &[u8], api: &str) -> (&'static [u8], Cow<'static, str>) {
    match args {
        b"style" => (b"text/css; charset=utf-8", STYLE.into()),
        b"script" => (b"text/javascript; charset=utf-8", SCRIPT.into()),
        _ => (b"text/html; charset=utf-8", PAGE.replace(API, &escaped(api)).into()),
    }
}

/// A text as the value of an attribute.
fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    html::escape(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_path_as_text() {
        let (_, page) = part(b"", "/a\"><script>");
        assert!(page.contains("content=\"/a&quot;&gt;&lt;script&gt;\"") && !page.contains(API));
        assert_eq!(part(b"view=x", "/a\"><script>").1, page);
    }

    #[test]
    fn no_text_becomes_markup() {
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "://"] {
            let elsewhere = SCRIPT.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains(way), "{way}");
        }
        assert!(!PAGE.contains("style=") && !PAGE.contains("onclick") && !STYLE.contains("url("));
    }

    #[test]
    fn everything_together_is_small() {
        assert!(PAGE.len() + STYLE.len() + SCRIPT.len() < 100_000);
    }
}
