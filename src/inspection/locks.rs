//! All locks of a pattern, as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio_stream::Stream;

use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::protocol::Survey;

use super::{Inspection, next_page};

/// A page of locks, and the survey to go on with.
type Page = (Box<Survey>, Option<Result<Vec<Inspection>, Error>>);

/// The locks whose names have a pattern: [`LockClient::locks`](crate::LockClient::locks) says more.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// use tokio_stream::StreamExt;
///
/// let mut locks = client.locks("order:*");
/// while let Some(lock) = locks.next().await {
///     let lock = lock?;
///     println!("{}: {:?}, {} holders", lock.name, lock.kind, lock.holders.len());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a stream does nothing unless it is polled"]
pub struct Locks {
    engine: Arc<Engine>,
    ready: VecDeque<Inspection>,
    /// Behind a mutex for no other reason than that a future cannot be shared between threads.
    state: Mutex<State>,
}

enum State {
    Refused(Option<Error>),
    Idle(Box<Survey>),
    Asks(Pin<Box<dyn Future<Output = Page> + Send>>),
    Over,
}

impl Locks {
    pub(crate) fn new(engine: Arc<Engine>, pattern: &str) -> Self {
        let state = if pattern.is_empty() {
            let message = "the pattern of the locks is empty; `*` is that of all locks";
            State::Refused(Some(Error::invalid(message)))
        } else {
            State::Idle(Survey::new(&engine.config.name_prefix, pattern).into())
        };
        Self { engine, ready: VecDeque::new(), state: state.into() }
    }
}

impl Stream for Locks {
    type Item = Result<Inspection, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(lock) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(lock)));
            }
            match std::mem::replace(self.state.get_mut(), State::Over) {
                State::Over => return Poll::Ready(None),
                State::Refused(error) => return Poll::Ready(error.map(Err)),
                State::Idle(survey) => {
                    let page = next_page(self.engine.clone(), survey);
                    *self.state.get_mut() = State::Asks(Box::pin(page));
                }
                State::Asks(mut page) => {
                    let Poll::Ready((survey, locks)) = page.as_mut().poll(cx) else {
                        *self.state.get_mut() = State::Asks(page);
                        return Poll::Pending;
                    };
                    match locks {
                        None => return Poll::Ready(None),
                        Some(Ok(locks)) => self.ready.extend(locks),
                        Some(Err(error)) => {
                            let ends = [ErrorKind::Closed, ErrorKind::InvalidArgument];
                            if !ends.contains(&error.kind()) {
                                *self.state.get_mut() = State::Idle(survey);
                            }
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    *self.state.get_mut() = State::Idle(survey);
                }
            }
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").finish_non_exhaustive()
    }
}
