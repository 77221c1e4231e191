//! What a handle asks Redis about its lock, and `force_unlock`.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::kind::LockKind;
use crate::protocol::{Call, Inspected};

use super::Lock;

impl<K: LockKind> Lock<K> {
    /// Asks Redis whether any owner holds the lock. One round trip.
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
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let inspect = async { self.call()?.inspect(&self.of.handle.names, "").await };
        let inspected = self.of.engine.call(self.name(), inspect).await?;
        Ok(inspected.is_some())
    }

    /// Asks Redis whether this handle holds the lock. One round trip; after a hand-off to this
    /// handle, it first waits until Redis has confirmed that.
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
    pub async fn is_held(&self) -> Result<bool, Error> {
        Ok(self.hold_count().await? > 0)
    }

    /// How many holds Redis counts for this handle; zero if it does not hold the lock. One round trip; after
    /// a hand-off to this handle, it first waits until Redis has confirmed that.
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
    pub async fn hold_count(&self) -> Result<u32, Error> {
        let inspected = self.of.engine.call(self.name(), self.inspect_settled()).await?;
        Ok(inspected.map_or(0, |inspected| inspected.count))
    }

    /// Asks Redis what is left of the lease of the current holder; `None` if the lock is free,
    /// [`Duration::MAX`] if another client removed the key's TTL. One round trip; after a hand-off to this handle, it
    /// first waits until Redis has confirmed that.
    ///
    /// A guard's own [`remaining`](crate::LockGuard::remaining) is the figure to act on.
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
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        let inspected = self.of.engine.call(self.name(), self.inspect_settled()).await?;
        Ok(inspected.map(|inspected| inspected.remaining.unwrap_or(Duration::MAX)))
    }

    /// Frees the lock, whichever owner holds it, and wakes one waiter of each client. False if it was
    /// free. One round trip.
    ///
    /// For operators: the holder learns that the lock is lost only at its next renewal, or at the end
    /// of its explicit lease.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors). The client sends it once: if the connection breaks before the answer comes, the
    /// [outcome](Error::outcome) is `Unknown`, and another owner may have the lock by then. Look who has it before
    /// you call this again.
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
            self.of.engine.force_unlock(&self.of.handle.names).await
        };
        self.of.engine.call(self.name(), free).await
    }

    fn call(&self) -> Result<Call<'_>, Error> {
        self.check_name()?;
        self.of.engine.new_call()
    }

    /// Inspects the lock for a question about this handle. If another handle of this client has
    /// handed the lock off to it, first waits until Redis has confirmed that.
    async fn inspect_settled(&self) -> Result<Option<Inspected>, Error> {
        let mut call = self.call()?;
        let possession = self.of.handle.possession();
        let unwritten = possession.as_ref().and_then(|one| {
            let (mut holds, (confirm, confirmed)) = (one.holds.lock(), oneshot::channel());
            // The client's thread sees to it already.
            let waits = holds.is_unwritten() && !holds.confirms_to(confirm);
            waits.then_some(confirmed)
        });
        if let Some(confirmed) = unwritten {
            let confirmed = clock::timeout_at(call.deadline, confirmed).await;
            drop(confirmed.map_err(|_| {
                let redis = call.router.redis(Some(self.of.handle.names.key()), None);
                let message = format!("{redis} has not answered that the lock was handed off");
                Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
            })?);
        }
        // What Redis has for another handle, or for none, is not this one's.
        let own = possession.filter(|one| one.holds.lock().is_of(self.of.handle.number));
        let own = own.map(|own| own.id());
        call.inspect(&self.of.handle.names, own.as_deref().unwrap_or_default()).await
    }
}
