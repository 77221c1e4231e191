//! The spans of a lock, at debug: `acquire`, `hold` and `release`.
//!
//! Their fields have the names of OpenTelemetry's conventions where those have one. A span that no subscriber
//! records costs the look at its callsite, and no memory. In a forked child no code may touch a span: a mutex of the
//! subscriber may be locked for ever.

use std::ops::Deref;
use std::time::{Duration, Instant};

use tracing::Span;
use tracing::field::Empty;

use crate::clock;
use crate::error::{Error, Loss};

/// Host and port of a server, or the path of its socket.
type Address = Option<(String, Option<u16>)>;

/// The span of a call to Redis, with the fields that each has and with its own.
macro_rules! call {
    ($call:literal, $($own:tt)*) => {
        tracing::debug_span!($call, $($own)*, handed_off = Empty, otel.kind = "client",
            otel.status_code = Empty, db.system.name = "redis", server.address = Empty,
            server.port = Empty, db.operation.name = $call, "error.type" = Empty)
    };
}

/// From the call until the grant, the refusal or the error.
pub(crate) fn acquire<O: Deref<Target = str>>(
    name: &str,
    owner: impl FnOnce() -> O,
    server: impl FnOnce() -> Address,
) -> Span {
    at(call!("acquire", name, owner = &*owner(), waited_ms = Empty, granted = Empty), server)
}

/// From the call of `unlock` until the confirmation; or the release of a dropped guard, in the
/// background.
pub(crate) fn release<O: Deref<Target = str>>(
    name: &str,
    owner: impl FnOnce() -> O,
    background: bool,
    server: impl FnOnce() -> Address,
) -> Span {
    at(call!("release", name, owner = &*owner(), background, loss = Empty), server)
}

fn at(span: Span, server: impl FnOnce() -> Address) -> Span {
    if !span.is_disabled()
        && let Some((address, port)) = server()
    {
        span.record("server.address", address);
        span.record("server.port", port);
    }
    span
}

/// The call that runs in such a span got the lock by a hand-off, or gave it to the next one so.
pub(crate) fn handed_off() {
    let span = Span::current();
    // Where spans are off, it is one of the caller's.
    if span.metadata().is_some_and(|metadata| metadata.target() == module_path!()) {
        span.record("handed_off", true);
    }
}

/// What the call of that span came to.
pub(crate) fn acquired<T>(span: &Span, begun: Instant, result: &Result<Option<T>, Error>) {
    match result {
        Ok(granted) => {
            span.record("waited_ms", millis(clock::now() - begun));
            span.record("granted", granted.is_some());
        }
        Err(error) => failed(span, error),
    }
}

pub(crate) fn failed(span: &Span, error: &Error) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", tracing::field::debug(error.kind()));
    span.record("loss", error.loss().map(tracing::field::debug));
}

/// The span of a guard, while the guard has its hold.
pub(crate) struct HoldSpan(Option<Box<(Span, Instant)>>);

impl HoldSpan {
    pub(crate) fn begin<O: Deref<Target = str>>(
        name: &str,
        owner: impl FnOnce() -> O,
        acquired_in: &Span,
    ) -> Self {
        let span = tracing::debug_span!(
            "hold",
            name,
            owner = &*owner(),
            held_ms = Empty,
            loss = Empty,
            otel.status_code = Empty,
        );
        Self((!span.is_disabled()).then(|| {
            span.follows_from(acquired_in);
            Box::new((span, clock::now()))
        }))
    }

    /// The guard gives the hold back, lost or not.
    pub(crate) fn end(&mut self, loss: impl FnOnce() -> Option<Loss>) {
        let Some((span, begun)) = self.0.take().map(|hold| *hold) else { return };
        span.record("held_ms", millis(clock::now() - begun));
        if let Some(loss) = loss() {
            span.record("loss", tracing::field::debug(loss));
            span.record("otel.status_code", "ERROR");
        }
    }

    /// In a forked child.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.0.take());
    }
}

/// To microseconds: a longer fraction is noise.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
