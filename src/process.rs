//! The process that a client belongs to, and futures that are dropped in no other process.
//!
//! A forked child has a copy of the client's memory and shares its sockets and its epoll instance
//! with the parent. It has none of the parent's other threads, so a mutex that one of them held at
//! the moment of the fork is never unlocked in the child. So the child may use nothing of the
//! client, and may drop nothing of it that locks a mutex or owns a socket.
//!
//! 1. The process id is asked of the system every time. A fork copies whatever is remembered.
//! 2. Asking is a system call. It is made once for an acquire, an unlock, a drop of a guard, and a
//!    look at what a guard knows, and for the drop of a future that has not ended.
//! 3. A [`ProcessBound`] future that has not ended is leaked in another process: no destructor in it
//!    runs there. It is in a box because a future that others point to may be leaked, but its
//!    memory may not be used again.
//!
//! Two processes are told apart by their ids alone: a child in a new namespace of process ids that
//! has its parent's number is taken for the parent.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_this_one(self) -> bool {
        self == Self::current()
    }

    /// The same future, which is leaked instead of dropped in any other process.
    pub(crate) fn bind<'a, T>(
        self,
        future: impl Future<Output = T> + Send + 'a,
    ) -> ProcessBound<'a, T> {
        ProcessBound { future: Some(Box::pin(future)), process: self }
    }
}

/// A future that is dropped in its own process only (invariant 3).
///
/// Its type is erased, so that a compiler that asks whether a caller's future is `Send` need not look
/// through all of this crate.
pub(crate) struct ProcessBound<'a, T> {
    /// `None` when it has ended.
    future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    process: Process,
}

impl<T> Future for ProcessBound<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let future = self.future.as_mut().expect("BUG: a future was polled after its end");
        let value = ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(value)
    }
}

impl<T> Drop for ProcessBound<'_, T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take()
            && !self.process.is_this_one()
        {
            mem::forget(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;

    const ANOTHER: Process = Process(0);

    fn polled_and_dropped(process: Process) -> usize {
        let held = Arc::new(());
        let inside = held.clone();
        let future = async move {
            std::future::pending::<()>().await;
            drop(inside);
        };
        let mut future = process.bind(future);
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(future);
        Arc::strong_count(&held)
    }

    #[test]
    fn an_unfinished_future_is_dropped_in_its_own_process_and_leaked_in_another() {
        assert_eq!(polled_and_dropped(Process::current()), 1);
        assert_eq!(polled_and_dropped(ANOTHER), 2);
    }

    #[test]
    fn a_finished_future_leaves_nothing_behind_in_any_process() {
        let held = Arc::new(());
        let inside = held.clone();
        let mut future = ANOTHER.bind(async move { drop(inside) });
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        drop(future);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
