//! Waits that are longer than they have to be.

use std::time::Duration;

use redlatch::LockClient;
use redlatch::simulation::Distance;
use tokio::time::{Instant, sleep};

use crate::scene::play;
use crate::support::ms;

const NAME: &str = "waits";

fn round_trip(round_trip: Duration) -> Distance {
    Distance { each_way: round_trip / 2, ..Distance::default() }
}

/// The message of a release is on its way to its own client when that unsubscribes. It does not take the
/// message of another client for that one a second later, and leave the lock free meanwhile.
#[test]
fn a_client_that_missed_its_own_message_takes_no_other_for_it() {
    let (away, linger) = (ms(20), ms(200));
    play(0, async |scene| {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let machine = scene.machine(round_trip(away));
            let client = scene.connect(&machine, LockClient::builder()).await;
            clients.push((machine, client.lock(NAME)));
        }
        let [(near, one), (far, other)] = &clients[..] else { unreachable!("two") };
        let mut theirs = far.run(other.lock()).await.expect("a guard");
        for held in [ms(50), linger - away / 2] {
            let waits = near.spawn({
                let one = one.clone();
                async move { one.lock().await }
            });
            sleep(5 * away).await;
            far.run(theirs.unlock()).await.expect("a release");
            let guard = waits.await.expect("no panic").expect("a guard");
            let waits = far.spawn({
                let other = other.clone();
                async move { other.lock().await }
            });
            sleep(held).await;
            near.run(guard.unlock()).await.expect("a release");
            theirs = waits.await.expect("no panic").expect("a guard");
        }
        sleep(ms(1_000)).await;
        let waits = near.spawn({
            let one = one.clone();
            async move { one.lock().await }
        });
        sleep(5 * away).await;
        far.run(theirs.unlock()).await.expect("a release");
        let freed = Instant::now();
        let _guard = waits.await.expect("no panic").expect("a guard");
        assert!(freed.elapsed() <= 2 * away, "free for {:?}", freed.elapsed());
    });
}
