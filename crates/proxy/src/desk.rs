//! Where requests leave questions about all workers. One thread answers them, so that no worker waits or takes a lock.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// How many questions wait at most: clients that ask often must not fill the memory.
const MOST_WAITING: usize = 64;

/// What a request wants to know or to change.
#[derive(Debug, Default, Clone)]
pub struct Ask {
    /// The numbers in Prometheus' format are wanted, and none of what follows matters.
    pub metrics: bool,
    /// It may change something.
    pub write: bool,
    /// The method.
    pub method: String,
    /// The path behind the location's prefix, decoded.
    pub path: String,
    /// What follows "?".
    pub args: String,
    /// The body.
    pub body: Vec<u8>,
    /// `$request_id`.
    pub request_id: String,
    /// The address that the client connected to.
    pub address: String,
    /// The location's prefix as it stands in addresses, without a slash at the end.
    pub base: String,
}

impl Ask {
    /// The value of an argument of the query.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let arguments = self.args.split('&').filter_map(|argument| argument.split_once('='));
        arguments.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// The media type; none without content.
    pub content_type: &'static str,
    /// The content.
    pub body: Vec<u8>,
    /// Other fields.
    pub fields: Vec<(&'static str, String)>,
}

/// A question that waits.
pub struct Question {
    /// What is asked.
    pub ask: Ask,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
}

/// Takes questions.
#[derive(Default)]
pub struct Desk(Mutex<Option<SyncSender<Question>>>);

impl Desk {
    /// Opens it: what takes the questions out. None if it is open already.
    pub fn open(&self) -> Option<Receiver<Question>> {
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if questions.is_some() {
            return None;
        }
        let (sender, receiver) = sync_channel(MOST_WAITING);
        *questions = Some(sender);
        Some(receiver)
    }

    /// Waits for the answer; none if too many questions wait.
    pub async fn ask(&self, ask: Ask) -> Option<Answer> {
        let questions = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (answer, answered) = oneshot::channel();
        questions.try_send(Question { ask, answer }).ok()?;
        answered.await.ok()
    }
}
