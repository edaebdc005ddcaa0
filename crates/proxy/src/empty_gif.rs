//! `empty_gif`: a picture of one transparent point.

use balanza_config::model::Location;
use balanza_message::Method;

use crate::conditions::{self, Verdict};
use crate::exchange::Exchange;
use crate::reading;
use crate::response::{self, Local};
use crate::step::Step;

const PICTURE: [u8; 43] =
    *b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";

/// When it has last changed, in NGINX's answers.
const CHANGED: (u64, &[u8]) = (23_349_600, b"Mon, 28 Sep 1970 06:00:00 GMT");

/// Answers with the picture.
pub async fn serve(x: &mut Exchange, location: &Location) -> Step {
    if !matches!(x.method(), Method::Get | Method::Head) {
        return Step::Error(405);
    }
    if let Err(step) = reading::leave_body(x).await {
        return step;
    }
    let plain = x.route.error_status().is_none();
    let verdict = if plain { conditions::judge(x, location, CHANGED.0, b"") } else { Verdict::Send };
    let field = Some((&b"Last-Modified"[..], CHANGED.1)).filter(|_| plain);
    let local = match verdict {
        Verdict::PreconditionFailed => return Step::Error(412),
        Verdict::NotModified => Local { status: 304, content_type: b"", body: b"", field },
        Verdict::Send => Local { status: 200, content_type: b"image/gif", body: &PICTURE, field },
    };
    match response::send(x, local).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}
