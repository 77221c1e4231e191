//! Calls that talk to Redis when they are dropped, or wait for something else.

use super::*;

in_both_flavours! {
    c1_an_acquisition_of_a_free_name_dropped_anywhere_leaves_it_free
    c1_a_nested_acquisition_dropped_anywhere_leaves_the_outer_hold
    c2_an_unlock_dropped_anywhere_gives_the_hold_back
    c2_a_nested_unlock_dropped_anywhere_gives_one_hold_back
    a_question_dropped_anywhere_changes_nothing
    a_forced_unlock_dropped_anywhere_leaves_it_held_or_free
    waiting_for_a_loss_can_be_dropped_and_begun_again
    work_dropped_with_run_until_lost_leaves_the_hold
    a_connect_dropped_anywhere_leaves_no_connection
    a_close_dropped_anywhere_still_gives_everything_back
    c1_a_handle_whose_call_was_dropped_works_at_once
}

async fn c1_an_acquisition_of_a_free_name_dropped_anywhere_leaves_it_free() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    // Also while Redis learns the script, which takes more awaits.
    let cases = TAKES.into_iter().flat_map(|take| [(take, false), (take, true)]);
    for ((call, take), flushed) in cases {
        at_every_await(async |polls, turns| {
            let name = format!("{call}:{flushed}:{polls}:{turns}");
            let lock = client.lock(&name);
            if flushed {
                server.ask::<()>(&["SCRIPT", "FLUSH"]);
            }
            let finished = step(take(&lock), polls, turns).await.is_some();
            traces.until_free(&client, &name).await;
            finished
        })
        .await;
    }
    traces.were_short(&server);
}

async fn c1_a_nested_acquisition_dropped_anywhere_leaves_the_outer_hold() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    for (call, take) in TAKES {
        at_every_await(async |polls, turns| {
            let lock = client.lock(format!("{call}:{polls}:{turns}"));
            let outer = hold(&lock).await;
            let finished = step(take(&lock), polls, turns).await.is_some();
            traces.until_held_once(&lock).await;
            assert!(!outer.is_lost());
            release(outer).await;
            finished
        })
        .await;
    }
    traces.were_short(&server);
}

async fn c2_an_unlock_dropped_anywhere_gives_the_hold_back() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    at_every_await(async |polls, turns| {
        let name = format!("unlock:{polls}:{turns}");
        let guard = hold(&client.lock(&name)).await;
        let progress = step(guard.unlock(), polls, turns).await;
        traces.until_free(&client, &name).await;
        progress.is_some_and(|unlocked| unlocked.map(|()| true).expect("unlocking"))
    })
    .await;
    traces.were_short(&server);
}

async fn c2_a_nested_unlock_dropped_anywhere_gives_one_hold_back() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut traces = Traces::default();
    at_every_await(async |polls, turns| {
        let lock = client.lock(format!("nested unlock:{polls}:{turns}"));
        let (outer, inner) = (hold(&lock).await, hold(&lock).await);
        let finished = step(inner.unlock(), polls, turns).await.is_some();
        traces.until_held_once(&lock).await;
        release(outer).await;
        finished
    })
    .await;
    traces.were_short(&server);
}

