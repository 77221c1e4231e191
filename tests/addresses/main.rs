//! Where Redis is and who one is there: urls and sockets, databases, users and what they need to be
//! allowed. And that a password, wherever it was given, is told to nobody but the server.

#[path = "../support/mod.rs"]
mod support;

mod rights;
mod secrets;
mod urls;
