//! Rows C: the client's process, its runtimes and its threads.
