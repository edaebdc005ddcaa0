//! The algorithms, one file each. A new one is a file here and a line in [`crate::registry::entries`].

pub(crate) mod bounded_hash;
pub(crate) mod choices_with_memory;
pub(crate) mod combined;
pub(crate) mod external;
pub(crate) mod first;
pub(crate) mod hash;
mod hash_consistent;
pub(crate) mod hashed_ip;
pub(crate) mod ip_hash;
pub(crate) mod join_idle_queue;
pub(crate) mod last_server;
pub(crate) mod least_bandwidth;
pub(crate) mod least_conn;
pub(crate) mod least_load;
pub(crate) mod least_time;
pub(crate) mod locality_least_conn;
pub(crate) mod maglev;
pub(crate) mod never_queue;
pub(crate) mod peak_ewma;
pub(crate) mod prequal;
pub(crate) mod priority;
pub(crate) mod random;
pub(crate) mod rendezvous;
pub(crate) mod round_robin;
pub(crate) mod shortest_expected_delay;
pub(crate) mod two_choices;
pub(crate) mod weighted_load;

/// Draws after which algorithms that hash or draw leave the choice to the round robin, as in NGINX.
const DRAWS: u32 = 20;
