//! Which loads each tool can send.

use std::time::Duration;

use super::{Load, Tool};

/// httperf waits with select(2), which knows no more.
const HTTPERF_DESCRIPTORS_MAX: u32 = 1024;

impl Tool {
    /// What it is called, as a command.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Balanza => "balanza",
            Tool::Ab => "ab",
            Tool::Siege => "siege",
            Tool::Httperf => "httperf",
            Tool::Wrk => "wrk",
            Tool::Locust => "locust",
        }
    }

    /// Whether it can send from so many addresses that are chosen for it.
    ///
    /// Errors: it cannot, and which tool can.
    pub fn check_sources(self, wanted: usize) -> Result<(), String> {
        let able = match self {
            Tool::Balanza | Tool::Locust => usize::MAX,
            Tool::Ab => 1,
            Tool::Siege | Tool::Httperf | Tool::Wrk => 0,
        };
        if wanted <= able {
            return Ok(());
        }
        let others = if able == 1 || wanted > 1 { "balanza or locust" } else { "balanza, ab or locust" };
        Err(format!("{} cannot choose the address that it sends from; use tool {others} for that", self.name()))
    }
}

impl Load {
    /// Whether its tool can send it.
    ///
    /// Errors: what it cannot do, and which tool can. The lab's own generator can do it all.
    pub fn check_tool(&self) -> Result<(), String> {
        let tool = self.tool;
        if tool == Tool::Balanza {
            return Ok(());
        }
        let open = tool == Tool::Httperf;
        let is = |tools: &[Tool]| tools.contains(&tool);
        let whole = |time: Duration| time.subsec_nanos() == 0 && !time.is_zero();
        let too_few = self.users.zip(self.requests).is_some_and(|(users, requests)| u64::from(users) > requests);
        let limits = [
            (self.log.is_some(), "sends no log", "balanza"),
            (self.rate.is_some() && !open, "has users and no rate", "balanza or httperf"),
            (self.users.is_some() && open, "has a rate and no users", "balanza, ab, siege, wrk or locust"),
            (
                !self.think.is_zero() && is(&[Tool::Ab, Tool::Httperf]),
                "does not think",
                "balanza, siege, wrk or locust",
            ),
            (!self.ramp.is_zero() && tool != Tool::Locust, "starts all users at once", "balanza or locust"),
            (!self.warmup.is_zero(), "measures from the beginning and has no warmup", "balanza"),
            (
                self.requests.is_some() && is(&[Tool::Wrk, Tool::Locust]),
                "ends by its duration only",
                "balanza, ab or siege",
            ),
            (!self.rtt.is_zero() && tool != Tool::Locust, "adds no rtt", "balanza or locust"),
            (self.sources > 1 && tool != Tool::Locust, "sends from one address", "balanza or locust"),
            (self.pages > 1 && is(&[Tool::Ab, Tool::Httperf]), "asks for one page", "balanza, siege, wrk or locust"),
            (self.keep_alive && open, "opens a connection for each request (keep_alive = false)", "balanza"),
        ];
        for (cannot, what, which) in limits {
            if cannot {
                return Err(format!("{} {what}; use tool {which} for that", tool.name()));
            }
        }
        if !whole(self.timeout.0) && is(&[Tool::Ab, Tool::Siege, Tool::Wrk]) {
            return Err(format!("{} counts its timeout in whole seconds, from 1s", tool.name()));
        }
        if too_few && is(&[Tool::Ab, Tool::Siege]) {
            return Err(format!("{} needs at least as many requests as users", tool.name()));
        }
        if open && self.connections_max.is_some_and(|max| max > HTTPERF_DESCRIPTORS_MAX) {
            return Err(format!(
                "httperf has at most {} connections; use tool balanza for more",
                HTTPERF_DESCRIPTORS_MAX
            ));
        }
        Ok(())
    }
}
