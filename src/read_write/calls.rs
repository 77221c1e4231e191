//! How the two sides of a handle acquire the lock.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire_to_read, acquire_to_write};
use crate::clock;
use crate::error::Error;
use crate::guard::Hold;
use crate::handle::Handle;
use crate::kind::ReadWriteKind;
use crate::lease::Lease;
use crate::possession::AcquiredHold;
use crate::spans;

use super::ReadWriteLock;
use super::guards::{ReadGuard, WriteGuard};

impl<K: ReadWriteKind> ReadWriteLock<K> {
    pub(super) fn check_name(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::invalid("a lock needs a name"));
        }
        self.sides.write.names.check(&self.engine.router)
    }

    /// How long a call waits that begins now.
    pub(super) fn wait(&self, wait: Duration) -> Wait {
        let _on = self.engine.host.enter();
        Wait::from_now(wait)
    }

    pub(super) async fn acquire_to_read(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<ReadGuard<K>>, Error> {
        let granted = acquire_to_read(&self.engine, &self.sides, lease, wait);
        let hold = self.acquire(&self.sides.read, granted).await?;
        Ok(hold.map(|hold| ReadGuard::reads(self.of_guard(), hold)))
    }

    pub(super) async fn acquire_to_write(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<WriteGuard<K>>, Error> {
        let granted = acquire_to_write(&self.engine, &self.sides, lease, wait);
        let hold = self.acquire(&self.sides.write, granted).await?;
        Ok(hold.map(|hold| WriteGuard::writes(self.of_guard(), hold)))
    }

    /// Makes a hold of that handle of what is granted.
    async fn acquire(
        &self,
        handle: &Arc<Handle>,
        granted: impl Future<Output = Result<Option<AcquiredHold>, Error>> + Send,
    ) -> Result<Option<Hold>, Error> {
        let about = |error: Error| error.about(self.name());
        // Before the span: the subscriber may have a mutex of its own.
        self.engine.begin_call().map_err(about)?;
        let key = handle.names.key();
        let server = || self.engine.router.address_of(key);
        let span = spans::acquire(key, || self.owner(), server);
        let call = async {
            self.check_name()?;
            let granted = granted.await?;
            // Makes a hold at once: from here on its drop is the undo.
            let hold = |granted| Hold::new(self.engine.clone(), handle.clone(), granted, &span);
            Ok(granted.map(hold))
        };
        let call = self.engine.process.bind(self.engine.host.run(self.in_span(&span, call)));
        call.await.map_err(about)
    }

    async fn in_span<T>(
        &self,
        span: &Span,
        call: impl Future<Output = Result<Option<T>, Error>>,
    ) -> Result<Option<T>, Error> {
        let begun = clock::now();
        let acquired = call.instrument(span.clone()).await;
        spans::acquired(span, begun, &acquired);
        acquired
    }
}
