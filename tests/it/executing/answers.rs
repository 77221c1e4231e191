//! An answer that is lost, late or not awaited: the commands are executed once or not at all, and
//! never when the handle does not hold the lock any more.

use super::*;
use crate::cancellation::{at_every_await, step};

/// No renewal comes in between.
async fn scene(command_timeout: Duration) -> Far {
    Far::with(|with| with.watchdog_timeout(2 * MINUTE).command_timeout(command_timeout)).await
}

impl Far {
    fn counted(&self) -> i64 {
        self.server.ask::<Option<i64>>(&["GET", "count"]).unwrap_or(0)
    }

    /// A waiter of that name that rests: subscribed, and refused once more.
    async fn parked(&self, name: &str) -> JoinHandle<LockGuard> {
        let asked = self.server.calls("evalsha");
        let waiter = waiting(&self.client, name);
        let rests =
            || self.server.subscribers(name) == 1 && self.server.calls("evalsha") >= asked + 2;
        wait_until("a waiter", SOON, rests).await;
        self.proxy.settled(ms(50)).await;
        waiter
    }

    /// Begins to count, and returns when the request is held back.
    async fn held_back(&self, guard: &Arc<LockGuard>) -> JoinHandle<Result<i64, Error>> {
        let (guard, held) = (guard.clone(), self.proxy.held());
        self.proxy.plan("EVALSHA", 1, Fault::HoldBack);
        let call = tokio::spawn(async move { guard.execute(&count()).await });
        wait_until("a request that is held back", SOON, || self.proxy.held() > held).await;
        call
    }

    /// Nobody awaits the answer any more.
    async fn held_back_and_dropped(&self, guard: &Arc<LockGuard>) {
        let call = self.held_back(guard).await;
        call.abort();
        assert!(call.await.expect_err("aborted").is_cancelled());
    }
}

fn count() -> Pipeline {
    let mut count = pipe();
    count.incr("count", 1);
    count
}

fn sole(guard: Arc<LockGuard>) -> LockGuard {
    Arc::into_inner(guard).expect("the only one")
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_commands_are_not_sent_again() {
    for (fault, executions) in [(Fault::ResetBeforeSend, 0), (Fault::DropReplyAndReset, 1)] {
        let scene = scene(SOON).await;
        let guard = hold(&scene.client.lock("lost")).await;
        executed::<i64>(&guard, &count()).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        let answer = soon("an error", guard.execute::<i64>(&count())).await;
        failed(answer, ErrorKind::Unavailable, Outcome::Unknown);
        assert_eq!(scene.proxy.faults(), 1);
        // The next ones come behind it.
        assert_eq!(executed::<i64>(&guard, &count()).await, 2 + executions, "{fault:?}");
        release(guard).await;
        assert_eq!(scene.counted(), 2 + executions);
    }
}

#[tokio::test]
async fn what_was_not_sent_is_not_executed() {
    let scene = scene(ms(1_200)).await;
    let guard = hold(&scene.client.lock("unreached")).await;
    scene.proxy.refuse(true);
    assert!(scene.proxy.cut_all() > 0);
    // By then it knows that its connections are gone.
    wait_until("no connection", SOON, || !scene.client.health().is_ready()).await;
    let answer = soon("an error", guard.execute::<i64>(&count())).await;
    failed(answer, ErrorKind::Unavailable, Outcome::NotExecuted);
    scene.proxy.refuse(false);
    drop(guard);
    wait_until("a free lock", SOON, || !scene.server.exists("unreached")).await;
    assert_eq!(scene.counted(), 0);
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_script_executes_it_once() {
    let scene = scene(SOON).await;
    let guard = hold(&scene.client.lock("flushed")).await;
    scene.server.ask::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(executed::<i64>(&guard, &count()).await, 1);
    release(guard).await;
}

#[tokio::test]
async fn the_lock_goes_to_no_one_while_commands_may_be_executed_that_nobody_awaits() {
    let scene = scene(SOON).await;
    let guard = Arc::new(hold(&scene.client.lock("dropped")).await);
    let waiter = scene.parked("dropped").await;
    scene.held_back_and_dropped(&guard).await;
    drop(sole(guard));
    // It would have been handed off inside the client at once.
    tokio::time::sleep(ms(200)).await;
    assert!(!waiter.is_finished(), "another holder beside commands of the one before");
    assert_eq!(scene.counted(), 0);
    scene.proxy.let_go();
    let next = soon("the lock", waiter).await.expect("no panic");
    assert_eq!(scene.counted(), 1, "executed behind the hand-off, or not at all");
    release(next).await;
}

/// Several at once: the guards are dropped while the client's thread has much to do.
#[tokio::test]
async fn the_lock_goes_to_no_one_while_commands_may_be_executed_that_were_not_answered() {
    const MANY: usize = 20;
    let scene = scene(ms(1_200)).await;
    let names: Vec<_> = (0..MANY).map(|number| format!("silent:{number}")).collect();
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for name in &names {
        guards.push(hold(&scene.client.lock(name)).await);
        waiters.push(scene.parked(name).await);
    }
    // Nothing newer comes by that would have their connection closed.
    scene.proxy.hold("CLIENT");
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBackFor(ms(3_600)));
    let calls = guards.into_iter().map(|guard| async move {
        let answer = guard.execute::<i64>(&count()).await;
        drop(guard);
        answer
    });
    for answer in join_all(calls).await {
        failed(answer, ErrorKind::Unavailable, Outcome::Unknown);
    }
    wait_until("the late commands", SOON, || {
        let granted = waiters.iter().any(JoinHandle::is_finished);
        let executed = scene.counted() == MANY as i64;
        assert!(executed || !granted, "another holder beside commands of the one before");
        executed
    })
    .await;
    scene.proxy.let_go();
    for waiter in waiters {
        drop(soon("the lock", waiter).await.expect("no panic"));
    }
    assert_eq!(scene.counted(), MANY as i64);
    let held = || names.iter().any(|name| scene.server.exists(name));
    wait_until("free locks", SOON, || !held()).await;
}

#[tokio::test]
async fn a_handle_acquires_again_only_behind_commands_that_nobody_awaits() {
    let scene = scene(SOON).await;
    let lock = Arc::new(scene.client.lock("again"));
    let guard = Arc::new(lock.lock_with_lease(ms(1_200)).await.expect("the lock"));
    scene.held_back_and_dropped(&guard).await;
    soon("the loss", guard.lost()).await;
    wait_until("a free lock", SOON, || !scene.server.exists("again")).await;
    // Its connection is another one, which nothing holds up.
    let handle = lock.clone();
    let again = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async move { hold(&handle).await })
    });
    tokio::time::sleep(ms(200)).await;
    assert!(!scene.server.exists("again"), "acquired before the commands were over");
    scene.proxy.let_go();
    wait_until("the lock", SOON, || scene.server.exists("again")).await;
    assert_eq!(scene.counted(), 0, "executed under the next hold");
    let again = again.join().expect("no panic");
    drop(guard);
    release(again).await;
}

