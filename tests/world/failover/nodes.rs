//! A cluster in a scene.

use std::ops::Deref;

use crate::prelude::*;
use crate::support::simulated;

pub(crate) struct Cluster<'s> {
    scene: &'s Scene,
    nodes: simulated::Cluster,
}

impl Deref for Cluster<'_> {
    type Target = simulated::Cluster;

    fn deref(&self) -> &simulated::Cluster {
        &self.nodes
    }
}

impl<'s> Cluster<'s> {
    pub(crate) fn new(scene: &'s Scene) -> Self {
        scene.network.set_distance(Distance { each_way: ms(1), ..Distance::default() });
        Self { scene, nodes: simulated::Cluster::new(&scene.network, 0) }
    }

    pub(crate) fn builder(&self) -> LockClientBuilder {
        LockClient::builder().cluster(self.urls())
    }

    pub(crate) async fn client(&self, options: LockClientBuilder) -> (Machine, LockClient) {
        self.client_away(ms(2), options).await
    }

    /// A client at that round trip from each of the nodes.
    pub(crate) async fn client_away(
        &self,
        away: Duration,
        options: LockClientBuilder,
    ) -> (Machine, LockClient) {
        let machine = self.scene.machine(round_trip(away));
        for node in &self.nodes.nodes {
            self.scene.network.set_distance_of(&machine, *node, round_trip(away));
        }
        let client = machine.run(options.connect()).await.expect("connecting");
        (machine, client)
    }
}
