//! Rows S: the state of the server.
