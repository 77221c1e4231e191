//! What every contestant written in Rust has to say for itself.

use crate::support::Result;

/// A lock library, connected once a process and shared by all of its tasks.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// What it sends besides what only a client can send; its scripts do not call that.
    const SENDS: &'static [&'static str] = &[];

    type Handle: Handle;

    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// What one task takes one lock with: an owner of its own.
    fn handle(&self, name: &str) -> Result<Self::Handle>;
}

pub(crate) trait Handle: Send + Sync + 'static {
    type Guard: Send;

    /// Waits until the lock is there, however long it takes.
    fn lock(&self) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Returns when Redis has confirmed it.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send;
}
