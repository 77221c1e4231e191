//! A re-entrant lock over Redis.
