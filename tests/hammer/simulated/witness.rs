//! Looks at the servers all the time, from outside of the world.

use redlatch::simulation::{Network, ServerNumber};
use tokio::time::sleep;

use super::servers::Servers;
use crate::prelude::*;
use crate::witness::{is_grant, owner};

pub(crate) struct Witness<'a> {
    network: Network,
    servers: &'a Servers,
    /// With what stands around the owner in the key of a reader's lease.
    names: Vec<(String, (String, &'static str))>,
    rng: Rng,
}

impl<'a> Witness<'a> {
    pub(crate) fn new(network: &Network, servers: &'a Servers, names: Names, seed: u64) -> Self {
        let names = names.all().map(|key| (names.name(key), names.marker(key))).collect();
        Self { network: network.clone(), servers, names, rng: Rng::with_seed(seed) }
    }

    /// All locks at one moment.
    pub(crate) fn look(&self) -> Vec<Sample> {
        self.servers.primaries().into_iter().flat_map(|server| self.look_at(server)).collect()
    }

    fn look_at(&self, server: ServerNumber) -> Vec<Sample> {
        let t = now();
        self.network.at(server, |server, wall| {
            let mut samples = Vec::new();
            let keys = server.keys(wall, 0);
            for (name, left) in &keys {
                let mut names = self.names.iter();
                let Some(key) = names.position(|(one, _)| one.as_bytes() == *name) else {
                    continue;
                };
                let Some(hash) = server.hash(0, name) else { continue };
                let reads = hash.get(&b"mode"[..]).is_some_and(|mode| mode == b"read");
                for (id, count) in hash.iter().filter(|(field, _)| *field != b"mode") {
                    let [id, count] = [id, count].map(|bytes| String::from_utf8_lossy(bytes));
                    let mut left = Some(*left);
                    if reads {
                        // A reader whose marker has ended has nothing any more.
                        let (before, behind) = &self.names[key].1;
                        let marker = format!("{before}{id}{behind}").into_bytes();
                        left = keys.iter().find(|(one, _)| *one == marker).map(|(_, left)| *left);
                    }
                    let Some(left) = left else { continue };
                    let pttl = left.unwrap_or(-1);
                    if !is_grant(&id, pttl) {
                        let (owner, count) = (owner(&id), count.parse().unwrap_or(0));
                        let key = u16::try_from(key).expect("a few names");
                        samples.push(Sample { t0: t, t1: t, key, owner, count, pttl });
                    }
                }
            }
            samples
        })
    }

    /// Looks for ever.
    pub(crate) async fn watch(&mut self, samples: &mut Vec<Sample>) {
        loop {
            samples.extend(self.look());
            sleep(Duration::from_millis(self.rng.u64(5..40))).await;
        }
    }
}
