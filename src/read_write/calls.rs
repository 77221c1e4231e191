//! How the two sides of a handle acquire the lock.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire_beside};
use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::guard::Hold;
use crate::handle::Handle;
use crate::lease::Lease;
use crate::spans;

use super::ReadWriteLock;
use super::guards::{ReadGuard, WriteGuard};

impl ReadWriteLock {
    pub(super) fn check_name(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::invalid("a lock needs a name"));
        }
        self.write.names.check(&self.engine.router)
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
    ) -> Result<Option<ReadGuard>, Error> {
        let writes = || self.write.holding(clock::now()).is_some();
        let hold = self.acquire(&self.read, lease, wait, writes).await?;
        Ok(hold.map(|hold| ReadGuard::reads(self.engine.clone(), hold, &self.own)))
    }

    pub(super) async fn acquire_to_write(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<WriteGuard>, Error> {
        let hold = self.acquire(&self.write, lease, wait, || self.own.reads()).await?;
        Ok(hold.map(WriteGuard::writes))
    }

    /// `deadlocks` says whether this handle has a guard for which the call would wait.
    async fn acquire(
        &self,
        handle: &Arc<Handle>,
        lease: Lease,
        wait: Wait,
        deadlocks: impl Fn() -> bool + Send + Sync,
    ) -> Result<Option<Hold>, Error> {
        let about = |error: Error| error.about(self.name());
        // Before the span: the subscriber may have a mutex of its own.
        self.engine.begin_call().map_err(about)?;
        let key = handle.names.key();
        let server = || self.engine.router.address_of(key);
        let span = spans::acquire(key, || self.owner(), server);
        let call = async {
            self.check_name()?;
            if !matches!(wait, Wait::Once) && deadlocks() {
                let message =
                    format!("this handle of `{key}` has a guard for which it would wait for ever");
                return Err(Error::new(ErrorKind::WouldDeadlock, Outcome::NotExecuted, message));
            }
            let recurs = handle.kind.is_shared() && self.own.reads();
            let granted = acquire_beside(&self.engine, handle, lease, wait, recurs).await?;
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
