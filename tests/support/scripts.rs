//! The library's scripts of single requests, for whoever has to say them to a server.

pub(crate) const ACQUIRE: &str = include_str!("../../lua/acquire.lua");
pub(crate) const RELEASE: &str = include_str!("../../lua/release.lua");
pub(crate) const RENEW: &str = include_str!("../../lua/renew.lua");
pub(crate) const HAND_OFF: &str = include_str!("../../lua/hand_off.lua");
pub(crate) const EXECUTE: &str = include_str!("../../lua/execute.lua");
