//! Those that redlatch is measured against, each as its own documentation shows it.

mod async_redis_lock;
mod distkit;
mod family;
mod redisson;
mod rlock;
mod rslock;

pub(crate) use self::async_redis_lock::AsyncRedisLock;
pub(crate) use self::distkit::Distkit;
pub(crate) use self::family::{
    DistkitRead, DistkitReadMostly, RlockRead, RlockReadMostly, RlockSeveral,
};
pub(crate) use self::redisson::redisson;
pub(crate) use self::rlock::Rlock;
pub(crate) use self::rslock::Rslock;
