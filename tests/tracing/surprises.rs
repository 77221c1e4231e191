//! Handles that are used in a way that surprises, and calls that wait long: a warning each, once.

use redlatch::Lock;
use tokio::task::JoinHandle;

use super::*;

/// From when on a wait is worth a warning in these tests.
const LONG: Duration = ms(300);

fn warnings() -> Vec<Entry> {
    entries(|entry| entry.level <= Level::INFO)
}

async fn impatient(url: String) -> LockClient {
    connected(LockClient::builder().url(url).warn_waits_longer_than(LONG)).await
}

/// A task that holds the lock until it is told to give it back.
async fn holder(lock: &Arc<Lock>) -> (JoinHandle<()>, tokio::sync::oneshot::Sender<()>) {
    let (give_back, told) = tokio::sync::oneshot::channel::<()>();
    let (has_it, got) = tokio::sync::oneshot::channel();
    let lock = lock.clone();
    let task = tokio::spawn(async move {
        let guard = hold(&lock).await;
        has_it.send(()).expect("the test waits");
        let _ = told.await;
        release(guard).await;
    });
    soon("the lock", got).await.expect("the task holds it");
    (task, give_back)
}

async fn ends((task, give_back): (JoinHandle<()>, tokio::sync::oneshot::Sender<()>)) {
    drop(give_back);
    soon("its end", task).await.expect("no panic");
}

#[tokio::test]
async fn a_handle_that_two_tasks_are_inside_by_is_one_warning() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let lock = Arc::new(client.lock("shared"));
        // One task after the other, and a task that nests: both are right.
        for _ in 0..2 {
            let held = holder(&lock).await;
            ends(held).await;
        }
        let nested = lock.clone();
        let nests = tokio::spawn(async move {
            let guard = hold(&nested).await;
            release(hold(&nested).await).await;
            release(guard).await;
        });
        soon("nesting", nests).await.unwrap();
        assert!(warnings().is_empty(), "{:?}", warnings());

        let first = holder(&lock).await;
        let others = [holder(&lock).await, holder(&lock).await];
        let said = warnings();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].is_of(&lock) && said[0].says("two tasks hold a lock"), "{said:?}");
        assert_eq!(said[0].level, Level::WARN);
        ends(first).await;
        for other in others {
            ends(other).await;
        }

        // What `block_on` runs is no task, and not the task that it waits for.
        let another = Arc::new(client.lock("another"));
        let guard = hold(&another).await;
        ends(holder(&another).await).await;
        release(guard).await;
        assert_eq!(warnings().len(), 2, "{:?}", warnings());
        // A program with such a fault may have thousands of handles.
        let many = Arc::new(client.lock("many"));
        let guard = hold(&many).await;
        ends(holder(&many).await).await;
        release(guard).await;
        assert_eq!(warnings().len(), 2, "{:?}", warnings());
        assert_eq!(entries(|entry| entry.is_of(&many) && entry.says("two tasks")).len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_handle_that_got_its_lock_by_a_hand_off_is_watched_too() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let (first, next) = (Arc::new(client.lock("next")), Arc::new(client.lock("next")));
        let held = holder(&first).await;
        let waits = next.clone();
        let waiting = tokio::spawn(async move {
            let guard = hold(&waits).await;
            release(hold(&waits).await).await;
            guard
        });
        wait_until("it parks", SOON, || server.subscribers("next") == 1).await;
        ends(held).await;
        let guard = soon("the hand-off", waiting).await.unwrap();
        assert!(warnings().is_empty(), "{:?}", warnings());
        ends(holder(&next).await).await;
        let said = warnings();
        assert!(said.len() == 1 && said[0].is_of(&next), "{said:?}");
        release(guard).await;
    })
    .await;
}

