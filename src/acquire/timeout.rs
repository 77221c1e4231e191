//! How long a caller waits, and how to wait for an answer within that time.

use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Replicas;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Outcome};
use crate::wait::silence;

/// How long a caller is ready to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// The call tries once, and does not wait.
    Once,
    /// The call waits until then.
    Until(Instant),
    /// The call waits as long as it takes, but for an outage of Redis.
    Forever,
}

impl Wait {
    /// A wait of that length from now on, by the clock of the machine of that client.
    pub(crate) fn from_now(engine: &Engine, wait: Duration) -> Self {
        if wait.is_zero() {
            return Self::Once;
        }
        let _on = engine.host.enter();
        clock::now().checked_add(wait).map_or(Self::Forever, Self::Until)
    }
}

/// What a wait without an end came to.
pub(crate) fn forever<T>(acquired: Result<Option<T>, Error>) -> Result<T, Error> {
    acquired?.ok_or_else(|| {
        let message = "BUG: a wait without an end has ended";
        Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
    })
}

/// A server that was asked.
pub(super) struct Server {
    /// What a text calls it.
    pub(super) name: String,
    /// How long an answer of it takes.
    pub(super) round_trip: Duration,
}

/// How long replicas may take, once Redis has granted a lock: at most two `WAIT`s, one that is under way and its own, and
/// the time of their answers.
pub(super) fn longest_wait(replicas: Replicas, round_trip: Duration) -> Duration {
    2 * replicas.timeout + silence(round_trip)
}

/// The answer, or `None` if the wait ends first, or by `more` behind that. If the server has been [silent](silence) for
/// too long by then, an error, because the client does not know whether the lock is busy.
pub(super) async fn answer_by<T>(
    until: Instant,
    more: impl FnOnce() -> Duration,
    server: impl FnOnce() -> Server,
    answer: impl Future<Output = Result<T, Error>>,
) -> Option<Result<T, Error>> {
    let asked_at = clock::now();
    let answer = clock::by_or_later(until, more, answer).await;
    if answer.is_none() {
        let (server, took) = (server(), clock::now() - asked_at);
        if took >= silence(server.round_trip) {
            let message = format!("{} had not answered when the wait was over", server.name);
            return Some(Err(Error::new(ErrorKind::Unavailable, Outcome::Unknown, message)));
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::tests::suspended::suspend;

    /// The error about a server that has not answered by the end of the wait.
    async fn on_a_silent_server(wait: Duration, round_trip: Duration) -> Option<ErrorKind> {
        let (until, server) = (clock::now() + wait, || Server { name: String::new(), round_trip });
        let answer = pending::<Result<(), Error>>();
        let answer = answer_by(until, Duration::default, server, answer).await;
        answer.map(|answer| answer.expect_err("no answer").kind())
    }

    #[tokio::test]
    async fn w21_a_silent_redis_is_unavailable_and_not_busy_after_a_suspension() {
        for suspended in [Duration::ZERO, Duration::from_secs(60)] {
            suspend(suspended);
            for round_trip in [Duration::ZERO, Duration::from_millis(350)] {
                let silence = silence(round_trip);
                // The wait begins a moment before the request.
                let wait = silence + Duration::from_millis(10);
                let silent = on_a_silent_server(wait, round_trip).await;
                assert_eq!(silent, Some(ErrorKind::Unavailable));
                // An answer may still be on its way, unless this thread was not run for as long.
                loop {
                    let begun = clock::now();
                    let brief = on_a_silent_server(silence / 10, round_trip).await;
                    if clock::now() - begun < silence {
                        assert_eq!(brief, None);
                        break;
                    }
                }
            }
        }
    }
}
