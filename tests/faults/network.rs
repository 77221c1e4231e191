//! Rows N: the network, and answers that do not say what happened.
