//! How a guard that reads becomes one that writes, and the other way round.

use crate::acquire::Wait;
use crate::error::{Error, ErrorKind};
use crate::guard::GuardInner;
use crate::kind::ReadWriteKind;

use super::{ReadGuard, WriteGuard};

impl<K: ReadWriteKind> ReadGuard<K> {
    /// Writes from now on, instead of reading, if no other handle reads: no owner has written in between. `Ok(Err(guard))`
    /// gives the guard back, which still reads, if another owner reads, or another handle of this client does. It never
    /// waits for the others to finish: each of two readers that both did that would wait for the other.
    ///
    /// The guard that writes has the default lease if this one has, else what is left of its lease. If this is
    /// not the only guard of its handle, the others go on reading beside it.
    ///
    /// Two round trips: to write, and to give the read back. The second one is saved where the handle has other guards
    /// that read, and with [`write`](crate::ReadWriteLock::write), which keeps this one. A client that knows of another
    /// reader of its own asks Redis nothing.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if this guard is lost, or turns out to be. Else those of
    /// [every call](crate::Lock#errors). With any error the client gives this guard back. That Redis did not confirm
    /// the end of the read is none: the client goes on with that in the background.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client gives back what it has: neither this guard nor one that writes is left.
    pub async fn try_upgrade(self) -> Result<Result<WriteGuard<K>, ReadGuard<K>>, Error> {
        let lease = self.hold.lease_left()?;
        let writes = self.lock().acquire_to_write(lease, Wait::Once).await?;
        // The lock may have been free, and granted to this handle as to any other.
        still_held(&self.hold, writes.is_some())?;
        let Some(writes) = writes else { return Ok(Err(self)) };
        match self.unlock().await {
            // Both sides are one lock in Redis.
            Err(error) if error.kind() == ErrorKind::Lost => Err(error.unknown()),
            Ok(()) | Err(_) => Ok(Ok(writes)),
        }
    }
}

impl<K: ReadWriteKind> WriteGuard<K> {
    /// Reads from now on, instead of writing: no owner has written in between. Others may read from here on, and the
    /// readers that wait are woken, up to the first writer that waits.
    ///
    /// The guard that reads has the default lease if this one has, else what is left of its lease. If this is not the
    /// only guard of its handle that writes, the handle goes on writing.
    ///
    /// Two round trips: to read beside the writer, and to give the write back. The first one is saved where the handle
    /// has a guard that reads already.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if this guard is lost, or turns out to be. Else those of
    /// [every call](crate::Lock#errors). With any error the client gives this guard back. That Redis did not confirm
    /// the end of the write is none: the client goes on with that in the background.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client gives back what it has: neither this guard nor one that reads is left.
    pub async fn downgrade(self) -> Result<ReadGuard<K>, Error> {
        let lease = self.hold.lease_left()?;
        let reads = self.lock().acquire_to_read(lease, Wait::Once).await?;
        // The lock may have been free, and granted to this handle as to any other.
        still_held(&self.hold, reads.is_some())?;
        let reads = reads.ok_or_else(|| self.hold.not_held())?;
        match self.unlock().await {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error.unknown()),
            Ok(()) | Err(_) => Ok(reads),
        }
    }
}

/// An error if that guard is lost. `granted` says that Redis has granted the other side, which the client gives back
/// in the background then.
fn still_held(hold: &GuardInner, granted: bool) -> Result<(), Error> {
    hold.check().map_err(|lost| if granted { lost.unknown() } else { lost })
}
