//! Requests that come together, and share a call: who waits, and which task sends.
//!
//! 1. **The first that joins starts the task**, with a [`Gatherer`]. It takes all that have joined
//!    when the tasks have run that were ready to run by then.
//! 2. A request whose caller has gone by then is never sent. One that was sent is over when it has a
//!    reply, and its undo waits for that.
//! 3. **Each request gets a reply.** If the runtime ends, the task drops what it has taken, and the
//!    gatherer what still waits: the reply says then whether the request was sent.
//!
//! No task holds the mutexes of the queue and of an entry together, or wakes another under one.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::ready::let_ready_tasks_run;

/// A reply to a request that shares a call, or what stands for one.
pub(super) trait Unanswered {
    /// The runtime has ended first.
    fn unanswered(was_sent: bool) -> Self;
}

/// The requests `Q` that wait for the next call, if a task gathers them. Each gets a reply `R`.
pub(super) struct Coalescer<Q, R: Unanswered>(Mutex<Option<Vec<Joined<Q, R>>>>);

impl<Q, R: Unanswered> Default for Coalescer<Q, R> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<Q, R: Unanswered> Coalescer<Q, R> {
    /// A caller that gets a gatherer has to start the task that sends.
    pub(super) fn join(self: &Arc<Self>, request: Q) -> New<Q, R> {
        let entry = Arc::new(Entry { request, progress: Mutex::new(Progress::Queued(None)) });
        let mut waiting = self.0.lock();
        let gatherer = waiting.is_none().then(|| Gatherer(Some(self.clone())));
        waiting.get_or_insert_default().push(Joined(entry.clone()));
        (entry, gatherer)
    }

    fn take(&self, goes_on: bool) -> Vec<Joined<Q, R>> {
        let mut waiting = self.0.lock();
        let taken = waiting.take().unwrap_or_default();
        *waiting = (goes_on && !taken.is_empty()).then(Vec::new);
        taken
    }
}

/// A request, and the gatherer if it is the first.
type New<Q, R> = (Arc<Entry<Q, R>>, Option<Gatherer<Q, R>>);

/// Gathers requests for a task that sends them.
pub(super) struct Gatherer<Q, R: Unanswered>(Option<Arc<Coalescer<Q, R>>>);

impl<Q, R: Unanswered> Gatherer<Q, R> {
    /// What the task has to send now, or `None` if no caller waits. After that, and if the task does not go on, the
    /// next caller that joins starts another task.
    pub(super) async fn gather(&mut self, goes_on: bool) -> Option<Vec<Joined<Q, R>>> {
        loop {
            let_ready_tasks_run().await;
            let queue = self.0.take()?;
            let mut gathered = queue.take(goes_on);
            self.0 = (goes_on && !gathered.is_empty()).then_some(queue);
            gathered.retain(|joined| joined.start());
            if !gathered.is_empty() {
                return Some(gathered);
            }
        }
    }
}

impl<Q, R: Unanswered> Drop for Gatherer<Q, R> {
    fn drop(&mut self) {
        drop(self.0.take().map(|queue| queue.take(false)));
    }
}

/// A request in the hands of the task that sends. Its drop says that the runtime ended, if the
/// request has no reply.
pub(super) struct Joined<Q, R: Unanswered>(Arc<Entry<Q, R>>);

impl<Q, R: Unanswered> Deref for Joined<Q, R> {
    type Target = Entry<Q, R>;

    fn deref(&self) -> &Entry<Q, R> {
        &self.0
    }
}

impl<Q, R: Unanswered> Drop for Joined<Q, R> {
    fn drop(&mut self) {
        if !self.is_over() {
            let was_sent = matches!(*self.progress.lock(), Progress::Sent(_));
            self.complete(R::unanswered(was_sent));
        }
    }
}

/// A request that shares a call.
pub(super) struct Entry<Q, R> {
    pub(super) request: Q,
    progress: Mutex<Progress<R>>,
}

enum Progress<R> {
    /// The request is not sent yet. With the waker of the task that waits.
    Queued(Option<Waker>),
    /// The request is sent, and not answered yet.
    Sent(Option<Waker>),
    /// The request is never sent: its caller has gone.
    Cancelled,
    /// The request is over. `None` if the caller has taken the reply.
    Done(Option<R>),
}

impl<Q, R: Unanswered> Entry<Q, R> {
    /// Marks the request as sent. False if its caller has gone.
    fn start(&self) -> bool {
        let mut progress = self.progress.lock();
        if let Progress::Queued(waker) = &mut *progress {
            *progress = Progress::Sent(waker.take());
        }
        matches!(*progress, Progress::Sent(_))
    }

