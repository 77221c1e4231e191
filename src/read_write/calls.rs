//! How the two sides of a handle acquire the lock.

use std::sync::Arc;

use tokio::task::coop::consume_budget;
use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire_to_read, acquire_to_write, read_beside};
use crate::clock;
use crate::engine::check_runtime;
use crate::error::Error;
use crate::guard::{ClientHandle, GuardInner};
use crate::handle::Handle;
use crate::kind::ReadWriteKind;
use crate::lease::Lease;
use crate::possession::Held;
use crate::spans;

use super::ReadWriteLock;
use super::guards::{ReadGuard, WriteGuard};

impl<K: ReadWriteKind> ReadWriteLock<K> {
    pub(super) fn check_name(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::invalid("a lock needs a name"));
        }
        self.sides.write.names.check(&self.writes.engine.router)
    }

    pub(super) async fn acquire_to_read(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<ReadGuard<K>>, Error> {
        let span = self.begin(&self.sides.read)?;
        if span.is_disabled() {
            // A task that only joins readers would never let another one run.
            consume_budget().await;
            if let Some(hold) = self.read_beside(lease, &span)? {
                return Ok(Some(ReadGuard::reads(self.sides.clone(), hold)));
            }
        }
        let granted = acquire_to_read(&self.writes.engine, &self.sides, lease, wait);
        let hold = self.acquire(&self.reads, span, granted).await?;
        Ok(hold.map(|hold| ReadGuard::reads(self.sides.clone(), hold)))
    }

    pub(super) async fn acquire_to_write(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<WriteGuard<K>>, Error> {
        let span = self.begin(&self.sides.write)?;
        let granted = acquire_to_write(&self.writes.engine, &self.sides, lease, wait);
        let hold = self.acquire(&self.writes, span, granted).await?;
        Ok(hold.map(|hold| WriteGuard::writes(self.sides.clone(), hold)))
    }

    /// A call begins, with its span.
    fn begin(&self, handle: &Handle) -> Result<Span, Error> {
        // Before the span: the subscriber may have a mutex of its own.
        self.writes.engine.begin_local_call().map_err(|error| error.about(self.name()))?;
        let key = handle.names.key();
        Ok(spans::acquire(key, || self.owner(), || self.writes.engine.router.address_of(key)))
    }

    /// Joins the readers of this client, unless the call has to wait. A call without a span only: that would be around
    /// it.
    fn read_beside(&self, lease: Lease, span: &Span) -> Result<Option<GuardInner>, Error> {
        let _on = self.writes.engine.host.enter();
        let now = clock::now();
        let granted = read_beside(&self.writes.engine, &self.sides, lease, now);
        let granted = granted.map_err(|error| error.about(self.name()))?;
        let hold = |granted| GuardInner::acquired(self.reads.clone(), granted, now, span);
        Ok(granted.map(hold))
    }

    /// Makes a hold of that handle of what is granted.
    async fn acquire(
        &self,
        of: &Arc<ClientHandle>,
        span: Span,
        granted: impl Future<Output = Result<Option<Held>, Error>> + Send,
    ) -> Result<Option<GuardInner>, Error> {
        check_runtime().map_err(|error| error.about(self.name()))?;
        let acquired_in = span.clone();
        let call = async move {
            self.check_name()?;
            let granted = granted.await?;
            // Makes a hold at once: from here on its drop is the undo.
            let hold = |granted| GuardInner::new(of.clone(), granted, &acquired_in);
            Ok(granted.map(hold))
        };
        let call =
            self.writes.engine.process.bind(self.writes.engine.host.run(self.in_span(span, call)));
        call.await.map_err(|error| error.about(self.name()))
    }

    async fn in_span<T>(
        &self,
        span: Span,
        call: impl Future<Output = Result<Option<T>, Error>>,
    ) -> Result<Option<T>, Error> {
        let begun = clock::now();
        let acquired = call.instrument(span.clone()).await;
        spans::acquired(&span, begun, &acquired);
        acquired
    }
}
