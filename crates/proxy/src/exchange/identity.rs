//! What is known of a client by the cookie of `userid`.

/// An identifier.
pub type Id = [u8; 16];

/// The identifier of a request's client.
#[derive(Default, Clone)]
pub struct UserIdentity {
    /// The cookie that the client has sent, and the identifier in it.
    pub got: Option<(Vec<u8>, Option<Id>)>,
    /// The client's cookie has been looked for.
    pub looked: bool,
    /// The identifier that the client is to have; none if it keeps its own.
    pub set: Option<Id>,
    /// That has been decided.
    pub decided: bool,
}
