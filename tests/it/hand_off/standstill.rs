//! W15: Redis stands still while many tasks hand one lock around.

use super::*;
use crate::support::crowd::Crowd;

const TASKS: usize = 64;

#[test]
#[cfg(target_os = "linux")]
fn w15_memory_stays_where_it_is_while_redis_stands_still_and_a_lock_is_handed_around() {
    let name = "w15_memory_stays_where_it_is_while_redis_stands_still_and_a_lock_is_handed_around";
    child::alone(&format!("hand_off::standstill::{name}"), || {
        workers().block_on(memory_stays_where_it_is());
    });
}

async fn memory_stays_where_it_is() {
    let server = Server::start();
    let client = impatient(server.url(), ms(8_000)).await;
    let crowd = Crowd::new(&client, "around", TASKS, None);
    crowd.has_turns(2_000).await;

    server.pause();
    let (before, turns) = (child::resident(), crowd.turns());
    tokio::time::sleep(ms(3_000)).await;
    let (grown, handed) = (child::resident().saturating_sub(before) / 1024, crowd.turns() - turns);
    println!("{handed} turns and {grown} kB more while Redis stood still");
    // The lease that Redis confirmed last is long.
    assert!(handed > 4 * TASKS as u64, "{handed} hand-offs: they wait for Redis");
    assert!(grown < 20_000, "{grown} kB more");

    server.resume();
    crowd.has_turns(2_000).await;
    crowd.ends().await;
    wait_until("nothing is left", SOON, || !server.exists("around")).await;
}
