//! The process that a client belongs to, and futures that are dropped in no other process.
//!
//! A forked child has a copy of the client's memory and shares its sockets and its epoll instance
//! with the parent. It has none of the parent's other threads, so a mutex that one of them held at
//! the moment of the fork is never unlocked in the child. So the child may use nothing of the
//! client, and may drop nothing of it that locks a mutex or owns a socket.
//!
//! 1. A handler of `pthread_atfork` counts forks: the C library runs it in each child before the
//!    child's code. To read the counter is a load. To ask for the process id would be a system call,
//!    for each acquire and for each unlock.
//! 2. Every call of the client reads the counter before it touches anything of the client. So does
//!    the drop of a guard, a query of a guard's state, and the drop of a future that has not ended.
//! 3. A [`ProcessBound`] future that has not ended is leaked in another process: no destructor in it
//!    runs there. It is in a box because a future that others point to may be leaked, but its
//!    memory may not be used again.
//!
//! The C library runs no handler in a child of `_Fork`, `clone`, `vfork` or a raw system call: the client
//! takes such a child for its parent.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[derive(Debug, Clone)]
pub(crate) struct Process(forkguard::Guard);

impl Default for Process {
    fn default() -> Self {
        Self::current()
    }
}

impl Process {
    pub(crate) fn current() -> Self {
        Self(forkguard::new())
    }

    pub(crate) fn is_this_one(&self) -> bool {
        // A fork guard reports a fork only once, so this asks a copy.
        !self.0.clone().detected_fork()
    }

    /// Binds the future to this process: its drop in any other process leaks it.
    pub(crate) fn bind<'a, T>(
        &self,
        future: impl Future<Output = T> + Send + 'a,
    ) -> ProcessBound<'a, T> {
        ProcessBound { future: Some(Box::pin(future)), process: self.clone() }
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

    use fork::Fork;
    use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

    use super::*;

    /// Whether something is so in a fork of this process. The fork ends by a signal: `exit` takes locks of the standard
    /// library, which a thread may have had that is not in the fork.
    fn in_a_fork(is_so: impl FnOnce() -> bool) -> bool {
        match fork::fork().expect("forking") {
            Fork::Child => {
                let signal = if is_so() { Signal::USR1 } else { Signal::USR2 };
                let _ = kill_process(getpid(), signal);
                std::process::abort()
            }
            Fork::Parent(child) => {
                let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).expect("the fork");
                let (_, status) = ended.expect("its end");
                status.terminating_signal() == Some(Signal::USR1.as_raw())
            }
        }
    }

    /// Whether a future that is polled, and dropped in this process or in a fork of it, leaves so many references to its
    /// value.
    fn leaves(many: usize, ends: bool, forks: bool) -> bool {
        let held = Arc::new(());
        let inside = held.clone();
        let future = async move {
            if !ends {
                std::future::pending::<()>().await;
            }
            drop(inside);
        };
        let mut future = Process::current().bind(future);
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled.is_ready(), ends);
        let is_so = || {
            drop(future);
            Arc::strong_count(&held) == many
        };
        if forks { in_a_fork(is_so) } else { is_so() }
    }

    #[test]
    fn an_unfinished_future_is_dropped_in_its_own_process_and_leaked_in_a_fork() {
        assert!(leaves(1, false, false) && leaves(2, false, true));
        assert!(!leaves(1, false, true), "the fork says nothing");
    }

    #[test]
    fn a_finished_future_leaves_nothing_behind_in_any_process() {
        assert!(leaves(1, true, false) && leaves(1, true, true));
    }

    #[test]
    fn a_fork_is_another_process_for_each_who_asks() {
        let process = Process::current();
        assert!(in_a_fork(|| {
            let answers = [process.is_this_one(), process.clone().is_this_one()];
            answers == [false; 2] && Process::current().is_this_one()
        }));
        assert!(process.is_this_one());
    }
}
