//! That what the other tests stand on does what they think it does: the network, the proxy, and groups of
//! servers.

mod network;
mod proxy;
mod topologies;
