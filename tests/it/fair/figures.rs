//! Figures of the fair lock beside the plain one. Short here; `REDLATCH_FAIR=<seconds>` measures for so
//! long, prints what it measured and holds it to the bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redlatch::{LockClient, LockGuard};

use super::{Server, connect};
use crate::support::{Distance, Network, ms, release};

/// For how long nothing happens, at least, before a round trip that is measured.
const IDLE: Duration = Duration::from_millis(40);

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
    let (turns, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
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

#[tokio::test(flavor = "multi_thread")]
async fn one_process_has_most_turns_of_the_plain_lock() {
    let server = Server::start();
    let client = [connect(&server).await];
    let (time, strict) = measured();
    for hold in [Duration::ZERO, ms(1)] {
        let plain = turns_per_second(&client, 64, hold, time, false).await;
        let fair = turns_per_second(&client, 64, hold, time, true).await;
        println!("64 tasks, {hold:?}: {plain:.0} turns/s plain, {fair:.0} fair");
        assert!(fair > plain * if strict { 0.8 } else { 0.2 }, "{fair} of {plain}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_clients_with_sixteen_tasks_each() {
    let server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&server).await);
    }
    let (time, _) = measured();
    let plain = turns_per_second(&clients, 16, ms(1), time, false).await;
    let fair = turns_per_second(&clients, 16, ms(1), time, true).await;
    println!("4 x 16 tasks, 1 ms: {plain:.0} turns/s plain, {fair:.0} fair");
    assert!(fair > 50.0, "{fair}");
}

/// From the begin of an unlock until a waiter in another client has the lock.
async fn from_unlock_to_grant(
    clients: &[LockClient; 2],
    fair: bool,
    round: usize,
    idle: Duration,
) -> Duration {
    let guard = turn(&clients[round % 2], fair).await;
    let other = clients[(round + 1) % 2].clone();
    let waiter = tokio::spawn(async move { (turn(&other, fair).await, Instant::now()) });
    tokio::time::sleep(idle).await;
    let begun = Instant::now();
    let unlocking = tokio::spawn(guard.unlock());
    let (guard, granted) = waiter.await.unwrap();
    unlocking.await.unwrap().unwrap();
    release(guard).await;
    granted - begun
}

/// What a round trip takes, with what the network and the machine add to the distance. Before it the
/// machine has been idle for as long as before an unlock: threads that slept wake later.
async fn trip(connection: &mut MultiplexedConnection, idle: Duration) -> Duration {
    tokio::time::sleep(idle).await;
    let begun = Instant::now();
    redis::cmd("PING").query_async::<()>(connection).await.unwrap();
    begun.elapsed()
}

/// The median; or the least one, which says most on a machine that does other things, too.
fn typical(mut times: Vec<Duration>, strict: bool) -> Duration {
    times.sort();
    if strict { times[times.len() / 2] } else { times[0] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_gives_the_lock_to_the_next_client_in_one_round_trip() {
    let server = Server::start();
    let (time, strict) = measured();
    let rounds = if strict { time.as_secs() as usize * 10 } else { 15 };
    for round_trip in [Duration::ZERO, ms(2), ms(20)] {
        let network = Network::new(&server, Distance::round_trip(round_trip));
        let builder = || LockClient::builder().url(network.url(&server));
        let clients = [builder().connect().await.unwrap(), builder().connect().await.unwrap()];
        let client = redis::Client::open(network.url(&server)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        // A waiter is parked after three round trips.
        let idle = IDLE.max(4 * round_trip);
        let mut times = [(); 3].map(|()| Vec::new());
        // In turn, because the machine is not as busy all the time.
        for round in 0..rounds {
            times[0].push(from_unlock_to_grant(&clients, false, round, idle).await);
            times[1].push(from_unlock_to_grant(&clients, true, round, idle).await);
            times[2].push(trip(&mut connection, idle).await);
        }
        let [plain, fair, trip] = times.map(|times| typical(times, strict));
        println!("{round_trip:?}, {trip:?}: unlock to grant after {plain:?} plain, {fair:?} fair");
        if round_trip > ms(1) {
            let trips = fair.as_secs_f64() / trip.as_secs_f64();
            let [of_plain, most] = if strict { [0.7, 1.2] } else { [0.85, 3.0] };
            assert!(trips < most && fair < plain.mul_f64(of_plain), "{trips} round trips");
        }
    }
}
