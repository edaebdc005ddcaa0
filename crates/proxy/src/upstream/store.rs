//! `proxy_store`: keeps the bodies of responses as files.

use std::fs::{FileTimes, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use balanza_config::log_text::Escaped;
use balanza_config::model::{BodyFiles, Level, Location, ProxySettings, ProxyStore};
use balanza_message::Header;
use balanza_net::shortage::describe;

use crate::exchange::Exchange;
use crate::paths::as_path;
use crate::response::head;
use crate::temporary::{self, TempFile};
use crate::variables;

/// A response that is being kept. It is written to a temporary file, which gets its name when it is complete.
pub struct Storing {
    temporary: TempFile,
    error: Option<io::Error>,
}

impl Storing {
    /// Begins to keep the response at hand, if it is one that is kept: a whole one that is buffered. Without a temporary
    /// file it is not kept.
    pub fn begin(x: &Exchange, proxy: &ProxySettings, buffering: bool) -> Option<Box<Storing>> {
        if proxy.store.is_none() || !buffering || x.upstream.response.status != 200 || head::is_head(x) {
            return None;
        }
        match temporary::create(proxy.temp_path.as_deref(), BodyFiles::Clean) {
            Ok(temporary) => Some(Box::new(Storing { temporary, error: None })),
            Err(error) => {
                let error = describe(&error);
                x.report(Level::Crit, format_args!("temporary file failed {error} while storing a response"));
                None
            }
        }
    }

    /// Adds what has come of the body.
    pub fn add(&mut self, payload: &[u8]) {
        if self.error.is_none() {
            self.error = self.temporary.file.write_all(payload).err();
        }
    }

    /// Gives the complete file its name, its mode and the time of Last-Modified.
    pub fn finish(self, x: &mut Exchange, location: &Location) {
        let proxy: &ProxySettings = &location.settings.proxy;
        let mut path = Vec::new();
        let named = match &proxy.store {
            Some(ProxyStore::Path(template)) => variables::render(template, x, &mut path),
            _ => variables::map_path(x, &mut path),
        };
        // Why a value is undecided has been logged.
        if named.is_err() {
            return;
        }
        let mode = proxy.store_access;
        // A directory can be entered by those who can read the files in it.
        let directories = mode | (mode & 0o444) >> 2;
        let modified = x.upstream.response_field(Header::LastModified);
        let modified = modified.and_then(|date| httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok());
        let temporary = self.temporary.path.clone();
        let stored = self.error.map_or(Ok(()), Err).and_then(|()| {
            let file = &self.temporary.file;
            file.set_permissions(Permissions::from_mode(mode))?;
            if let Some(time) = modified {
                file.set_times(FileTimes::new().set_modified(time))?;
            }
            self.temporary.persist(as_path(&path), directories)
        });
        if let Err(error) = stored {
            let (from, to, error) = (temporary.display(), Escaped(&path), describe(&error));
            x.report(Level::Crit, format_args!("rename() \"{from}\" to \"{to}\" failed {error}"));
        }
    }
}
