//! Figures of the fair lock beside the plain one. Short here; `REDLATCH_FAIR=<seconds>` measures for so
//! long, prints what it measured and holds it to the bounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::*;

/// For how long to measure, and whether that is long enough for bounds.
pub(super) fn measured() -> (Duration, bool) {
    let seconds = std::env::var("REDLATCH_FAIR").ok().and_then(|text| text.parse().ok());
    seconds.map_or((ms(300), false), |seconds| (Duration::from_secs(seconds), true))
}

async fn turn(client: &LockClient, fair: bool) -> LockGuard {
    if fair {
        client.fair_lock("turns").lock().await.expect("a turn")
    } else {
        client.lock("turns").lock().await.expect("a turn")
    }
}

/// Turns per second of so many tasks in each client, which hold the lock for `hold`.
async fn turns_per_second(
    clients: &[LockClient],
    tasks: usize,
    hold: Duration,
    time: Duration,
    fair: bool,
) -> f64 {
    let (turns, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let mut all = Vec::new();
    for number in 0..tasks * clients.len() {
        let client = clients[number % clients.len()].clone();
        let (turns, over) = (turns.clone(), over.clone());
        all.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let guard = turn(&client, fair).await;
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
                turns.fetch_add(1, Ordering::Relaxed);
                release(guard).await;
            }
        }));
    }
    // The first turns are no measure.
    tokio::time::sleep(ms(100)).await;
    let (before, begun) = (turns.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    let count = turns.load(Ordering::Relaxed) - before;
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    for task in all {
        task.await.unwrap();
    }
    rate
}

/// Turns per second of the plain lock, and of the fair one.
async fn compared(clients: &[LockClient], tasks: usize, hold: Duration) -> (f64, f64) {
    let (time, _) = measured();
    let plain = turns_per_second(clients, tasks, hold, time, false).await;
    let fair = turns_per_second(clients, tasks, hold, time, true).await;
    let clients = clients.len();
    println!("{clients} x {tasks} tasks, {hold:?}: {plain:.0} turns/s plain, {fair:.0} fair");
    (plain, fair)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_has_most_turns_of_the_plain_lock() {
    let (_server, client) = clients::<1>().await;
    let (_, strict) = measured();
    for hold in [Duration::ZERO, ms(1)] {
        let (plain, fair) = compared(&client, 64, hold).await;
        assert!(fair > plain * if strict { 0.8 } else { 0.05 }, "{fair} of {plain}");
    }
}
