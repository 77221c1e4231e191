//! A leader: of several instances one does the work, and when it goes another one takes over.
//!
//! Whoever has the lock leads. An instance that loses the lock stops to lead at its next await and
//! waits in line again; one that is shut down unlocks, and the next one leads a moment later; the
//! lock of one that dies ends with its lease.
//!
//! An operator who takes the lock from a leader lets the next one lead at once, and the old one does
//! not know before its watchdog asks. So what a leader writes carries its fencing token, and the
//! board takes nothing that is older than what it has.
//!
//! `cargo run --example leader`

mod support;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch::{ErrorKind, LockClient};
use support::{Result, Server, unique};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const INSTANCES: usize = 3;

/// How often a leader writes, and how many times until it is shut down.
const PAUSE: Duration = Duration::from_millis(20);
const WRITES: usize = 5;

/// Far longer than the example takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An instance of the service: leads until it is shut down. When it is not the leader any more, it
/// waits in line again.
async fn instance(number: usize, url: String, name: String, board: Arc<Board>) -> Result<()> {
    let client = LockClient::builder().url(url).watchdog_timeout(Duration::from_secs(1));
    let client = client.connect().await?;
    let lock = client.fenced_lock(name);
    loop {
        match lock.with(async |guard| lead(number, guard.token().get(), &board).await).await {
            Ok(()) => {
                println!("instance {number} stops");
                break;
            }
            Err(error) if error.kind() == ErrorKind::Lost => {
                println!("instance {number} is not the leader any more");
            }
            // Nobody leads without Redis. The next call asks again.
            Err(error) if error.is_retryable() => sleep(Duration::from_secs(1)).await,
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await;
    Ok(())
}

/// What only one instance shall do at a time. Returns when the instance is shut down.
async fn lead(number: usize, token: u64, board: &Board) {
    println!("instance {number} leads");
    // The first leader stays until it loses the lock.
    let first = board.terms() == 0;
    let mut writes = 0;
    while first || writes < WRITES {
        if board.write(token) {
            writes += 1;
        }
        sleep(PAUSE).await;
    }
}

/// What leaders write to: the token of each write.
#[derive(Default)]
struct Board {
    tokens: Mutex<Vec<u64>>,
    written: Notify,
}

impl Board {
    /// False if somebody with a higher token has written.
    fn write(&self, token: u64) -> bool {
        let mut tokens = self.tokens();
        if tokens.last().is_some_and(|last| token < *last) {
            return false;
        }
        tokens.push(token);
        self.written.notify_one();
        true
    }

    fn terms(&self) -> usize {
        self.tokens().chunk_by(|one, next| one == next).count()
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let name = unique("leader");
    let board = Arc::new(Board::default());
    let mut instances = JoinSet::new();
    for number in 1..=INSTANCES {
        instances.spawn(instance(number, server.url().to_owned(), name.clone(), board.clone()));
    }
    let operator = LockClient::connect(server.url()).await?;
    timeout(PATIENCE, board.written.notified()).await?;
    println!("an operator takes the lock from the first leader");
    operator.fenced_lock(&name).force_unlock().await?;
    operator.close().await;

    let everybody = timeout(PATIENCE, instances.join_all()).await?;
    everybody.into_iter().collect::<Result<Vec<_>>>()?;
    assert!(board.tokens().is_sorted(), "a former leader must not write");
    println!("{} terms, and none of them wrote after a later one", board.terms());
    // The one key that a fenced lock leaves behind.
    let token = format!("redisson_lock_token:{{{name}}}");
    redis::cmd("DEL").arg(token).exec(&mut redis::Client::open(server.url())?.get_connection()?)?;
    Ok(())
}
