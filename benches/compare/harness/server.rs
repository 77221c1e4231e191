//! What the server says that it had to do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::crew::Sends;
use crate::support::Result;

/// What only a client can send.
const SENT: &[&str] = &[
    "evalsha",
    "eval",
    "fcall",
    "script|load",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
];

/// What the measuring itself sends.
const OURS: &[&str] = &["info", "pubsub", "pubsub|channels"];

/// Longer than a subscription is kept that nobody needs.
const SETTLED: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct Watch(MultiplexedConnection);

#[derive(Default)]
pub(crate) struct Load {
    /// From outside.
    pub(crate) sent: u64,
    /// Also from within scripts.
    pub(crate) calls: u64,
    pub(crate) cpu_micros: f64,
    by_command: BTreeMap<String, u64>,
}

impl Watch {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(redis::Client::open(url)?.get_multiplexed_async_connection().await?))
    }

    /// Waits until nobody is subscribed any more, at most a while: who was measured last may keep
    /// its subscription for some time, and its end is not to be counted for who is next.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < SETTLED {
            let channels = redis::cmd("PUBSUB").arg("CHANNELS").to_owned();
            let channels: Vec<String> = channels.query_async(&mut self.0).await?;
            if channels.is_empty() {
                break;
            }
            tokio::time::sleep(SETTLED / 100).await;
        }
        Ok(())
    }

    /// Since the server's start.
    pub(crate) async fn load(&mut self) -> Result<Load> {
        let info = redis::cmd("INFO").arg("all").to_owned();
        let info: String = info.query_async(&mut self.0).await?;
        let mut load = Load::default();
        for line in info.lines() {
            if let Some(rest) = line.strip_prefix("cmdstat_") {
                let figures = rest.split_once(":calls=").ok_or("a line of commandstats")?;
                let calls = figures.1.split(',').next().unwrap_or_default().parse()?;
                load.by_command.insert(figures.0.to_owned(), calls);
            }
            let cpu = ["used_cpu_user:", "used_cpu_sys:"];
            if let Some(seconds) = cpu.iter().find_map(|cpu| line.strip_prefix(cpu)) {
                load.cpu_micros += seconds.parse::<f64>()? * 1e6;
            }
        }
        Ok(load)
    }

    /// Since an earlier look, by somebody who also sends what is named.
    pub(crate) async fn since(&mut self, before: &Load, sends: Sends) -> Result<Load> {
        let now = self.load().await?;
        let mut load = Load { cpu_micros: now.cpu_micros - before.cpu_micros, ..Load::default() };
        let mut called = 0;
        for (command, calls) in now.by_command {
            let calls = calls - before.by_command.get(&command).unwrap_or(&0);
            if calls == 0 || OURS.contains(&&*command) {
                continue;
            }
            load.calls += calls;
            if SENT.contains(&&*command) || sends.also.contains(&&*command) {
                load.sent += calls;
            }
            if sends.called_with.contains(&&*command) {
                called += calls;
            }
        }
        load.sent -= called;
        Ok(load)
    }
}
