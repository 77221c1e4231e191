//! What the machine itself does to a round trip, so that a test is not red for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between an answer and the next question: seven probes at a time are not to be what keeps the machine
/// busy.
const PAUSE: Duration = Duration::from_millis(1);

/// Asks one thing after the other, beside a client.
pub(crate) struct Probe {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Answers>,
}

/// When each command was asked, and when it was answered.
pub(crate) struct Answers(Vec<(Instant, Instant)>);

impl Answers {
    /// The longest time that an answer took.
    pub(crate) fn longest(&self) -> Duration {
        self.0.iter().map(|(asked, answered)| *answered - *asked).max().unwrap_or_default()
    }

    /// The longest time between these two in which a command was not answered.
    pub(crate) fn longest_between(&self, from: Instant, to: Instant) -> Duration {
        let unanswered = self.0.iter().map(|(asked, answered)| {
            (*answered).min(to).saturating_duration_since((*asked).max(from))
        });
        unanswered.max().unwrap_or_default()
    }
}

impl Probe {
    pub(crate) fn start(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a url");
        let mut connection = client.get_connection().expect("a connection");
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = thread::spawn(move || {
            let mut answers = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                // What a thread sleeps too long, the machine has held up, too.
                let asked = Instant::now() + PAUSE;
                thread::sleep(PAUSE);
                redis::cmd("PING").exec(&mut connection).expect("an answer");
                answers.push((asked, Instant::now()));
            }
            Answers(answers)
        });
        Self { over, thread }
    }

    pub(crate) async fn stop(self) -> Answers {
        self.over.store(true, Ordering::SeqCst);
        let joined = tokio::task::spawn_blocking(move || self.thread.join().expect("a probe"));
        joined.await.expect("the answers")
    }
}
