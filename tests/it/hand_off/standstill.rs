//! W15: Redis stands still while many tasks hand one lock around.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const TASKS: usize = 64;

/// Tasks that hand one lock around until they are told to end.
struct Crowd {
    turns: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn new(client: &LockClient, name: &str) -> Self {
        let (turns, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let tasks = (0..TASKS).map(|_| {
            let (lock, turns, end) = (client.lock(name), turns.clone(), end.clone());
            tokio::spawn(async move {
                while !end.load(Ordering::Relaxed) {
                    let guard: LockGuard = lock.lock().await.expect("riding it out");
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        });
        Self { turns: turns.clone(), end: end.clone(), tasks: tasks.collect() }
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    async fn end(self) {
        self.end.store(true, Ordering::Relaxed);
        for task in self.tasks {
            soon("the last turn", task).await.expect("no panic");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn w15_memory_stays_where_it_is_while_redis_stands_still_and_a_lock_is_handed_around() {
    let name = "w15_memory_stays_where_it_is_while_redis_stands_still_and_a_lock_is_handed_around";
    child::alone(&format!("hand_off::standstill::{name}"), || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(memory_stays_where_it_is());
    });
}

async fn memory_stays_where_it_is() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(8_000));
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    let crowd = Crowd::new(&client, "around");
    wait_until("it goes around", SOON, || crowd.turns() > 2_000).await;

    server.pause();
    let (before, turns) = (child::resident(), crowd.turns());
    tokio::time::sleep(ms(3_000)).await;
    let (grown, handed) = (child::resident().saturating_sub(before) / 1024, crowd.turns() - turns);
    println!("{handed} turns and {grown} kB more while Redis stood still");
    // The lease that Redis confirmed last is long.
    assert!(handed > 4 * TASKS as u64, "{handed} hand-offs: they wait for Redis");
    assert!(grown < 20_000, "{grown} kB more");

    server.resume();
    let then = crowd.turns();
    wait_until("it goes around", SOON, || crowd.turns() > then + 2_000).await;
    crowd.end().await;
    wait_until("nothing is left", SOON, || !server.exists("around")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w15_who_unlocks_hears_of_it_in_time_however_far_redis_is() {
    let server = Server::start();
    let network = Network::new(&server, Distance::round_trip(ms(100)));
    let client = soon("connecting", LockClient::connect(&*network.url(&server))).await.unwrap();
    let crowd = Crowd::new(&client, "far");
    wait_until("it goes around", SOON, || crowd.turns() > 1_000).await;
    let lock = client.lock("far");
    for _ in 0..5 {
        let guard = hold(&lock).await;
        // What was not confirmed before, and this.
        release(guard).await;
    }
    crowd.end().await;
    wait_until("nothing is left", SOON, || !server.exists("far")).await;
    let other = connect(&server).await;
    release(hold(&other.lock("far")).await).await;
}
