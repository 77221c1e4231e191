//! redlatch in a program that is watched.

use std::time::Duration;

use redlatch::{Lock, LockClient};

use crate::harness::Peer;
use crate::support::Result;

/// Once a second it reads its own figures. In a build with the feature `metrics` it has a recorder too, and renders
/// what that has.
pub(crate) struct Watched(LockClient);

impl Peer for Watched {
    const NAME: &'static str = "redlatch-watched";

    type Handle = Lock;

    async fn connect(url: &str) -> Result<Self> {
        let exported = exporter::install()?;
        let client = LockClient::connect(url).await?;
        let watched = client.clone();
        tokio::spawn(async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                std::hint::black_box(watched.stats());
                std::hint::black_box(exported());
            }
        });
        Ok(Self(client))
    }

    fn handle(&self, name: &str) -> Result<Lock> {
        Ok(self.0.lock(name))
    }
}

#[cfg(feature = "metrics")]
mod exporter {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::support::Result;

    const BUCKETS: [f64; 11] = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

    /// What the recorder has, as text.
    pub(super) fn install() -> Result<impl Fn() -> String> {
        let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
        Ok(move || recorder.render())
    }
}

#[cfg(not(feature = "metrics"))]
mod exporter {
    use crate::support::Result;

    pub(super) fn install() -> Result<impl Fn() -> String> {
        Ok(String::new)
    }
}
