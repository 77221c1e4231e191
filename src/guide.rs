//! The guide: texts that are too long for the page of one type.
//!
//! - [`promises`]: what the lock promises, what it does not, and which tests check it.
//! - [`deployment`]: one server, Sentinel, cluster, replicas, TLS, the rights of a Redis user, who holds a lock, probes and
//!   logs.
//! - [`operations`]: metrics, three incidents told apart, alerts, a dashboard.
//! - [`recipes`]: a lock in axum, actix-web, tonic, apalis and tokio-cron-scheduler, tokens in PostgreSQL, `SIGTERM`, mocks.
//! - [`migrating`]: from Redisson, rslock and redlock, `SET NX`, PostgreSQL's advisory locks and ShedLock, call by call.
//! - [`redis_client`]: redlatch beside `redis`, deadpool-redis, bb8-redis and fred, and what of your client it can take.
//! - [`faq`]: Redlock and Kleppmann, `kill -9`, restarts, connections, managed services, versions, platforms.
//! - [`choosing`]: which lock when, this one or one of your database, etcd or ZooKeeper, measured.
//!
//! # In the repository
//!
//! These are files there, beside the README: `examples/`, each of them described in `examples/README.md`;
//! `ARCHITECTURE.md`, how it works; `tests/README.md`, how it is tested; `benches/README.md`, how it is measured;
//! `CHANGELOG.md`, `CONTRIBUTING.md` and `SECURITY.md`; and the licenses, `LICENSE-MIT` and `LICENSE-APACHE`.

// Of two definitions of one link Markdown takes the first. These lead to the items of this crate;
// those at the end of each text lead a reader in the repository to the files.

/// [`Lock`]: crate::Lock
/// [`FencedLock`]: crate::FencedLock
/// [`FairLock`]: crate::FairLock
/// [`FencedFairLock`]: crate::FencedFairLock
/// [`ReadWriteLock`]: crate::ReadWriteLock
/// [`FencedReadWriteLock`]: crate::FencedReadWriteLock
/// [`execute`]: crate::LockGuard::execute
/// [`promises`]: crate::promises
/// [`benches/elsewhere/run`]: crate::guide#in-the-repository
/// [`try_lock_now`]: crate::Lock::try_lock_now
/// [`hold_at_least`]: crate::LockGuard::hold_at_least
#[doc = include_str!("guide/charts/elsewhere.md")]
#[doc = include_str!("guide/choosing.md")]
pub mod choosing {}

/// [`connect`]: crate::LockClient::connect
/// [`LockClient`]: crate::LockClient#forking
/// [`client`]: crate::LockClientBuilder::client
/// [`sentinel_credentials`]: crate::LockClientBuilder::sentinel_credentials
/// [`cluster`]: crate::LockClientBuilder::cluster
/// [replicas]: crate::LockClientBuilder::replicas
/// [`name_prefix`]: crate::LockClientBuilder::name_prefix
/// [`execute`]: crate::LockGuard::execute
/// [fencing token]: crate::FencingToken
/// [multi lock]: crate::MultiLock
/// [`ErrorKind`]: crate::ErrorKind
/// [`inspect`]: crate::LockClient::inspect
/// [`label`]: crate::LockClientBuilder::label
/// [`force_unlock`]: crate::Lock::force_unlock
/// [`locks`]: crate::LockClient::locks
/// [`stats`]: crate::LockClient::stats
/// [`health`]: crate::LockClient::health
/// [`shutdown`]: crate::LockClient::shutdown
/// [from Redisson]: crate::guide::migrating#from-redisson
/// [sigterm]: crate::guide::recipes#stop-on-sigterm-without-leaving-a-lock
/// [a test]: crate::guide#in-the-repository
#[doc = include_str!("guide/deployment.md")]
pub mod deployment {}

/// [`FencedLock`]: crate::FencedLock
/// [fencing token]: crate::FencingToken
/// [`replicas`]: crate::LockClientBuilder::replicas
/// [`client`]: crate::LockClientBuilder::client
/// [`cluster`]: crate::LockClientBuilder::cluster
/// [`watchdog_timeout`]: crate::LockClientBuilder::watchdog_timeout
/// [`execute`]: crate::LockGuard::execute
/// [`shutdown`]: crate::LockClient::shutdown
/// [promises]: crate::promises
/// [choosing]: crate::guide::choosing
/// [migrating]: crate::guide::migrating#from-rslock-or-redlock
/// [rights]: crate::guide::deployment#rights-of-the-user
/// [beside]: crate::guide::redis_client
/// [`force_unlock`]: crate::Lock::force_unlock
/// [`outage_limit`]: crate::LockClientBuilder::outage_limit
/// [holds]: crate::guide::deployment#who-holds-it
/// [changelog]: crate::guide#in-the-repository
#[doc = include_str!("guide/faq.md")]
pub mod faq {}