    /// The first reply counts.
    pub(super) fn complete(&self, reply: R) {
        let waker = {
            let mut progress = self.progress.lock();
            let (Progress::Queued(waker) | Progress::Sent(waker)) = &mut *progress else { return };
            let waker = waker.take();
            *progress = Progress::Done(Some(reply));
            waker
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether the caller has a reply, or has gone before the request was sent.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Cancelled | Progress::Done(_))
    }

    /// Whether the request will never be sent.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Cancelled)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<R>> {
        // Dropped when the mutex is free again: it may be the last reference to a task.
        let _before = match &mut *self.progress.lock() {
            Progress::Cancelled => return Poll::Ready(None),
            Progress::Done(reply) => return Poll::Ready(reply.take()),
            Progress::Queued(waker) | Progress::Sent(waker) => waker.replace(cx.waker().clone()),
        };
        Poll::Pending
    }

    /// Waits for the reply. A caller that drops this future cancels an unsent request.
    pub(super) async fn reply(&self) -> R {
        let caller = Caller(self);
        caller.0.done().await.unwrap_or_else(|| R::unanswered(true))
    }

    /// Waits until the request has been answered, or never will be. Only the first caller gets the
    /// reply.
    pub(super) async fn done(&self) -> Option<R> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// A caller that waits for an entry.
struct Caller<'a, Q, R>(&'a Entry<Q, R>);

impl<Q, R> Drop for Caller<'_, Q, R> {
    /// The caller does not wait any longer: an unsent request is never sent.
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        let before = matches!(*progress, Progress::Queued(_))
            .then(|| std::mem::replace(&mut *progress, Progress::Cancelled));
        // The waker in it may be the last reference to a task.
        drop(progress);
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;

    use super::*;

    /// Whether a request was sent that has no answer.
    #[derive(Debug, PartialEq)]
    struct WasSent(bool);

    impl Unanswered for WasSent {
        fn unanswered(was_sent: bool) -> Self {
            Self(was_sent)
        }
    }

    type Queue = Arc<Coalescer<&'static str, WasSent>>;

    /// What the gatherer takes when it has let other tasks run.
    fn gathered(
        gatherer: &mut Gatherer<&'static str, WasSent>,
        goes_on: bool,
    ) -> Option<Vec<Joined<&'static str, WasSent>>> {
        futures::executor::block_on(gatherer.gather(goes_on))
    }

    #[test]
    fn what_no_answer_comes_to_hears_whether_it_was_sent_when_its_runtime_ends() {
        let queue = Queue::default();
        let (unsent, gatherer) = queue.join("unsent");
        drop(gatherer.expect("the first starts a task"));
        assert_eq!(futures::executor::block_on(unsent.reply()), WasSent(false));

        let (sent, gatherer) = queue.join("sent");
        let mut gatherer = gatherer.expect("the first after the end of a task");
        drop(gathered(&mut gatherer, true).expect("one"));
        assert_eq!(futures::executor::block_on(sent.reply()), WasSent(true));

        let (next, another) = queue.join("next");
        assert!(another.is_none(), "that task goes on");
        drop(gatherer);
        assert_eq!(futures::executor::block_on(next.reply()), WasSent(false));
    }

    #[test]
    fn a_task_that_finds_nobody_or_does_not_go_on_is_followed_by_another() {
        let queue = Queue::default();
        for goes_on in [true, false] {
            let (_entry, gatherer) = queue.join("one");
            let mut gatherer = gatherer.expect("no task is there");
            let (_other, another) = queue.join("two");
            assert!(another.is_none());
            let both = gathered(&mut gatherer, goes_on).expect("both");
            assert_eq!(both.iter().map(|one| one.request).collect::<Vec<_>>(), ["one", "two"]);
            assert_eq!(queue.join("meanwhile").1.is_none(), goes_on);
            assert_eq!(gathered(&mut gatherer, goes_on).is_some(), goes_on);
            assert!(gathered(&mut gatherer, goes_on).is_none());
        }
    }

    #[test]
    fn a_request_whose_caller_has_gone_is_sent_only_if_it_has_been() {
        let queue = Queue::default();
        let (gone, gatherer) = queue.join("gone");
        let (stays, _) = queue.join("stays");
        let mut waits = spawn(stays.reply());
        assert!(waits.poll().is_pending() && spawn(gone.reply()).poll().is_pending());
        let sent = gathered(&mut gatherer.expect("the first"), false).expect("one");
        assert!(gone.is_cancelled() && sent.len() == 1 && sent[0].request == "stays");
        drop(waits);
        assert!(!stays.is_over(), "its undo has to wait");
        let mut undo = spawn(stays.done());
        assert!(undo.poll().is_pending());
        sent[0].complete(WasSent(true));
        assert!(undo.is_woken() && undo.poll().is_ready());
    }
}
