//! `balanza api` and `balanza top`: a running balancer, asked by its API.

pub mod client;
pub mod top;

use clap::Args;
use serde_json::Value;

use self::client::Address;
use crate::output;

/// Where the API is unless the command line says otherwise.
pub const ADDRESS: &str = "http://127.0.0.1:8080/api";

/// Ask the API of a running balancer, for scripts.
///
/// For example, with "location /api { api write=on; }" in the configuration:
///
///     balanza api GET /9/http/upstreams
///     balanza api POST /9/http/upstreams/app/servers '{"server":"10.0.0.7:80"}'
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// GET, POST, PATCH or DELETE.
    method: String,
    /// The path behind the API's own, such as /9/http/upstreams.
    path: String,
    /// The JSON that is sent.
    body: Option<String>,
    /// Where the API is.
    #[arg(long, value_name = "URL", default_value = ADDRESS)]
    url: Address,
}

/// Prints the answer, indented.
///
/// # Errors
/// The API cannot be reached or refuses the request.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let method = options.method.to_ascii_uppercase();
    let answer = options.url.ask(&method, &options.path, options.body.as_deref())?;
    if answer == Value::Null { Ok(()) } else { output::print(&format!("{answer:#}\n")) }
}
