//! What is asked of a tool: a seat for each task, and at the seat a turn.

use std::time::Duration;

use crate::servers::Sites;
use crate::support::Result;

/// One kind of lock, as one process has it.
pub(crate) trait Tool: Sized + Send + Sync + 'static {
    type Seat: Seat;

    fn connect(sites: &Sites) -> impl Future<Output = Result<Self>> + Send;

    /// An owner of its own, who wants the lock of that name and the row that it protects.
    fn seat(&self, name: &str) -> impl Future<Output = Result<Self::Seat>> + Send;
}

/// What became of one purchase.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sale {
    Sold,
    SoldOut,
    /// Somebody else was quicker: try again.
    Refused,
}

/// The row that a lock protects.
pub(crate) trait Store: Send {
    /// Makes the row, before anything is measured.
    fn stock(&mut self, pieces: i64) -> impl Future<Output = Result<()>> + Send;

    fn read(&mut self) -> impl Future<Output = Result<i64>> + Send;

    /// False if the store refuses it.
    fn write(&mut self, pieces: i64) -> impl Future<Output = Result<bool>> + Send;
}

/// One task, with whatever it needs of its own: an owner, a session, a connection.
pub(crate) trait Seat: Send + 'static {
    type Store: Store;

    /// Waits its turn.
    fn lock(&mut self) -> impl Future<Output = Result<()>> + Send;

    fn unlock(&mut self) -> impl Future<Output = Result<()>> + Send;

    fn store(&mut self) -> &mut Self::Store;

    fn read(&mut self) -> impl Future<Output = Result<i64>> + Send {
        async move { self.store().read().await }
    }

    /// False if it is refused.
    fn write(&mut self, pieces: i64) -> impl Future<Output = Result<bool>> + Send {
        async move { self.store().write(pieces).await }
    }

    /// Read, check, write. The write is one less than what was read, never `pieces - 1` in the
    /// store: a lock that lets two in sells too much.
    fn buy(&mut self) -> impl Future<Output = Result<Sale>> + Send {
        async move {
            self.lock().await?;
            let pieces = self.read().await?;
            let sale = match pieces {
                ..=0 => Sale::SoldOut,
                _ if self.write(pieces - 1).await? => Sale::Sold,
                _ => Sale::Refused,
            };
            self.unlock().await?;
            Ok(sale)
        }
    }

    /// One turn of that length. False if it was in vain.
    fn turn(&mut self, length: Duration) -> impl Future<Output = Result<bool>> + Send {
        async move {
            self.lock().await?;
            work(length).await;
            self.unlock().await?;
            Ok(true)
        }
    }
}

/// A timer of the runtime is a millisecond coarse, and so is no measure for a millisecond.
pub(crate) async fn work(length: Duration) {
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(length)).await;
}
