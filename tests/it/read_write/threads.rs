//! Readers on several threads, most of them of one client, and writers that come in between.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::*;

/// How often each writer writes meanwhile.
const WRITES: usize = 100;

/// Readers above zero, a writer below: its handle may read beside it, and counts once.
#[derive(Default)]
struct Inside(AtomicI64);

impl Inside {
    fn reads(&self) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 0, "a reader beside a writer");
    }

    fn writes(&self, own: i64) {
        self.0.compare_exchange(own, -1, Ordering::SeqCst, Ordering::SeqCst).expect("it is alone");
    }

    fn ends(&self, left: i64) {
        assert_eq!(self.0.swap(left, Ordering::SeqCst), -1, "it was alone");
    }
}

/// They go in every way that there is.
async fn goes(turn: usize, guard: ReadGuard) {
    match turn % 4 {
        0 => drop(guard),
        1 => drop(tokio::time::timeout(Duration::ZERO, guard.unlock()).await),
        _ => guard.unlock().await.expect("to give it back"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_readers_and_writers_never_meets() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let (inside, over) = (Arc::new(Inside::default()), Arc::new(AtomicBool::new(false)));
    let readers = (0..20).map(|number| {
        let client = if number < 16 { &client } else { &other };
        let (lock, inside, over) = (client.read_write_lock("a"), inside.clone(), over.clone());
        tokio::spawn(async move {
            let mut turn = number;
            while !over.load(Ordering::Relaxed) {
                let guard = reads(&lock).await;
                inside.reads();
                let nested = if turn % 8 == 0 { Some(reads(&lock).await) } else { None };
                if turn % 16 == 3 {
                    guard.extend(Duration::from_secs(60)).await.expect("more time");
                }
                tokio::task::yield_now().await;
                inside.0.fetch_sub(1, Ordering::SeqCst);
                if let Some(nested) = nested {
                    goes(turn + 1, nested).await;
                }
                goes(turn, guard).await;
                turn += 1;
            }
        })
    });
    let readers = readers.collect::<Vec<_>>();
    // Two of the same client, of which one writes on top of its own read where it is alone, and one of another client.
    let writers = [(&client, false), (&client, true), (&other, false)].map(|(client, upgrades)| {
        let (lock, inside) = (client.read_write_lock("a"), inside.clone());
        tokio::spawn(async move {
            for _ in 0..WRITES {
                let own = if upgrades { Some(reads(&lock).await) } else { None };
                if own.is_some() {
                    inside.reads();
                }
                let guard = match (own.is_some(), soon("writing", lock.write()).await) {
                    (_, Ok(guard)) => Some(guard),
                    (true, Err(error)) if error.kind() == ErrorKind::WouldDeadlock => None,
                    (_, Err(error)) => panic!("{error}"),
                };
                if let Some(guard) = guard {
                    inside.writes(i64::from(own.is_some()));
                    tokio::task::yield_now().await;
                    inside.ends(i64::from(own.is_some()));
                    guard.unlock().await.expect("to give it back");
                }
                if let Some(own) = own {
                    inside.0.fetch_sub(1, Ordering::SeqCst);
                    own.unlock().await.expect("to give it back");
                }
            }
        })
    });
    for writer in writers {
        writer.await.expect("a writer");
    }
    over.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("a reader");
    }
    wait_until("it is free", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
    assert!(is_free_to_write(&other, "a").await);
    assert_eq!(client.stats().held, 0);
}