#[tokio::test]
async fn a_nested_call_with_a_handle_of_its_own_reads_that_it_waits_for_itself() {
    alone(&[], async |server| {
        let client = impatient(server.url()).await;
        let (outer, inner) = (client.lock("nested"), client.lock("nested"));
        let waiter = inner.owner().to_owned();
        let nests = tokio::spawn(async move {
            let guard = hold(&outer).await;
            for _ in 0..2 {
                let busy = inner.try_lock(3 * LONG, MINUTE).await.expect("an answer");
                assert!(busy.is_none(), "two owners hold it");
            }
            let holder = guard.owner().to_owned();
            release(guard).await;
            holder
        });
        let holder = soon("the nested calls", nests).await.unwrap();
        let said = warnings();
        assert_eq!(said.len(), 2, "one a wait: {said:?}");
        for warning in &said {
            assert!(warning.says("a call waits long for a lock"), "{warning:?}");
            assert_eq!((warning.level, warning.field("owner")), (Level::WARN, &*waiter));
            assert_eq!((warning.field("name"), warning.field("holder")), ("nested", &*holder));
        }
        assert!(said[0].says("this task holds it by another handle"), "{said:?}");
        assert!(!said[1].says("another handle"), "once a handle: {said:?}");
    })
    .await;
}

