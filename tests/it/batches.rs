//! Requests of many locks that share a call: fewer commands than names, each request judged on its
//! own, and nothing left behind by one whose caller has gone.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::FutureExt;

use crate::prelude::*;

const MANY: usize = 64;

fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("lock:{number}")).collect()
}

fn locks(client: &LockClient) -> Vec<Lock> {
    names().iter().map(|name| client.lock(name)).collect()
}

/// All of them at once, in the order of the locks.
async fn lock_all(locks: &[Lock]) -> Vec<Result<LockGuard, Error>> {
    soon("locking", join_all(locks.iter().map(Lock::lock))).await
}

async fn unlock_all(guards: impl IntoIterator<Item = LockGuard>) {
    for unlocked in soon("unlocking", join_all(guards.into_iter().map(LockGuard::unlock))).await {
        unlocked.expect("unlocking");
    }
}

/// Nobody holds anything.
fn assert_nothing_is_left(server: &Server) {
    server.assert_clean();
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "lock:*"]), [""; 0]);
}

async fn hold_all(locks: &[Lock]) -> Vec<LockGuard> {
    lock_all(locks).await.into_iter().map(|guard| guard.expect("locking")).collect()
}

/// A client as after its first locks, and more of them: the server knows the scripts.
async fn warm(builder: LockClientBuilder) -> (LockClient, Vec<Lock>) {
    let client = connected(builder).await;
    unlock_all(hold_all(&locks(&client)).await).await;
    let locks = locks(&client);
    (client, locks)
}

#[tokio::test]
async fn requests_that_come_while_others_are_under_way_share_calls() {
    let (server, proxy) = proxied();
    let (_client, locks) = warm(LockClient::builder().url(proxy.url(&server))).await;
    let all_count = |guards: &[LockGuard], count| {
        let count_of = |guard: &LockGuard| server.holds(guard.name()).get(guard.owner()).copied();
        guards.iter().all(|guard| count_of(guard) == Some(count))
    };
    let mut held = Vec::new();
    for count in 1..=2 {
        proxy.forget_commands();
        held.push(hold_all(&locks).await);
        // Two leave at once, and the rest with at most 32 to a call.
        assert_eq!(proxy.sent("EVALSHA"), 4);
        assert!(all_count(&held[0], count), "not {count} of each");
    }
    while let Some(guards) = held.pop() {
        assert!(all_count(&guards, held.len() as u32 + 1));
        proxy.forget_commands();
        unlock_all(guards).await;
    }
    // Of the last holds: a release that leaves some shares no call.
    assert_eq!(proxy.sent("EVALSHA"), 4);
    assert_nothing_is_left(&server);
}

#[tokio::test]
async fn every_answer_goes_to_the_one_who_asked() {
    let server = Server::start();
    let (client, plain) = warm(LockClient::builder().url(server.url())).await;
    let taken: BTreeSet<String> = names().into_iter().skip(1).step_by(3).collect();
    for name in &taken {
        server.hold_by_hand(name, "somebody:1", ms(60_000));
    }
    let names = names();
    let fenced: Vec<_> =
        names.iter().map(|name| client.fenced_lock(format!("fenced:{name}"))).collect();
    // Tokens and plain answers in turns, so that they travel in the same calls.
    let asked = plain.iter().zip(&fenced).map(|(plain, fenced)| async {
        let (plain, fenced) = tokio::join!(plain.try_lock_now(), fenced.lock());
        (plain.expect("an answer"), fenced.expect("a hold"))
    });
    server.reset_stats();
    let answers = soon("locking", join_all(asked)).await;
    assert!(server.calls("evalsha") < MANY as u64, "what was shared?");
    for (name, (guard, fenced)) in names.iter().zip(answers) {
        assert_eq!(guard.is_none(), taken.contains(name), "{name}");
        let key = format!("redisson_lock_token:{{fenced:{name}}}");
        let token: u64 = server.ask(&["GET", &key]);
        assert_eq!(fenced.token().get(), token, "{name}");
        if let Some(guard) = guard {
            release(guard).await;
        }
        soon("unlocking", fenced.unlock()).await.unwrap();
    }
}

