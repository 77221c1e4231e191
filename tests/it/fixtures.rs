//! That what the other tests stand on does what they think it does: the network and the proxy.

mod network;
mod proxy;
