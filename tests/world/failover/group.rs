//! A primary with replicas and Sentinels in a scene.

use std::ops::Deref;

use super::WATCHDOG;
use crate::prelude::*;
use crate::support::sentinel::MASTER;
use crate::support::simulated;

pub(super) struct Group<'s> {
    scene: &'s Scene,
    servers: simulated::Group,
}

impl Deref for Group<'_> {
    type Target = simulated::Group;

    fn deref(&self) -> &simulated::Group {
        &self.servers
    }
}

impl<'s> Group<'s> {
    pub(super) fn new(scene: &'s Scene) -> Self {
        scene.network.set_distance(Distance { each_way: ms(1), ..Distance::default() });
        Self { scene, servers: simulated::Group::new(&scene.network, scene.server, 0) }
    }

    pub(super) fn builder(&self) -> LockClientBuilder {
        self.builder_of(&self.sentinels)
    }

    pub(super) fn builder_of(&self, sentinels: &[ServerNumber]) -> LockClientBuilder {
        LockClient::builder().sentinel(MASTER, self.urls(sentinels))
    }

    pub(super) async fn client(&self, options: LockClientBuilder) -> (Machine, LockClient) {
        let machine = self.scene.machine(Distance { each_way: ms(1), ..Distance::default() });
        let client = machine.run(options.connect()).await.expect("connecting");
        (machine, client)
    }

    pub(super) async fn connect(&self, options: LockClientBuilder) -> LockClient {
        self.client(options).await.1
    }

    /// Nobody holds anything at the primary, and no key there is without an end but tokens.
    pub(super) fn is_empty(&self) {
        let is_replica =
            |server: &ServerNumber| self.scene.network.at(*server, |server, _| server.is_replica());
        let primary = self.servers.servers[1..].iter().find(|server| !is_replica(server));
        let primary = *primary.unwrap_or(&self.servers.servers[0]);
        let keys: Vec<String> = self.scene.ask_at(primary, &["KEYS", "*"]);
        assert!(keys.iter().all(|key| key.starts_with("redisson_lock_token:")), "{keys:?}");
    }
}

/// One client of a group, of which each write is at the replicas at once.
pub(super) fn failed_over(play_it: impl AsyncFnOnce(&Group<'_>, LockClient)) {
    play(0, async |scene| {
        let group = Group::new(scene);
        let options = group.builder().watchdog_timeout(WATCHDOG);
        let (machine, client) = group.client(options).await;
        machine.run(play_it(&group, client)).await;
    });
}
