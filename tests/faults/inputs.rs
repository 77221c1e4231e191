//! Rows I: inputs and scale.
