//! A crowd on one side does not starve a single waiter on the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::parties::{Micros, now};
use crate::site::Site;
use crate::support::{SOON, hold, ms, release, soon, wait_until};

const CROWD: usize = 16;

/// How often somebody comes to the crowd.
const VISITS: usize = 5;

/// For how long a visitor keeps the lock.
const A_MOMENT: Duration = ms(20);

/// How long a turn may take to come.
const BEARABLE: Micros = 5_000_000;

/// Tasks of one client that take one lock as often as they can: it goes from one to the next
/// inside the client, and stays there while nobody else wants it.
pub(crate) async fn java_gets_turns_in_a_crowd_of_rust(site: &Site) {
    let name = "crowd";
    let client = site.client().await;
    let turns = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let (lock, turns, over) = (client.lock(name), turns.clone(), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.expect("the lock");
                    turns.fetch_add(1, Ordering::Relaxed);
                    // Given back in the background: the next one goes on at once.
                    drop(guard);
                }
            })
        })
        .collect();
    let thread = site.java.thread("visitor");
    for _ in 0..VISITS {
        let before = turns.load(Ordering::Relaxed);
        wait_until("the crowd is at it", SOON, || turns.load(Ordering::Relaxed) > before + 500)
            .await;
        let answer = thread.ask("lock", &[&name]).await;
        let took = answer.ended - answer.begun;
        answer.value();
        assert!(took < BEARABLE, "{took} us");
        let held = turns.load(Ordering::Relaxed);
        tokio::time::sleep(A_MOMENT).await;
        // One may not have been counted yet.
        let more = turns.load(Ordering::Relaxed) - held;
        assert!(more <= 1, "the crowd had {more} turns while Java held the lock");
        thread.ask("unlock", &[&name]).await.value();
    }
    over.store(true, Ordering::Relaxed);
    for task in crowd {
        soon("the end of the crowd", task).await.expect("a task that succeeds");
    }
}

/// Threads of one process that take one lock as often as they can.
pub(crate) async fn rust_gets_turns_in_a_crowd_of_java(site: &Site) {
    let name = "java-crowd";
    site.server().ask::<()>(&["SET", "visits", "0"]);
    let lock = site.client().await.lock(name);
    let count = || site.server().ask::<u64>(&["GET", "visits"]);
    let crowd: Vec<_> = (0..CROWD)
        .map(|i| {
            let thread = site.java.thread(&format!("crowd.{i}"));
            thread.begin("work", &[&name, &"visits", &100])
        })
        .collect();
    for _ in 0..VISITS {
        let before = count();
        wait_until("the crowd is at it", SOON, || count() > before + 20).await;
        let begun = now();
        let guard = hold(&lock).await;
        let took = now() - begun;
        assert!(took < BEARABLE, "{took} us");
        let held = count();
        assert!(held < 100 * CROWD as u64, "the crowd has gone home");
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(count(), held, "the crowd had turns while we held the lock");
        release(guard).await;
    }
    for call in crowd {
        call.answer().await.value();
    }
    site.server().ask::<()>(&["DEL", "visits", "visits:turns"]);
}
