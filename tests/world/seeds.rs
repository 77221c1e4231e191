//! A seed is a whole run.

use crate::prelude::*;

const SEEDS: u64 = in_short(2, 10);

/// Four machines at random distances call at random moments; every third call is given up, and the
/// connections of a machine are cut now and then. Returns a hash over all that was sent, and when.
fn trace(seed: u64) -> (u64, u64) {
    play(seed, async |scene| {
        let (mut random, mut tasks) = (Random::new(seed), Vec::new());
        for _ in 0..4 {
            let each_way = random.up_to(ms(10));
            let machine = scene.machine(Distance { each_way, jitter: ms(3), bandwidth: None });
            tasks.push(machine.spawn(calls(random.fork())));
            let (network, server, mut cuts) = (scene.network.clone(), scene.server, random.fork());
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    sleep(ms(200) + cuts.up_to(ms(500))).await;
                    network.cut(&machine, server, cuts.permille(500));
                }
                0
            }));
        }
        let mut grants = 0;
        for task in tasks {
            grants += task.await.expect("a task");
        }
        scene.network.note(&[grants as u8]);
        (scene.network.trace(), grants)
    })
}

async fn calls(mut random: Random) -> u64 {
    let builder = LockClient::builder().url("redis://redis").command_timeout(ms(500));
    let client = builder.watchdog_timeout(ms(600)).connect().await.expect("a client");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, mut random) = (client.clone(), random.fork());
        let work = async move {
            let mut grants = 0_u64;
            for call in 0..30 {
                let name = format!("name-{}", random.below(3));
                let wait = random.up_to(ms(200));
                let held = match random.below(3) {
                    0 => client.lock(name).try_lock(wait, ms(300)).await,
                    1 => client.fair_lock(name).try_lock(wait, ms(300)).await,
                    _ => client.lock(name).try_lock(wait, redlatch::Lease::Watchdog).await,
                };
                if let Ok(Some(guard)) = held {
                    grants += 1;
                    sleep(random.up_to(ms(10))).await;
                    let patience = if call % 3 == 0 { random.up_to(ms(5)) } else { MINUTE };
                    let _ = timeout(patience, guard.unlock()).await;
                }
            }
            grants
        };
        tasks.spawn(Machine::here(work));
    }
    let grants = tasks.join_all().await.into_iter().sum();
    client.close().await;
    grants
}

#[test]
fn the_same_seed_is_the_same_run_and_another_seed_another() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        // In two threads: whatever is the thread's or the process's own is not the same there.
        let [one, other] = [(); 2].map(|()| std::thread::spawn(move || trace(seed)));
        let (one, other) = (one.join().expect("a run"), other.join().expect("a run"));
        assert_eq!(one, other, "seed {seed}");
        assert!(one.1 > 50, "only {} grants: is this a run?", one.1);
        seen.insert(one);
    }
    assert_eq!(seen.len() as u64, SEEDS);
}
