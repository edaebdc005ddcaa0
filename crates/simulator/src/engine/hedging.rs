//! Second attempts for requests that take long.

use balanza_balancing::Outcome;

use super::Engine;
use super::measures::Ending;

impl Engine<'_> {
    /// A request was not answered soon: a second server is asked, if there is one, and the budget allows it.
    #[cold]
    pub(super) fn late(&mut self, id: u32) {
        let request = self.requests.get(id);
        if request.attempt > 0 || request.hedge || !self.balancers.may_retry(self.now, request.dispatcher) {
            return;
        }
        let second = self.requests.double(id);
        if self.send(second) {
            self.measures.counts.retries += 1;
        } else {
            self.requests.part(id, second);
            self.requests.remove(second);
        }
    }

    /// One of the two attempts of a request has ended: true if the other one goes on. Otherwise that is given up, which its server
    /// does not notice.
    pub(super) fn end_double(&mut self, id: u32, other: u32, ending: Ending, outcome: Outcome) -> bool {
        self.requests.part(id, other);
        if outcome != Outcome::Failure {
            let given_up = self.requests.get(other);
            if !given_up.hedge {
                self.balancers.note_time(given_up.dispatcher, self.now - given_up.sent);
            }
            self.balancers.complete(self.now, given_up, Outcome::Neutral, 0);
            self.requests.get_mut(other).orphan = true;
            self.requests.get_mut(id).hedge = false;
            return false;
        }
        self.requests.get_mut(other).hedge = false;
        match ending {
            Ending::TimedOut => {
                let request = self.requests.get_mut(id);
                (request.orphan, request.hedge) = (true, false);
            }
            _ => self.requests.remove(id),
        }
        true
    }
}