#[tokio::test]
async fn a_long_wait_is_one_warning_that_names_the_holder_and_costs_no_request() {
    alone(&[], async |server| {
        let client = impatient(server.url()).await;
        server.hold_by_hand("busy", "somebody:7", MINUTE);
        let (lock, behind) = (client.lock("busy"), client.lock("busy"));
        let (name, owner) = (lock.name().to_owned(), lock.owner().to_owned());
        let waiting = tokio::spawn(async move { hold(&lock).await });
        wait_until("it parks", SOON, || server.subscribers("busy") == 1).await;
        let asked = || server.calls("evalsha") + server.calls("hgetall");
        // The head asks once more, as its subscription is there now.
        wait_until("it has asked", SOON, || asked() == 2).await;
        let queued = tokio::spawn(async move { drop(hold(&behind).await) });
        wait_until("both warnings", SOON, || warnings().len() == 2).await;
        tokio::time::sleep(3 * LONG).await;
        let said = entries(|entry| entry.says("waits long"));
        assert_eq!(said.len(), 2, "one a wait, at whatever level: {said:?}");
        assert_eq!(asked(), 2, "it asked to know");
        assert_eq!((said[0].field("name"), said[0].field("owner")), (&*name, &*owner));
        for warning in &said {
            assert!(warning.level == Level::WARN && warning.says("waits long"), "{warning:?}");
            assert!(!warning.says("another handle"), "{warning:?}");
            assert_eq!(warning.field("holder"), "somebody:7");
            assert!(warning.field("remaining_lease").starts_with('5'), "{warning:?}");
            // In seconds, if the machine is that slow.
            let waited = warning.field("waited");
            let millis = waited.strip_suffix("ms").map(|millis| millis.parse::<f64>());
            assert!(millis.is_none_or(|millis| millis.expect("a number") >= 300.0), "{warning:?}");
            assert!(waited.ends_with('s') && !waited.ends_with("µs"), "{warning:?}");
        }
        server.free_by_hand("busy");
        release(soon("the lock", waiting).await.unwrap()).await;
        soon("the other", queued).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_long_wait_names_the_client_that_has_the_lock_for_one_list_of_clients() {
    alone(&[], async |server| {
        let lists = || server.calls("client|list") + server.calls("client");
        let other = connected(LockClient::builder().url(server.url()).label("orders-7b9c")).await;
        let guard = hold(&other.lock("theirs")).await;
        let client = impatient(server.url()).await;
        let before = lists();
        let busy = client.lock("theirs").try_lock(10 * LONG, MINUTE).await.expect("an answer");
        assert!(busy.is_none(), "two owners hold it");
        told("the wait", |entry| entry.says("waits long")).await;
        let said = warnings();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!((said[0].field("name"), said[0].field("holder")), ("theirs", guard.owner()));
        assert_eq!(said[0].field("holder_label"), "orders-7b9c");
        assert_eq!(said[0].field("holder_pid"), std::process::id().to_string());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        assert_eq!(said[0].field("holder_host"), host.trim());
        if server.calls("client") == 0 {
            assert_eq!(lists() - before, 1, "one for a warning");
        }
        // Of a handle of its own it knows that itself.
        let mine = hold(&client.lock("mine")).await;
        let before = server.calls("client|list");
        assert!(client.lock("mine").try_lock(10 * LONG, MINUTE).await.unwrap().is_none());
        told("the wait", |entry| entry.says("waits long") && entry.field("name") == "mine").await;
        assert_eq!(server.calls("client|list"), before);
        release(mine).await;
        release(guard).await;
    })
    .await;
}

#[tokio::test]
async fn a_long_wait_is_a_warning_and_goes_on_where_the_list_of_clients_is_denied() {
    alone(&[], async |server| {
        let other = connect(server).await;
        let guard = hold(&other.lock("theirs")).await;
        let user = |denied: &str| {
            let rule = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", denied];
            server.try_ask::<()>(&rule)
        };
        // Redis 6.2 takes no subcommand away.
        user("-client|list").or_else(|_| user("-client")).expect("a user");
        let client = impatient(format!("redis://app:pw@127.0.0.1:{}/", server.port())).await;
        let waiting = waiting(&client, "theirs");
        told("the wait", |entry| entry.says("waits long")).await;
        let said = entries(|entry| entry.says("waits long"));
        assert_eq!(said[0].field("holder"), guard.owner(), "{said:?}");
        assert_eq!(said[0].field("holder_host"), "", "{said:?}");
        release(guard).await;
        release(soon("the lock", waiting).await.unwrap()).await;
    })
    .await;
}

#[tokio::test]
async fn the_holder_is_who_has_it_now_and_a_handle_of_this_client_is_said_to_be_one() {
    alone(&[], async |server| {
        let client = impatient(server.url()).await;
        let (first, second) = (Arc::new(client.lock("ours")), Arc::new(client.lock("ours")));
        let held = holder(&first).await;
        let next = second.clone();
        let waiting = tokio::spawn(async move { hold(&next).await });
        wait_until("it parks", SOON, || server.subscribers("ours") == 1).await;
        ends(held).await;
        let guard = soon("the hand-off", waiting).await.unwrap();
        let third = client.lock("ours");
        let busy = third.try_lock(10 * LONG, MINUTE).await.expect("an answer");
        assert!(busy.is_none(), "two owners hold it");
        // On a busy machine the one before may have waited as long.
        assert!(warnings().iter().all(|entry| entry.says("waits long")), "{:?}", warnings());
        let said = entries(|entry| entry.says("waits long") && entry.is_of(&third));
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0].field("holder"), guard.owner(), "{said:?}");
        assert!(said[0].says("this client holds it by another handle"), "{said:?}");
        assert!(said[0].field("remaining_lease").ends_with('s'), "{said:?}");
        release(guard).await;
    })
    .await;
}

#[tokio::test]
async fn a_crowd_that_waits_long_is_two_warnings_and_one_that_stands_by_none() {
    alone(&[], async |server| {
        let client = impatient(server.url()).await;
        let builder = LockClient::builder().url(server.url());
        let standing_by = connected(builder.warn_waits_longer_than(Duration::MAX)).await;
        server.hold_by_hand("crowded", "somebody:7", MINUTE);
        let other = standing_by.lock("crowded");
        let other = tokio::spawn(async move { drop(hold(&other).await) });
        let crowd: Vec<_> = (0..50).map(|_| client.lock("crowded")).collect();
        let crowd: Vec<_> = crowd
            .into_iter()
            .map(|lock| tokio::spawn(async move { drop(hold(&lock).await) }))
            .collect();
        let long = || entries(|entry| entry.says("waits long")).len();
        wait_until("all have waited long", SOON, || long() == 50).await;
        let said = warnings();
        assert!(said.len() == 2 && said[1].says("within a minute"), "{said:?}");
        server.free_by_hand("crowded");
        for one in crowd.into_iter().chain([other]) {
            soon("the lock", one).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_wait_in_an_outage_has_the_warning_of_the_outage_alone() {
    alone(&[], async |server| {
        let proxy = Proxy::new(server);
        let builder = LockClient::builder().url(proxy.url(server)).command_timeout(ms(1_000));
        let client = connected(builder.warn_waits_longer_than(4 * LONG)).await;
        server.hold_by_hand("cut off", "somebody:7", MINUTE);
        let waiting = waiting(&client, "cut off");
        wait_until("it parks", SOON, || server.subscribers("cut off") == 1).await;
        proxy.refuse(true);
        proxy.cut_all();
        told("the outage", |entry| entry.says("Redis is unavailable")).await;
        tokio::time::sleep(6 * LONG).await;
        assert!(entries(|entry| entry.says("waits long")).is_empty(), "{:?}", warnings());
        proxy.refuse(false);
        told("the wait", |entry| entry.says("waits long")).await;
        server.free_by_hand("cut off");
        release(soon("the lock", waiting).await.unwrap()).await;
    })
    .await;
}