/// [`Lock`]: crate::Lock
/// [`FencedLock`]: crate::FencedLock
/// [`FairLock`]: crate::FairLock
/// [`MultiLock`]: crate::MultiLock
/// [`ReadWriteLock`]: crate::ReadWriteLock
/// [`Lease::Watchdog`]: crate::Lease::Watchdog
/// [`lost`]: crate::LockGuard::lost
/// [`run_until_lost`]: crate::LockGuard::run_until_lost
/// [`hold_at_least`]: crate::LockGuard::hold_at_least
/// [`execute`]: crate::LockGuard::execute
/// [`max_hold`]: crate::LockClientBuilder::max_hold
/// [`max_handoffs`]: crate::LockClientBuilder::max_handoffs
/// [`name_prefix`]: crate::LockClientBuilder::name_prefix
/// [`outage_limit`]: crate::LockClientBuilder::outage_limit
/// [`replicas`]: crate::LockClientBuilder::replicas
/// [`faq`]: crate::guide::faq
/// [choosing]: crate::guide::choosing
/// [redisson]: crate::guide#in-the-repository
#[doc = include_str!("guide/migrating.md")]
pub mod migrating {}

/// [`stats`]: crate::LockClient::stats
/// [`health`]: crate::LockClient::health
/// [label]: crate::LockClientBuilder::label
/// [holds]: crate::guide::deployment#who-holds-it
/// [alerts]: crate::guide::operations#alertsyml
/// [dashboard]: crate::guide#in-the-repository
#[doc = include_str!("guide/operations.md")]
#[doc = concat!("## alerts.yml\n\n```yaml\n", include_str!("guide/operations/alerts.yml"), "```\n")]
pub mod operations {}

/// [`is_lost`]: crate::LockGuard::is_lost
/// [`lost`]: crate::LockGuard::lost
/// [`unlock`]: crate::LockGuard::unlock
/// [`run_until_lost`]: crate::LockGuard::run_until_lost
/// [`execute`]: crate::LockGuard::execute
/// [`connect_lazy`]: crate::LockClientBuilder::connect_lazy
/// [`connect`]: crate::LockClient::connect
/// [`close`]: crate::LockClient::close
/// [`shutdown`]: crate::LockClient::shutdown
/// [clean]: crate::Shutdown::is_clean
/// [`force_unlock`]: crate::Lock::force_unlock
/// [fenced lock]: crate::FencedLock
/// [fair lock]: crate::FairLock
/// [read-write lock]: crate::ReadWriteLock
/// [fenced read-write lock]: crate::FencedReadWriteLock
/// [multi lock]: crate::MultiLock
/// [grace]: crate::LockClientBuilder::fair_grace
/// [token]: crate::FencingToken
/// [`replicas`]: crate::LockClientBuilder::replicas
/// [`Error::outcome`]: crate::Error::outcome
/// [`NotALock`]: crate::ErrorKind::NotALock
/// [`Closed`]: crate::ErrorKind::Closed
#[doc = include_str!("guide/promises.md")]
pub mod promises {}

/// [`LockClient`]: crate::LockClient
/// [`connect_lazy`]: crate::LockClientBuilder::connect_lazy
/// [`try_with`]: crate::Lock::try_with
/// [`with`]: crate::Lock::with
/// [`run_until_lost`]: crate::LockGuard::run_until_lost
/// [`hold_at_least`]: crate::LockGuard::hold_at_least
/// [`shutdown`]: crate::LockClient::shutdown
/// [`Shutdown`]: crate::Shutdown
/// [token]: crate::FencingToken
/// [connections]: crate::guide::faq#how-many-connections-and-why
/// [kill]: crate::guide::faq#what-happens-after-kill--9-and-why-does-it-take-up-to-30-s
/// [tested_service]: crate::guide#in-the-repository
/// [files]: crate::guide#in-the-repository
#[doc = include_str!("guide/recipes.md")]
pub mod recipes {}

/// [`url`]: crate::LockClientBuilder::url
/// [`client`]: crate::LockClientBuilder::client
/// [`cluster`]: crate::LockClientBuilder::cluster
/// [`sentinel`]: crate::LockClientBuilder::sentinel
/// [`execute`]: crate::LockGuard::execute
/// [deployment]: crate::guide::deployment
/// [sentinels]: crate::guide::deployment#sentinel
/// [why]: crate::guide::faq#how-many-connections-and-why
/// [urls]: crate::guide#in-the-repository
/// [tls]: crate::guide#in-the-repository
#[doc = include_str!("guide/redis_client.md")]
pub mod redis_client {}
