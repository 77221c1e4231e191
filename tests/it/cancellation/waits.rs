//! Calls that stand in line when they are dropped.

use super::*;

in_both_flavours! {
    c2_a_waiter_dropped_anywhere_leaves_no_subscription
    c2_a_waiter_dropped_after_its_wake_up_leaves_the_name_free_or_hands_it_on
    c2_a_sibling_goes_on_when_another_is_dropped
}

/// Polls the waiter whenever it was woken, until it is subscribed and parked.
async fn park<F: Future>(server: &Server, name: &str, waiter: &mut task::Spawn<F>) {
    let start = Instant::now();
    let mut woken = Instant::now();
    assert!(waiter.poll().is_pending());
    // After the subscription it asks once more; then it stays where it is.
    while server.subscribers(name) == 0 || woken.elapsed() < ms(25) {
        assert!(start.elapsed() < SOON, "the waiter of {name} does not park");
        if waiter.is_woken() {
            woken = Instant::now();
            assert!(waiter.poll().is_pending(), "{name} was held");
        }
        tokio::time::sleep(ms(1)).await;
    }
}

async fn c2_a_waiter_dropped_anywhere_leaves_no_subscription() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    for (call, take) in &TAKES[..3] {
        for turns in [0, 1, 30] {
            for polls in 0..6 {
                let name = format!("{call}:{polls}:{turns}");
                server.hold_by_hand(&name, "another:1", MINUTE);
                let lock = client.lock(&name);
                assert!(step(take(&lock), polls, turns).await.is_none());
                no_subscriptions(&server).await;
                assert_eq!(server.holds(&name).into_keys().collect::<Vec<_>>(), ["another:1"]);
                server.free_by_hand(&name);
                traces.until_free(&client, &name).await;
            }
        }
    }
    traces.were_short(&server);
}

/// Parks a waiter, frees the name, polls the woken waiter so many times and drops it. `behind` is
/// parked in the same line. True if the waiter came to its guard.
async fn drop_when_woken(
    server: &Server,
    lock: &Lock,
    take: Take,
    polls: usize,
    behind: Option<&mut BoxFuture<'_, LockGuard>>,
) -> bool {
    let name = lock.name();
    server.hold_by_hand(name, "another:1", MINUTE);
    let mut waiter = task::spawn(take(lock));
    park(server, name, &mut waiter).await;
    if let Some(behind) = behind {
        assert!(futures::poll!(behind).is_pending());
    }
    server.free_by_hand(name);
    wait_until("the wake-up arrives", SOON, || waiter.is_woken()).await;
    for poll in 0..polls {
        if poll > 0 {
            wait_until("it is woken again", SOON, || waiter.is_woken()).await;
        }
        if waiter.poll().is_ready() {
            return true;
        }
    }
    false
}

async fn c2_a_waiter_dropped_after_its_wake_up_leaves_the_name_free_or_hands_it_on() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    let cases = TAKES[..3].iter().flat_map(|take| [(take, false), (take, true)]);
    for ((call, take), is_followed) in cases {
        for polls in 0.. {
            assert!(polls < MANY, "it was woken and never has the lock");
            let name = format!("{call}:{is_followed}:{polls}");
            let (lock, next) = (client.lock(&name), client.lock(&name));
            let mut next = next.lock().map(|guard| guard.expect("its turn")).boxed();
            let behind = is_followed.then_some(&mut next);
            let finished = drop_when_woken(&server, &lock, *take, polls, behind).await;
            if is_followed {
                // Unaided it would look again after 30 s.
                release(soon("the next in line has the lock", next).await).await;
            } else {
                traces.until_free(&client, &name).await;
                no_subscriptions(&server).await;
            }
            if finished {
                break;
            }
        }
    }
    no_subscriptions(&server).await;
    traces.were_short(&server);
}

async fn c2_a_sibling_goes_on_when_another_is_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    for first_goes in [true, false] {
        for woken in [true, false] {
            let name = format!("siblings:{first_goes}:{woken}");
            server.hold_by_hand(&name, "another:1", MINUTE);
            let lock = client.lock(&name);
            let (mut first, mut second) = (task::spawn(lock.lock()), lock.lock().boxed());
            park(&server, &name, &mut first).await;
            // The second of one handle stands behind the first.
            assert!(futures::poll!(&mut second).is_pending());
            if woken {
                server.free_by_hand(&name);
                wait_until("the wake-up arrives", SOON, || first.is_woken()).await;
            }
            let other: BoxFuture<'_, _> = if first_goes {
                drop(first);
                second
            } else {
                drop(second);
                first.boxed()
            };
            if !woken {
                server.free_by_hand(&name);
            }
            let guard = soon("the other has the lock", other).await.expect("locking");
            assert_eq!(lock.hold_count().await.unwrap(), 1);
            release(guard).await;
            assert!(is_free(&client, &name).await);
        }
    }
    no_subscriptions(&server).await;
}
