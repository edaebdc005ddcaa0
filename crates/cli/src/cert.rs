//! `balanza cert`: certificates for trying things out.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use balanza_lab::certificate::SelfSigned;
use clap::Args;

/// Make a certificate that nobody has signed, for trying things out.
#[derive(Args)]
pub struct Options {
    /// Make a self-signed certificate for these hosts or addresses, the first of which names the files.
    #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
    self_signed: Vec<String>,
    /// Where the files go: NAME.pem and NAME.key.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    output: PathBuf,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

/// Writes the two files and says how to use them.
///
/// # Errors
/// A name that no certificate can have, or files that cannot be written.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let first = &options.self_signed[0];
    if first.contains('/') || first.starts_with('.') {
        bail!("\"{first}\" cannot name a file");
    }
    let made = SelfSigned::new(&options.self_signed)?;
    let (pem, secret) = (options.output.join(format!("{first}.pem")), options.output.join(format!("{first}.key")));
    write(&secret, &made.key, 0o600, options.force)?;
    write(&pem, &made.certificate, 0o644, options.force)?;
    println!("ssl_certificate     {};", absolute(&pem).display());
    println!("ssl_certificate_key {};", absolute(&secret).display());
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32, force: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode).truncate(true);
    let opened = if force { options.create(true).open(path) } else { options.create_new(true).open(path) };
    let hint = if path.exists() && !force { "; --force replaces it" } else { "" };
    let mut file = opened.with_context(|| format!("cannot write {}{hint}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
