//! The fair lock: first come, first served over all clients. Nobody barges, a waiter that goes gives
//! its entry up, a client that cannot come is passed over, and an entry cannot be lost.

use std::sync::Mutex;

use tokio_test::task::Spawn;

use crate::prelude::*;

pub(crate) use fenced::a_fenced_fair_lock_is_a_fenced_lock;

mod absent_clients;
mod cluster;
mod fenced;
mod figures;
mod first;
mod granted;
mod inside;
mod lost;

/// The keys of a queue.
fn queue_keys(name: &str) -> [String; 2] {
    let tagged = if name.contains('{') { format!(":{name}") } else { format!("{{{name}}}") };
    ["redlatch_queue", "redlatch_waiting"].map(|key| format!("{key}:{tagged}"))
}

/// How many clients are in the queue.
fn entries(setup: &Setup, name: &str) -> u64 {
    setup.ask_key("ZCARD", &queue_keys(&setup.key(name))[0])
}

/// The clients in the queue, those that came first in front.
fn queue(server: &Server, name: &str) -> Vec<String> {
    server.ask(&["ZRANGE", &queue_keys(name)[0], "0", "-1"])
}

/// The client that a handle belongs to.
fn client_of(lock: &FairLock) -> String {
    lock.owner().rsplit_once(':').expect("an owner").0.to_owned()
}

/// A server, and so many clients of it.
async fn clients<const MANY: usize>() -> (Server, [LockClient; MANY]) {
    clients_with(SECOND).await
}

/// So many clients with that grace.
async fn clients_with<const MANY: usize>(grace: Duration) -> (Server, [LockClient; MANY]) {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).fair_grace(grace);
    let clients = join_all((0..MANY).map(|_| soon("connecting", builder.clone().connect()))).await;
    let clients: Vec<_> = clients.into_iter().map(|one| one.expect("connecting")).collect();
    (server, clients.try_into().expect("so many"))
}

/// A task that waits for the lock.
fn call(lock: FairLock) -> JoinHandle<LockGuard> {
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

/// A task that waits for the lock, and whose client stands in the queue by now. Who comes next comes
/// later than a round trip.
async fn waiter(server: &Server, lock: FairLock) -> JoinHandle<LockGuard> {
    waiter_then(server, lock, |guard| guard).await
}

/// The same, which does something with the guard as soon as it has it.
async fn waiter_then<T: Send + 'static>(
    server: &Server,
    lock: FairLock,
    then: impl FnOnce(LockGuard) -> T + Send + 'static,
) -> JoinHandle<T> {
    let name = lock.name().to_owned();
    let client = client_of(&lock);
    let task = tokio::spawn(async move { then(lock.lock().await.expect("a turn")) });
    let listens = || mode(server, &name, &client).is_some_and(|mode| mode != "arriving");
    wait_until("an entry in the queue", SOON, || {
        queue(server, &name).contains(&client) && listens()
    })
    .await;
    apart().await;
    task
}

/// What that client can do when its turn comes, as far as Redis knows: nothing yet, if it is `arriving`.
fn mode(server: &Server, name: &str, client: &str) -> Option<String> {
    server.ask(&["HGET", &queue_keys(name)[1], &format!("mode:{client}")])
}

/// Whether that client has an entry, and Redis can grant the lock to it.
fn takes_grants(server: &Server, name: &str, client: &str) -> bool {
    mode(server, name, client).as_deref() == Some("grant")
}

/// Polls a call until it is parked, and Redis can grant the lock to its client.
async fn park<T: Future>(server: &Server, client: &str, name: &str, call: &mut Spawn<T>) {
    wait_until("a grant that could come", SOON, || {
        assert!(call.poll().is_pending());
        takes_grants(server, name, client)
    })
    .await;
    // The answer is on its way.
    apart().await;
    assert!(call.poll().is_pending());
}

/// They have the lock in this order, and leave nothing.
async fn take_turns(server: &Server, waiters: impl IntoIterator<Item = JoinHandle<LockGuard>>) {
    let mut waiters: Vec<_> = waiters.into_iter().collect();
    while !waiters.is_empty() {
        let guard = soon("a turn", waiters.remove(0)).await.unwrap();
        assert!(waiters.iter().all(|later| !later.is_finished()), "two have the lock");
        release(guard).await;
    }
    nothing_is_left(server).await;
}

