//! Where Redis is and who one is there: urls and sockets, databases, users and what they need to be
//! allowed. (That a password, wherever it was given, is told to nobody but the server is in
//! `tests/secrets.rs`.)

mod rights;
mod urls;
