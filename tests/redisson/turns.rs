//! A crowd on one side does not starve a single waiter on the other.

use std::time::{Duration, Instant};

use redlatch::LockClient;

use crate::parties::{Micros, now};
use crate::setup::Setup;
use crate::support::crowd::Crowd;
use crate::support::machine::passed;
use crate::support::{SOON, hold, ms, release, wait_until};

const CROWD: usize = 16;

/// How often somebody comes to the crowd.
const VISITS: usize = 5;

/// For how long a visitor keeps the lock.
const A_MOMENT: Duration = ms(20);

/// How long a turn may take to come.
const BEARABLE: Micros = 5_000_000;

pub(crate) async fn java_gets_turns_in_a_crowd_of_rust(setup: &Setup) {
    let name = "crowd";
    let crowd = Crowd::new(&setup.client().await, name, CROWD, None);
    let thread = setup.java.thread("visitor");
    for _ in 0..VISITS {
        crowd.has_turns(500).await;
        let answer = thread.ask("lock", &[&name]).await;
        let took = answer.ended - answer.begun;
        answer.value();
        assert!(took < BEARABLE, "{took} us");
        let held = crowd.turns();
        tokio::time::sleep(A_MOMENT).await;
        // One may not have been counted yet.
        let more = crowd.turns() - held;
        assert!(more <= 1, "the crowd had {more} turns while Java held the lock");
        thread.ask("unlock", &[&name]).await.value();
    }
    crowd.ends().await;
}

/// Threads of one process that take one lock as often as they can.
pub(crate) async fn rust_gets_turns_in_a_crowd_of_java(setup: &Setup) {
    let name = "java-crowd";
    setup.server().ask::<()>(&["SET", "visits", "0"]);
    let lock = setup.client().await.lock(name);
    let count = || setup.server().ask::<u64>(&["GET", "visits"]);
    let crowd: Vec<_> = (0..CROWD)
        .map(|i| {
            let thread = setup.java.thread(&format!("crowd.{i}"));
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
    setup.server().ask::<()>(&["DEL", "visits", "visits:turns"]);
}

/// Beside eight tasks of ours, two threads of Java have at least a third of a fair share, which
/// would be two turns in ten; and none of them waits for long (W30).
async fn java_has_its_share(setup: &Setup, client: LockClient) {
    /// So many holds may come before a turn of Java.
    const MOST: u64 = 60;
    const HELD: Duration = ms(5);
    const TURNS: u64 = 20;
    let (name, counter) = ("shared", "shared:turns");
    setup.server().ask::<()>(&["SET", counter, "0"]);
    let crowd = Crowd::new(&client, name, 8, Some(HELD));
    crowd.has_turns(20).await;
    let threads = [(); 2].map(|()| setup.java.thread("share"));
    let (before, begun, since) = (crowd.turns(), now(), Instant::now());
    let calls = [0, 1].map(|at| threads[at].begin("work", &[&name, &counter, &TURNS]));
    let mut longest: Micros = 0;
    for call in calls {
        longest = longest.max(call.answer().await.value().parse().expect("microseconds"));
    }
    let turns = crowd.turns() - before;
    let each = (now() - begun) / (2 * TURNS + turns);
    // For so long the machine stood still.
    let late = since.elapsed().saturating_sub(passed(since)).as_micros() as Micros;
    crowd.ends().await;
    setup.server().ask::<()>(&["DEL", counter, &format!("{counter}:turns")]);
    client.close().await;
    println!(
        "java {} turns, the crowd {turns}; java waited {longest} us at the longest",
        2 * TURNS
    );
    let share = 2.0 * TURNS as f64 / (2 * TURNS + turns) as f64;
    assert!(share >= 0.2 / 3.0, "java had {share:.3} of the turns");
    // Three turns of each of two clients, and a run of ours is two or three holds.
    assert!(
        longest <= MOST * each + late,
        "java waited {longest} us, with {each} us for each hold"
    );
}

pub(crate) async fn w30_java_has_its_share_beside_a_near_crowd(setup: &Setup) {
    java_has_its_share(setup, setup.near_client().await).await;
}

pub(crate) async fn w30_java_has_its_share_beside_a_far_crowd(setup: &Setup) {
    java_has_its_share(setup, setup.client().await).await;
}
