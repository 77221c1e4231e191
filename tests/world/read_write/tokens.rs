//! The tokens of a fenced read-write lock: at any distance, and with clients that die.

use std::sync::Mutex;

use redlatch::{FencedReadWriteLock, FencingToken};

use super::*;

/// What was written, with its token.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<FencingToken>>>);

impl Store {
    fn last(&self) -> Option<FencingToken> {
        self.0.lock().unwrap().last().copied()
    }

    async fn writes(&self, lock: &FencedReadWriteLock, hold: Duration) {
        let guard = lock.write().await.unwrap();
        let token = guard.token();
        assert!(self.last() < Some(token), "{token} is old: {:?}", self.last());
        self.0.lock().unwrap().push(token);
        sleep(hold).await;
        let nested = lock.write().await.unwrap();
        assert_eq!(nested.token(), token);
        drop(nested);
        guard.unlock().await.unwrap();
    }

    async fn reads(&self, lock: &FencedReadWriteLock, hold: Duration) {
        let guard = lock.read().await.unwrap();
        assert_eq!(guard.token(), self.last());
        sleep(hold).await;
        assert_eq!(guard.token(), self.last());
        guard.unlock().await.unwrap();
    }

    /// To write after reading, if it is the only one that reads, and to read after writing.
    async fn changes(&self, lock: &FencedReadWriteLock, hold: Duration) {
        let guard = lock.read().await.unwrap();
        let read = guard.token();
        assert_eq!(read, self.last());
        let Ok(guard) = guard.try_upgrade().await.unwrap() else { return };
        let token = guard.token();
        assert!(read < Some(token));
        self.0.lock().unwrap().push(token);
        sleep(hold).await;
        let guard = guard.downgrade().await.unwrap();
        assert_eq!(guard.token(), Some(token));
        sleep(hold).await;
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_has_the_token_of_the_last_writer_at_any_distance() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = redis_at(each_way);
        let store = Store::default();
        let mut all = Vec::new();
        for client in 0..3 {
            let client_of = redis.client();
            for task in 0..6_u64 {
                let (lock, store) = (client_of.fenced_read_write_lock("config"), store.clone());
                all.push(tokio::spawn(async move {
                    for round in 0..12_u64 {
                        sleep(ms((client * 7 + task * 3 + round * 5) % 11)).await;
                        match (task + round) % 4 {
                            0 | 1 => store.writes(&lock, ms(3)).await,
                            2 => store.reads(&lock, ms(4)).await,
                            _ => store.changes(&lock, ms(2)).await,
                        }
                    }
                }));
            }
        }
        for one in all {
            timeout(ms(600_000), one).await.expect("no call waits for ever").unwrap();
        }
        sleep(ms(1_000)).await;
        let counter = "redisson_lock_token:{config}";
        assert_eq!(keys(&redis), [counter], "{each_way:?}");
        let last: u64 = redis.query(redis::cmd("GET").arg(counter)).unwrap();
        assert_eq!(Some(last), store.last().map(FencingToken::get));
    }
}

/// It cannot give back what it has drawn for others: a reader has a higher token then, and all later writers have one that
/// is higher than that.
#[tokio::test(start_paused = true)]
async fn after_a_client_that_died_a_reader_is_not_older_than_its_last_writer_and_older_than_the_next()
 {
    let redis = redis_at(ms(1));
    let other = redis.client();
    let lock = other.fenced_read_write_lock("config");
    let client = redis.client();
    let holder = lock.write().await.unwrap();
    let waits = [(); 3].map(|()| {
        let lock = client.fenced_read_write_lock("config");
        tokio::spawn(async move { lock.write().await.unwrap() })
    });
    sleep(ms(100)).await;
    holder.unlock().await.unwrap();
    let [one, two, three] = waits;
    one.await.unwrap().unlock().await.unwrap();
    let writing = two.await.unwrap();
    three.abort();
    // Its hold is gone as that of a process that was killed, by the end of its lease.
    redis.lose("config");
    let reading = timeout(ms(31_000), lock.read()).await.expect("free").unwrap();
    let read = reading.token();
    assert!(read > Some(writing.token()), "{read:?}: it had drawn ahead");
    assert_eq!(writing.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lock.read().await.unwrap().token(), read);
    reading.unlock().await.unwrap();
    let next = client.fenced_read_write_lock("config").write().await.unwrap();
    assert!(Some(next.token()) > read);
    next.unlock().await.unwrap();
}
