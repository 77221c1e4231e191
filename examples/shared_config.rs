//! A configuration that many processes read and one refreshes, with a read-write lock.
//!
//! The configuration has several parts, so that it takes several requests to read or to write it. Without a lock a
//! reader finds the parts of two versions. With it any number of readers read at a time, and the one that refreshes is
//! alone. It has its turn in the order of coming, however many read.
//!
//! ```text
//! cargo run --example shared_config
//!
//!                  refreshes   reads    torn     longest refresh in ms
//! without a lock          40    6632     337                        44
//! with a lock             40    9661       0                        37
//! ```

#[path = "support/mod.rs"]
mod support;
#[allow(dead_code, reason = "this example needs a part of it")]
#[path = "support/workers.rs"]
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use redis::AsyncTypedCommands;
use redis::aio::MultiplexedConnection;
use redlatch::{LockClient, ReadWriteLock};
use support::{Result, Server, unique};
use tokio::time::{sleep, timeout};
use workers::{Workers, orders, say};

const PARTS: [&str; 4] = ["database", "queue", "limits", "features"];

/// Processes that read, with so many tasks each.
const READERS: usize = 3;
const TASKS: usize = 8;

const REFRESHES: u64 = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// Far longer than the example takes.
const PATIENCE: Duration = Duration::from_secs(60);

const WAYS: [&str; 2] = ["without a lock", "with a lock"];

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [name, way, role] = &arguments[..] {
        let config = Config::new(name, way == WAYS[1]).await?;
        return if role == "reads" {
            read_all_the_time(config).await
        } else {
            refresh(config).await
        };
    }
    let server = Server::from_env_or_private()?;
    println!(
        "{:16}{:>10}{:>8}{:>8}{:>26}",
        "", "refreshes", "reads", "torn", "longest refresh in ms"
    );
    for way in WAYS {
        let name = unique("config");
        let result = timeout(PATIENCE, run(server.url(), &name, way)).await;
        let mut redis =
            redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        redis.del(PARTS.map(|part| key(&name, part)).to_vec()).await?;
        assert!(result?? == 0 || way == WAYS[0], "a lock has failed");
    }
    Ok(())
}

fn key(name: &str, part: &str) -> String {
    format!("{name}:{part}")
}

/// Prints a row of the table. Returns how many readers found the parts of two versions.
async fn run(url: &str, name: &str, way: &str) -> Result<u64> {
    let process = |role: &str| vec![name.to_owned(), way.to_owned(), role.to_owned()];
    let mut roles = vec![process("reads"); READERS];
    roles.push(process("refreshes"));
    let mut workers = Workers::start(url, &roles)?;
    let (_, longest) = workers.next_line().await.ok_or("the one that refreshes has gone")?;
    let (mut reads, mut torn) = (0, 0);
    for reader in 0..READERS {
        workers.tell(reader, "stop").await?;
        let (_, line) = workers.next_line().await.ok_or("a reader has gone")?;
        let (read, of_two) = line.split_once(' ').ok_or("no figures")?;
        reads += read.parse::<u64>()?;
        torn += of_two.parse::<u64>()?;
    }
    workers.close().await;
    println!("{way:16}{REFRESHES:>10}{reads:>8}{torn:>8}{longest:>26}");
    Ok(torn)
}

/// The configuration, as one process knows it.
struct Config {
    redis: MultiplexedConnection,
    client: LockClient,
    name: String,
    with_lock: bool,
}

impl Config {
    async fn new(name: &str, with_lock: bool) -> Result<Self> {
        let url = std::env::var("REDIS_URL")?;
        let redis = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
        Ok(Self {
            redis,
            client: LockClient::connect(url).await?,
            name: name.to_owned(),
            with_lock,
        })
    }

    fn lock(&self) -> ReadWriteLock {
        self.client.read_write_lock(&self.name)
    }

    /// The versions of all parts, which are read one after the other.
    async fn versions(&self) -> Result<Vec<Option<String>>> {
        let (mut redis, mut versions) = (self.redis.clone(), Vec::new());
        for part in PARTS {
            versions.push(redis.get(key(&self.name, part)).await?);
        }
        Ok(versions)
    }

    /// Whether all parts are of one version.
    async fn read(&self) -> Result<bool> {
        let versions = if self.with_lock {
            let guard = self.lock().read().await?;
            let versions = guard.run_until_lost(self.versions()).await??;
            guard.unlock().await?;
            versions
        } else {
            self.versions().await?
        };
        Ok(versions.iter().all(|version| *version == versions[0]))
    }

    async fn set(&self, version: u64) -> Result<()> {
        let mut redis = self.redis.clone();
        for part in PARTS {
            redis.set(key(&self.name, part), version).await?;
        }
        Ok(())
    }

    async fn write(&self, version: u64) -> Result<()> {
        if !self.with_lock {
            return self.set(version).await;
        }
        let guard = self.lock().write().await?;
        guard.run_until_lost(self.set(version)).await??;
        Ok(guard.unlock().await?)
    }
}

/// The process that refreshes: it says how long the slowest refresh took.
async fn refresh(config: Config) -> Result<()> {
    let mut longest = Duration::ZERO;
    for version in 1..=REFRESHES {
        sleep(PAUSE).await;
        let begun = Instant::now();
        config.write(version).await?;
        longest = longest.max(begun.elapsed());
    }
    say(&longest.as_millis().to_string())
}

/// A process that reads: it says how often, and how many times it found parts of two versions.
async fn read_all_the_time(config: Config) -> Result<()> {
    let (stop, mut orders) = (Arc::new(AtomicBool::new(false)), orders());
    let told = stop.clone();
    tokio::spawn(async move {
        orders.recv().await;
        told.store(true, Ordering::Relaxed);
    });
    let reads = async |_| {
        let (mut reads, mut torn) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            torn += u64::from(!config.read().await?);
            reads += 1;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((reads, torn))
    };
    let all: Vec<(u64, u64)> = try_join_all((0..TASKS).map(reads)).await?;
    let sum = all.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    say(&format!("{} {}", sum.0, sum.1))
}
