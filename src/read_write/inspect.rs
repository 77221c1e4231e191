//! What a handle asks Redis about a read-write lock, and `force_unlock`.

use crate::error::Error;
use crate::kind::ReadWriteKind;
use crate::protocol::Mode;

use super::ReadWriteLock;

impl<K: ReadWriteKind> ReadWriteLock<K> {
    /// Asks Redis whether the lock is held to read. False while a handle that writes reads, too: then it is held to
    /// write. One round trip.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_read_locked(&self) -> Result<bool, Error> {
        Ok(self.mode().await? == Some(Mode::Read))
    }

    /// Asks Redis whether any owner writes. One round trip.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_write_locked(&self) -> Result<bool, Error> {
        Ok(self.mode().await? == Some(Mode::Write))
    }

    /// Frees the lock, whichever owners have it, and wakes the waiters. False if it was free. One round trip.
    ///
    /// For operators: the holders learn that the lock is lost only at their next renewal, or at the end of their
    /// explicit leases.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors). The client sends it once: if the connection breaks before the answer comes, the
    /// [outcome](Error::outcome) is `Unknown`, and others may have the lock by then. Look who has it before you call this
    /// again.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Once the client has sent it, it may take effect even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let free = async {
            self.check_name()?;
            self.writes.engine.force_unlock(&self.sides.write.names).await
        };
        self.writes.engine.call(self.name(), free).await
    }

    async fn mode(&self) -> Result<Option<Mode>, Error> {
        let inspect = async {
            self.check_name()?;
            self.writes.engine.new_call()?.inspect(&self.sides.write.names, "").await
        };
        let inspected = self.writes.engine.call(self.name(), inspect).await?;
        Ok(inspected.and_then(|inspected| inspected.mode))
    }
}