async fn a_question_dropped_anywhere_changes_nothing() {
    type Ask = fn(&Lock) -> BoxFuture<'_, bool>;
    let questions: [Ask; 4] = [
        |lock| lock.is_locked().map(Result::unwrap).boxed(),
        |lock| lock.is_held().map(Result::unwrap).boxed(),
        |lock| lock.hold_count().map(|count| count.unwrap() == 1).boxed(),
        |lock| lock.remaining_lease().map(|left| left.unwrap() > Some(ms(1000))).boxed(),
    ];
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("asked");
    let guard = hold(&lock).await;
    for question in questions {
        at_every_await(async |polls, turns| {
            let answer = step(question(&lock), polls, turns).await;
            assert_ne!(answer, Some(false), "a wrong answer after a dropped question");
            answer.is_some()
        })
        .await;
    }
    assert_eq!(server.holds("asked").get(guard.owner()), Some(&1));
    release(guard).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

async fn a_forced_unlock_dropped_anywhere_leaves_it_held_or_free() {
    let server = Server::start();
    let client = connect(&server).await;
    at_every_await(async |polls, turns| {
        let name = format!("forced:{polls}:{turns}");
        server.hold_by_hand(&name, "another:1", MINUTE);
        let lock = client.lock(&name);
        let progress = step(lock.force_unlock(), polls, turns).await;
        if polls == 0 {
            assert!(server.exists(&name), "nothing was sent");
        }
        // Goes behind what was sent.
        let freed = soon("freeing", lock.force_unlock()).await.expect("freeing");
        assert!(!server.exists(&name));
        let first = progress.map(|first| first.expect("freeing"));
        assert!(first.is_none_or(|first| first && !freed), "freed once");
        first.is_some()
    })
    .await;
}

async fn waiting_for_a_loss_can_be_dropped_and_begun_again() {
    let server = Server::start();
    let client = client_with(server.url(), ms(3000)).await;
    let lock = client.lock("loss");
    let guard = hold(&lock).await;
    for turns in TURNS {
        for polls in 0..4 {
            assert!(step(guard.lost(), polls, turns).await.is_none());
        }
    }
    assert!(!guard.is_lost());
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    server.ask::<()>(&["DEL", "loss"]);
    soon("the loss is told", guard.lost()).await;
    assert!(step(guard.lost(), 1, 0).await.is_some(), "and stays told");
}

async fn work_dropped_with_run_until_lost_leaves_the_hold() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("work");
    let guard = hold(&lock).await;
    at_every_await(async |polls, turns| {
        let alive = Arc::new(());
        let part = alive.clone();
        let work = async {
            let _part = part;
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
        };
        let finished = step(guard.run_until_lost(work), polls, turns).await.is_some();
        assert_eq!(Arc::strong_count(&alive), 1, "the work outlives the call");
        assert!(!guard.is_lost());
        finished
    })
    .await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    release(guard).await;
}

async fn a_connect_dropped_anywhere_leaves_no_connection() {
    let server = Server::start();
    at_every_await(async |polls, turns| {
        let progress = step(LockClient::connect(server.url()), polls, turns).await;
        progress.is_some_and(|client| client.map(|_| true).expect("connecting"))
    })
    .await;
    // The one that asks is always there.
    let clients = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count();
    wait_until("all connections are closed", SOON, || clients() == 1).await;
}

async fn a_close_dropped_anywhere_still_gives_everything_back() {
    let server = Server::start();
    at_every_await(async |polls, turns| {
        let client = connect(&server).await;
        let mut guards = Vec::new();
        for n in 0..20 {
            guards.push(hold(&client.lock(format!("{n}"))).await);
        }
        drop(guards);
        let finished = step(client.close(), polls, turns).await.is_some();
        let refused = client.lock("new").is_locked().await.is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::Closed);
            true
        });
        assert_eq!(refused, polls > 0, "from its first poll it is closed");
        if !finished {
            let none = || server.ask::<u64>(&["DBSIZE"]) == 0;
            wait_until("all guards are given back", SOON, none).await;
            soon("closing", client.close()).await;
        }
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
        finished
    })
    .await;
}

async fn c1_a_handle_whose_call_was_dropped_works_at_once() {
    let server = Server::start();
    let client = connect(&server).await;
    for (call, take) in TAKES {
        at_every_await(async |polls, pause| {
            let lock = client.lock(format!("{call}:{polls}:{pause}"));
            let finished = step(take(&lock), polls, pause).await.is_some();
            // Whatever the dropped call still owes must not get in the way, now or later.
            let guard = hold(&lock).await;
            assert_eq!(server.holds(lock.name()).get(guard.owner()), Some(&1));
            turns(20).await;
            assert_eq!(lock.hold_count().await.unwrap(), 1);
            release(guard).await;
            assert!(!server.exists(lock.name()));
            finished
        })
        .await;
    }
}