#[tokio::test]
async fn one_forbidden_key_hurts_nobody_in_the_same_call() {
    let server = Server::start();
    let keys = ["~lock:?", "~lock:?0", "~lock:?1", "~lock:?2", "~lock:?3"];
    let user = ["ACL", "SETUSER", "user", "on", ">p", "&*", "+@all"];
    server.ask::<()>(&[&user[..], &keys].concat());
    let url = format!("redis://user:p@127.0.0.1:{}/", server.port());
    let client = soon("connecting", LockClient::connect(url)).await.unwrap();
    let allowed = |name: &str| name.len() < "lock:10".len() || name.ends_with(['0', '1', '2', '3']);
    let locks = locks(&client);
    let answers = lock_all(&locks).await;
    let mut guards = Vec::new();
    for (lock, answer) in locks.iter().zip(answers) {
        match answer {
            Ok(guard) if allowed(lock.name()) => guards.push(guard),
            Err(error) if !allowed(lock.name()) => {
                assert_eq!(error.kind(), ErrorKind::Server, "{error:?}");
                assert_eq!(error.outcome(), Outcome::NotExecuted, "{error:?}");
            }
            other => panic!("{}: {other:?}", lock.name()),
        }
    }
    assert!(server.errors("NOPERM") > 0);
    assert!(guards.len() > 20 && guards.len() < MANY);
    unlock_all(guards).await;
    assert_nothing_is_left(&server);
}

#[tokio::test]
async fn full_memory_lets_every_release_through_and_grants_no_half_a_lock() {
    let server = Server::start();
    let (client, held) = warm(LockClient::builder().url(server.url())).await;
    let guards = hold_all(&held).await;
    let others: Vec<_> = (0..MANY).map(|number| client.lock(format!("other:{number}"))).collect();
    server.fill();
    // An acquire, a release, an acquire and so on, in the same calls.
    server.reset_stats();
    let both = guards.into_iter().zip(&others).map(|(guard, other)| async {
        let (acquired, released) = tokio::join!(other.lock(), guard.unlock());
        released.expect("a release");
        acquired
    });
    let acquired = soon("both", join_all(both)).await;
    assert!(server.calls("evalsha") < MANY as u64, "what was shared?");
    assert!(server.errors_in_scripts("OOM") + server.errors("OOM") > 0, "memory was not full");
    server.make_room();
    let mut refused = 0;
    for (other, acquired) in others.iter().zip(acquired) {
        match acquired {
            Ok(guard) => {
                assert!(server.pttl(other.name()) > 0, "{} has no lease", other.name());
                release(guard).await;
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Server, "{error:?}");
            }
        }
    }
    assert!(refused > 0);
    let gone = || held.iter().chain(&others).all(|lock| !server.exists(lock.name()));
    wait_until("the undo of what was refused", SOON, gone).await;
    assert_nothing_is_left(&server);
}

#[tokio::test]
async fn a_cut_under_a_shared_call_costs_nobody_the_answer() {
    let (server, proxy) = proxied();
    let (client, _) = warm(LockClient::builder().url(proxy.url(&server))).await;
    for (nth, fault) in [(3, Fault::DropReplyAndReset), (4, Fault::ResetBeforeSend)] {
        let locks = locks(&client);
        let faults = proxy.faults();
        proxy.plan("EVALSHA", nth, fault);
        let guards = hold_all(&locks).await;
        assert_eq!(proxy.faults(), faults + 1);
        let count = |guard: &LockGuard| server.holds(guard.name()).get(guard.owner()).copied();
        assert!(guards.iter().all(|guard| count(guard) == Some(1)));
        proxy.plan("EVALSHA", nth, fault);
        unlock_all(guards).await;
        assert_eq!(proxy.faults(), faults + 2);
        server.assert_clean();
    }
}

#[tokio::test]
async fn a_shared_call_that_is_not_answered_fails_each_request_in_time_and_is_undone() {
    let (server, proxy) = proxied();
    const LIMIT: Duration = ms(1_000);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(LIMIT);
    let (_client, locks) = warm(builder).await;
    let faults = proxy.faults();
    proxy.plan("EVALSHA", 3, Fault::Mute);
    let begun = Instant::now();
    let timed = locks.iter().map(|lock| lock.lock().map(|answer| (answer, begun.elapsed())));
    let (answers, took): (Vec<_>, Vec<_>) =
        soon("locking", join_all(timed)).await.into_iter().unzip();
    assert_eq!(proxy.faults(), faults + 1);
    assert!(answers[..2].iter().all(Result::is_ok), "{answers:?}");
    assert!(answers[2].is_err(), "the first of the shared call");
    // When that one has had its time, the connection is silent: those that came later may be answered over the next
    // one, in theirs.
    let mut others = answers.iter().zip(&took).skip(2);
    assert!(others.all(|(one, took)| one.is_err() || *took >= LIMIT), "{took:?}");
    let (guards, errors): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    for error in errors.into_iter().map(Result::unwrap_err) {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    }
    unlock_all(guards.into_iter().map(Result::unwrap)).await;
    let gone = || locks.iter().all(|lock| !server.exists(lock.name()));
    wait_until("the undo", SOON, gone).await;
    assert_nothing_is_left(&server);
}