#[tokio::test]
async fn a_future_that_is_dropped_anywhere_leaves_a_lock_that_works() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("anywhere")).await;
    let mut before = 0;
    at_every_await(async |polls, turns| {
        let finished = step(guard.execute::<i64>(&count()), polls, turns).await.is_some();
        let now: i64 = executed(&guard, pipe().incr("count", 0)).await;
        assert!((before..=before + 1).contains(&now), "executed {} times", now - before);
        before = now;
        finished
    })
    .await;
    assert!(before > 0, "nothing was dropped half-way");
    release(guard).await;
}

#[tokio::test]
async fn a_guard_that_was_handed_the_lock_waits_until_redis_has_confirmed_that() {
    let scene = scene(SOON).await;
    let guard = hold(&scene.client.lock("handed")).await;
    let waiter = scene.parked("handed").await;
    // A waiter that has not read its answer yet is handed nothing.
    scene.proxy.settled(ms(600)).await;
    let held = scene.proxy.held();
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let unlock = tokio::spawn(guard.unlock());
    let guard = Arc::new(soon("the lock", waiter).await.expect("no panic"));
    wait_until("a hand-off that is held back", SOON, || scene.proxy.held() > held).await;
    let counting = guard.clone();
    let call = tokio::spawn(async move { counting.execute::<i64>(&count()).await });
    tokio::time::sleep(ms(100)).await;
    assert!(!call.is_finished());
    scene.proxy.let_go();
    assert_eq!(soon("an answer", call).await.expect("no panic").expect("held"), 1);
    soon("unlocking", unlock).await.expect("no panic").expect("unlocked");
    release(sole(guard)).await;
}

/// A refusal is an answer, too. Else the handle would wait until the lease could have ended.
#[tokio::test]
async fn a_handle_goes_on_behind_commands_that_nobody_awaits_whatever_redis_answers() {
    let scene = scene(SOON).await;
    let narrow = |keys| scene.server.ask::<()>(&["ACL", "SETUSER", "narrow", "resetkeys", keys]);
    scene.server.ask::<()>(&["ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", "+@all"]);
    let url = scene.proxy.url(&scene.server).replace("redis://", "redis://narrow:pass@");
    let builder = LockClient::builder().url(url).watchdog_timeout(2 * MINUTE);
    let client = connected(builder.command_timeout(ms(1_500))).await;
    let guard = Arc::new(hold(&client.lock("refused")).await);
    scene.held_back_and_dropped(&guard).await;
    narrow("~other");
    scene.proxy.let_go();
    let answer = soon("an answer", guard.extend(MINUTE)).await;
    failed(answer, ErrorKind::Server, Outcome::NotExecuted);
    narrow("~*");
    soon("an answer", guard.extend(MINUTE)).await.expect("still held");
    release(sole(guard)).await;
}
