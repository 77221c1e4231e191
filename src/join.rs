//! Several futures at once, where they are few.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Polls all of them until each has completed. Returns what they came to, in their order.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut complete = true;
        for (future, output) in &mut all {
            if output.is_none() {
                *output = completed(future.as_mut(), cx);
            }
            complete &= output.is_some();
        }
        if complete { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

/// Polls all of them until one has completed.
pub(crate) async fn first_of<F: Future>(futures: impl IntoIterator<Item = F>) -> F::Output {
    let mut all: Vec<_> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|cx| {
        let output = all.iter_mut().find_map(|future| completed(future.as_mut(), cx));
        output.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn completed<F: Future>(future: Pin<&mut F>, cx: &mut Context<'_>) -> Option<F::Output> {
    if let Poll::Ready(output) = future.poll(cx) { Some(output) } else { None }
}
