//! A collector: the way to it, and a second attempt where a connection that was kept is over.

use balanza_config::model::{Exporter, ExporterProtocol};

use super::failure::{Failure, Then};
use super::grpc::Grpc;
use super::http::Http;

/// A collector.
pub struct Collector<'a> {
    conf: &'a Exporter,
    way: Way<'a>,
}

enum Way<'a> {
    Grpc(Grpc<'a>),
    Http(Http<'a>),
}

impl Collector<'_> {
    /// One that is not connected to yet.
    pub fn new(conf: &Exporter) -> Collector<'_> {
        let way = match &conf.protocol {
            ExporterProtocol::Grpc => Way::Grpc(Grpc::new(conf)),
            ExporterProtocol::Http { path } => Way::Http(Http::new(conf, path)),
        };
        Collector { conf, way }
    }

    /// Closes the connection.
    pub fn hang_up(&mut self) {
        *self = Collector::new(self.conf);
    }

    /// Sends a message; returns how many spans were rejected, and why.
    ///
    /// # Errors
    /// The collector does not have it.
    pub async fn send(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        let result = self.attempt(message).await;
        match result {
            Err(Failure { then: Then::Reconnect, .. }) => {
                self.hang_up();
                self.attempt(message).await
            }
            result => result,
        }
    }

    async fn attempt(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        match &mut self.way {
            Way::Grpc(grpc) => grpc.send(message).await,
            Way::Http(http) => http.send(message).await,
        }
    }
}
