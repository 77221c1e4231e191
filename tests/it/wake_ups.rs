//! The lock comes to whoever waits, also where a waiter goes away and where no message comes: no
//! wake-up is lost, not before the subscription, not with its connection, not with a waiter that
//! goes away, and not where nothing is published at all. In each case the lock must come long before
//! the holder's lease would have ended.

use tokio::time::Instant;

use crate::prelude::*;

pub(crate) async fn a_lease_that_ends_without_a_message_is_met_by_a_timer(setup: Setup) {
    let client = setup.connect().await;
    let mut late = Vec::new();
    for _ in 0..5 {
        // It begins between these two.
        let before = Instant::now();
        setup.hold_by_hand("expires", "somebody:1", ms(400));
        let after = Instant::now();
        let guard = hold(&client.lock("expires")).await;
        assert!(before.elapsed() >= ms(400), "its lease ran still: {:?}", before.elapsed());
        late.push(after.elapsed().saturating_sub(ms(400)));
        release(guard).await;
    }
    assert!(late.iter().min() < Some(&SECOND), "the timer was so late: {late:?}");
}

pub(crate) async fn when_the_first_in_line_goes_the_next_one_watches_the_lease(setup: Setup) {
    let client = setup.connect().await;
    let start = Instant::now();
    setup.hold_by_hand("head", "somebody:1", ms(2_000));
    let head = waiting(&client, "head");
    wait_until("a subscription", SOON, || setup.subscribers("head") == 1).await;
    let next = waiting(&client, "head");
    tokio::task::yield_now().await;
    head.abort();
    release(soon("the end of the lease", next).await.unwrap()).await;
    assert!(start.elapsed() >= ms(2_000));
}

pub(crate) async fn waiters_that_give_up_all_the_time_leave_no_wake_up_unused(setup: Setup) {
    let client = setup.connect().await;
    let stop = Instant::now() + 2 * SECOND;
    let patient = (0..4).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut turns = 0_u32;
            while Instant::now() < stop {
                let turn = within(SOON, "a turn", client.lock("busy").lock()).await;
                let guard = turn.unwrap();
                tokio::time::sleep(ms(1)).await;
                release(guard).await;
                turns += 1;
            }
            turns
        })
    });
    let hasty = (0..4_u64).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut wait = Duration::from_micros(100 * (task + 1));
            while Instant::now() < stop {
                drop(client.lock("busy").try_lock(wait, MINUTE).await.unwrap());
                wait = (wait * 2).min(ms(20)) + Duration::from_micros(37);
            }
            0
        })
    });
    let tasks: Vec<_> = patient.chain(hasty).collect();
    let turns = within(MINUTE, "an end", join_all(tasks)).await;
    let turns: u32 = turns.into_iter().map(Result::unwrap).sum();
    assert!(turns > 20, "{turns} turns: somebody slept while the lock was free");
    wait_until("a free lock", SOON, || !setup.exists("busy")).await;
    wait_until("no subscription", SOON, || setup.subscribers("busy") == 0).await;
}

pub(crate) async fn several_clients_that_pass_a_lock_around_never_stall(setup: Setup) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = setup.connect().await;
        for _ in 0..3 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..100 {
                    let start = Instant::now();
                    let guard = soon("a turn", client.lock("around").lock()).await.unwrap();
                    longest = longest.max(start.elapsed());
                    release(guard).await;
                }
                longest
            }));
        }
    }
    // A wake-up that gets lost costs the whole lease of 30 s: longer than `soon`.
    for task in within(MINUTE, "900 turns", join_all(tasks)).await {
        assert!(task.unwrap() < SOON);
    }
}

#[tokio::test]
async fn n10_a_release_before_the_subscription_is_confirmed_is_noticed() {
    for made in [false, true] {
        let setup = Setup::alone();
        let proxy = setup.proxy();
        let client = setup.client_through(&proxy).await;
        setup.hold_by_hand("early", "somebody:1", MINUTE);
        proxy.hold("SUBSCRIBE");
        let waiter = waiting(&client, "early");
        wait_until("a subscription on its way", SOON, || proxy.faults() == 1).await;
        if made {
            proxy.stall_replies(true);
            proxy.let_go();
            wait_until("a confirmation on its way", SOON, || proxy.withheld() == 1).await;
        }
        assert_eq!(setup.subscribers("early"), u64::from(made));
        // Without a message, which would come behind the confirmation and hide that nobody looks.
        setup.ask::<()>("DEL", "early", &[]);
        if made {
            proxy.stall_replies(false);
        } else {
            proxy.let_go();
        }
        release(soon("the lock", waiter).await.unwrap()).await;
    }
}
