//! A yield to the other tasks of the runtime.

use std::future::poll_fn;
use std::task::Poll;

/// Lets the tasks run that are ready to run.
///
/// After Tokio's `yield_now` the same worker continues; after this any worker can.
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