/// Waits until nothing of that name is left in Redis, and that nothing is eternal until then.
async fn nothing_is_left(server: &Server) {
    wait_until("nothing left", SOON, || {
        let keys: Vec<String> = server.ask(&["KEYS", "*"]);
        for key in &keys {
            assert_ne!(server.ask::<i64>(&["PTTL", key]), -1, "{key} has no end");
        }
        keys.is_empty()
    })
    .await;
}

pub(crate) async fn a_fair_lock_is_a_lock(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.fair_lock("simple");
    assert_eq!(lock.name(), "simple");
    let guard = hold(&lock).await;
    assert_eq!(setup.holds("simple").keys().collect::<Vec<_>>(), [guard.owner()]);
    assert!(lock.is_held().await.unwrap() && lock.is_locked().await.unwrap());
    let inner = lock.try_lock_now().await.unwrap().expect("a nested hold");
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    let other = lock.clone();
    assert!(other.try_lock_now().await.unwrap().is_none());
    assert!(other.try_lock(ms(30), MINUTE).await.unwrap().is_none());
    release(inner).await;
    assert!(other.is_locked().await.unwrap() && !other.is_held().await.unwrap());
    release(guard).await;
    let lease = setup.stretch(ms(300));
    let short = other.lock_with_lease(lease).await.unwrap();
    assert!(lock.remaining_lease().await.unwrap().is_some_and(|left| left <= lease));
    soon("the loss", short.lost()).await;
    assert_eq!(short.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(hold(&lock).await);
    wait_until("a free lock", SOON, || !setup.exists("simple")).await;
    let guard = hold(&lock).await;
    assert!(other.force_unlock().await.unwrap());
    assert!(!setup.exists("simple"));
    drop(guard);
}

pub(crate) async fn waiters_of_three_clients_are_served_in_the_order_in_which_they_came(
    setup: Setup,
) {
    const WAITERS: usize = 12;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(setup.connect().await);
    }
    let holder = hold(&clients[0].fair_lock("order")).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    // Not in rounds: one client comes twice in a row, too.
    for number in 0..WAITERS {
        let client = [0, 1, 2, 2, 1, 0, 0][number % 7];
        let (lock, order) = (clients[client].fair_lock("order"), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(number);
            release(guard).await;
        }));
        // The first of each client has an entry when Redis knows its client, the others when they
        // have run so far as to stand in the wait queue.
        let expected = 3.min(number as u64 + 1);
        wait_until("an entry in the queue", SOON, || entries(&setup, "order") == expected).await;
        far_apart().await;
    }
    release(holder).await;
    for task in tasks {
        soon("a turn", task).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_call_that_does_not_wait_goes_before_nobody() {
    let (server, [one, other]) = clients().await;
    let guard = hold(&one.fair_lock("barge")).await;
    let waiting = waiter(&server, other.fair_lock("barge")).await;
    // Its client listens, and does not come: the lock is free, and its own.
    let keys = queue_keys("barge");
    let client = queue(&server, "barge").remove(0);
    server.ask::<()>(&["DEL", "barge"]);
    server.ask::<()>(&["HSET", &keys[1], "notified", &client]);
    assert!(one.fair_lock("barge").try_lock_now().await.unwrap().is_none());
    drop(guard);
    server.ask::<()>(&["HDEL", &keys[1], "notified"]);
    // The next that asks finds whose turn it is, and tells it.
    assert!(one.fair_lock("barge").try_lock_now().await.unwrap().is_none());
    release(soon("its turn", waiting).await.unwrap()).await;
    assert!(one.fair_lock("barge").try_lock_now().await.unwrap().is_some());
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_wait_that_is_over_gives_its_entry_up_and_leaves_nothing() {
    let (server, [one, other]) = clients().await;
    let guard = hold(&one.fair_lock("over")).await;
    for _ in 0..3 {
        assert!(other.fair_lock("over").try_lock(ms(60), MINUTE).await.unwrap().is_none());
        wait_until("no entry", SOON, || queue(&server, "over").is_empty()).await;
    }
    release(guard).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_waiter_that_leaves_others_behind_moves_the_entry_of_its_client_back() {
    let (server, [holder, one, other]) = clients().await;
    let guard = hold(&holder.fair_lock("back")).await;
    let first = waiter(&server, one.fair_lock("back")).await;
    let second = waiter(&server, other.fair_lock("back")).await;
    let third = waiter(&server, one.fair_lock("back")).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    release(guard).await;
    take_turns(&server, [second, third]).await;
}

#[tokio::test]
async fn a_plain_lock_and_a_fair_one_of_that_name_exclude_each_other() {
    let setup = Setup::alone();
    let (one, other) = (setup.connect().await, setup.connect().await);
    let (plain, fair) = (one.lock("mixed"), other.fair_lock("mixed"));
    let guard = hold(&plain).await;
    assert!(fair.try_lock_now().await.unwrap().is_none());
    let waiting = call(fair);
    wait_until("an entry", SOON, || entries(&setup, "mixed") == 1).await;
    release(guard).await;
    // Nobody tells it: it notices when it refreshes its entry.
    let guard = soon("a refresh", waiting).await.unwrap();
    assert!(plain.try_lock_now().await.unwrap().is_none());
    // The waiter of a plain lock is told.
    let waiting = tokio::spawn(async move { plain.lock().await.unwrap() });
    wait_until("a subscription", SOON, || setup.subscribers("mixed") == 1).await;
    // It has asked once more by then.
    apart().await;
    release(guard).await;
    // The lease would have ended later.
    release(soon("a message", waiting).await.unwrap()).await;
}

#[tokio::test]
async fn x6_something_else_where_the_queue_belongs_is_named_and_stays() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).name_prefix("app:");
    let clients = [builder.clone().connect().await.unwrap(), builder.connect().await.unwrap()];
    let cases = [("one", 0), ("two", 1), ("{one}", 0), ("{two}", 1)];
    let cases = cases.map(|(name, place)| something_else(&server, &clients, name, place));
    futures::future::join_all(cases).await;
    nothing_is_left(&server).await;
}

async fn something_else(
    server: &Server,
    [client, far]: &[LockClient; 2],
    name: &str,
    place: usize,
) {
    let full = format!("app:{name}");
    let (lock, key) = (client.fair_lock(name), &queue_keys(&full)[place]);
    let guard = hold(&lock).await;
    let other = client.fair_lock(name);
    let second = tokio::spawn(async move { other.lock().await });
    let parked = || takes_grants(server, &full, &client_of(&lock));
    wait_until("a grant that could come", SOON, parked).await;
    apart().await;
    server.ask::<()>(&["SET", key, "data", "PX", "60000"]);
    let third = far.fair_lock(name);
    // The second finds out when it refreshes its entry.
    for error in [
        third.lock().await.map(drop).unwrap_err(),
        third.try_lock(ms(100), MINUTE).await.map(drop).unwrap_err(),
        soon("the second", second).await.unwrap().map(drop).unwrap_err(),
    ] {
        let says = format!(
            "the key `{key}` in Redis at 127.0.0.1:{}, where the queue of the fair lock `{full}` \
             belongs, holds something else; delete that key, or give the lock another name, or the \
             client a `name_prefix`",
            server.port()
        );
        assert_eq!(error.to_string(), says);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::NotALock, Outcome::NotExecuted));
        assert_eq!(error.lock_name(), Some(name));
    }
    // Who has the lock is not concerned.
    release(guard).await;
    assert_eq!(server.ask::<String>(&["GET", key]), "data");
    server.ask::<()>(&["DEL", key]);
    release(hold(&third).await).await;
}

/// Every turn is one, whatever gives up meanwhile.
pub(crate) async fn many_waiters_that_come_and_give_up_all_have_their_turns(setup: Setup) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = setup.connect().await;
        for patient in [true, true, false] {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..20 {
                    let lock = client.fair_lock("crowd");
                    if patient {
                        release(soon("a turn", lock.lock()).await.unwrap()).await;
                    } else if let Some(guard) =
                        lock.try_lock(ms(round), Lease::Watchdog).await.unwrap()
                    {
                        drop(guard);
                    }
                }
            }));
        }
    }
    for task in tasks {
        crate::support::within(MINUTE, "the turns", task).await.unwrap();
    }
    wait_until("a free lock", SOON, || !setup.exists("crowd")).await;
    wait_until("no entry", SOON, || entries(&setup, "crowd") == 0).await;
}
