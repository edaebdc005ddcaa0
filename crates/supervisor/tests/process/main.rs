//! The processes, with a data plane that only says who it is (examples/fake.rs).

mod life;
mod reload;
mod running;
mod takeover;
mod upgrade;