/// Begins to lock two names, which leaves at once, and a third, which takes a seat.
fn two_under_way_and_one_seated<'a>(
    names: &'a [Lock],
) -> (Vec<futures::future::BoxFuture<'a, Result<LockGuard, Error>>>, impl Future + use<'a>) {
    let mut first: Vec<_> = names[..2].iter().map(|lock| lock.lock().boxed()).collect();
    let mut third = names[2].lock().boxed();
    for call in first.iter_mut().chain([&mut third]) {
        assert!(call.now_or_never().is_none());
    }
    (first, third)
}

#[tokio::test]
async fn a_call_that_is_dropped_in_its_seat_is_never_sent() {
    let (server, proxy) = proxied();
    let (_client, locks) = warm(LockClient::builder().url(proxy.url(&server))).await;
    server.reset_stats();
    let (first, third) = two_under_way_and_one_seated(&locks);
    drop(third);
    // Its undo is not held up by the thread that could have sent the request, and comes before.
    block_until("the undo", SOON, || server.calls("evalsha") >= 1);
    let guards = soon("the first two", join_all(first)).await;
    unlock_all(guards.into_iter().map(Result::unwrap)).await;
    proxy.settled(ms(50)).await;
    assert!(!server.exists(locks[2].name()), "a lock that nobody holds");
    // Two pairs and the undo.
    assert_eq!(server.calls("evalsha"), 5);
}

#[tokio::test]
async fn a_call_that_is_dropped_on_its_way_with_others_is_undone() {
    let server = Server::start();
    let (_client, locks) = warm(LockClient::builder().url(server.url())).await;
    for pause in 1..30 {
        let (first, third) = two_under_way_and_one_seated(&locks);
        let mut fourth = locks[3].lock().boxed();
        assert!((&mut fourth).now_or_never().is_none());
        turns(pause).await;
        drop(third);
        let guards = soon("the others", join_all(first)).await;
        unlock_all(guards.into_iter().map(Result::unwrap)).await;
        release(soon("the fourth", fourth).await.unwrap()).await;
        wait_until("the undo", SOON, || !server.exists(locks[2].name())).await;
        // The handle whose call was dropped works at once.
        release(hold(&locks[2]).await).await;
    }
    assert_nothing_is_left(&server);
}

#[tokio::test]
async fn the_undo_of_a_request_that_shares_a_call_waits_until_that_is_over() {
    let (server, proxy) = proxied();
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let (_client, locks) = warm(builder).await;
    server.reset_stats();
    let faults = proxy.faults();
    proxy.plan("EVALSHA", 3, Fault::Mute);
    let (first, third) = two_under_way_and_one_seated(&locks);
    wait_until("a call without an answer", SOON, || server.calls("evalsha") == 3).await;
    assert_eq!(proxy.faults(), faults + 1);
    drop(third);
    // Nothing must follow while the call has no answer and its time is not up.
    tokio::time::sleep(ms(100)).await;
    assert_eq!(server.calls("evalsha"), 3);
    drop(first);
    wait_until("the undo", SOON, || locks.iter().all(|lock| !server.exists(lock.name()))).await;
    assert_nothing_is_left(&server);
}

#[tokio::test]
async fn a_request_waits_for_the_tasks_that_are_ready_to_run_and_for_nothing_else() {
    let (server, proxy) = proxied();
    let (_client, locks) = warm(LockClient::builder().url(proxy.url(&server))).await;
    proxy.forget_commands();
    let (first, third) = two_under_way_and_one_seated(&locks);
    // Quicker than any timer, and nobody reads an answer afterwards.
    turns(20).await;
    block_until("all three requests", SOON, || proxy.sent("EVALSHA") == 3);
    drop((first, third));
    wait_until("the undo", SOON, || locks.iter().all(|lock| !server.exists(lock.name()))).await;
}
