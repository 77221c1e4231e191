//! A turn of the runtime.

use std::future::poll_fn;
use std::task::Poll;

/// Lets the tasks run that are ready to run.
///
/// Tokio's `yield_now` waits for the worker that runs it; this can be taken up by any other.
pub(crate) async fn let_ready_tasks_run() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
