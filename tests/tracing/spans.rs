//! The spans of a lock: the acquisition, the hold and the release, with what became of each.

use super::*;

/// The spans of that name that have ended: of a handle its acquisitions, of a guard its hold and its release.
fn spans(name: &str, owner: &str) -> Vec<Entry> {
    entries(|entry| entry.span && entry.name == name && entry.field("owner") == owner)
}

#[track_caller]
fn only(name: &str, owner: &str) -> Entry {
    let [span] = all(name, owner);
    span
}

/// So many of them, in the order in which they ended.
#[track_caller]
fn all<const N: usize>(name: &str, owner: &str) -> [Entry; N] {
    let spans = spans(name, owner);
    assert!(spans.iter().all(|span| span.level == Level::DEBUG));
    spans.try_into().unwrap_or_else(|spans| panic!("{name}: {spans:?}"))
}

#[track_caller]
fn has(entry: &Entry, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        assert_eq!(entry.field(name), *value, "{name} of {entry:?}");
    }
}

/// A number of milliseconds, with microseconds.
#[track_caller]
fn millis(entry: &Entry, name: &str) -> f64 {
    let text = entry.field(name);
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    assert!(fraction.len() <= 3, "{name} of {entry:?}");
    text.parse().expect("a number")
}

#[tokio::test]
async fn a_hand_off_is_a_release_an_acquisition_and_two_holds() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let (first, second) = (client.lock("span"), client.lock("span"));
        let guard = hold(&first).await;
        let asked = server.calls("evalsha");
        let waiting = tokio::spawn(async move { (hold(&second).await, second) });
        // It asks once more, and takes no hand-off until it has the answer.
        let rests = || server.subscribers("span") == 1 && server.calls("evalsha") >= asked + 2;
        wait_until("it parks", SOON, rests).await;
        tokio::time::sleep(ms(600)).await;
        let owner = guard.owner().to_owned();
        assert!(spans("hold", &owner).is_empty(), "it lasts");
        release(guard).await;
        let (guard, second) = soon("the waiter has the lock", waiting).await.unwrap();
        assert_eq!(guard.owner(), owner);
        release(guard).await;

        let port = server.port().to_string();
        let redis = [
            ("db.system.name", "redis"),
            ("otel.kind", "client"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
        ];
        let acquired = only("acquire", first.owner());
        // If the task of an `unlock` does not run for a round trip, the client's thread has given the lock back before it.
        let mut releases = spans("release", &owner);
        releases.retain(|span| span.field("background") == "false");
        let [released, last] = releases.try_into().expect("two releases");
        has(&acquired, &redis);
        has(
            &acquired,
            &[("db.operation.name", "acquire"), ("granted", "true"), ("handed_off", "")],
        );
        has(&released, &redis);
        has(&released, &[("db.operation.name", "release"), ("handed_off", "true")]);
        has(&released, &[("background", "false"), ("error.type", ""), ("otel.status_code", "")]);
        let [held, next] = all("hold", &owner);
        has(&held, &[("follows", "acquire"), ("loss", ""), ("otel.status_code", "")]);
        assert!(millis(&held, "held_ms") >= 40.0, "{held:?}");

        let acquired = only("acquire", second.owner());
        has(&acquired, &[("granted", "true"), ("handed_off", "true")]);
        assert!(millis(&acquired, "waited_ms") >= 40.0, "{acquired:?}");
        has(&last, &[("handed_off", "")]);
        has(&next, &[("follows", "acquire")]);
    })
    .await;
}

#[tokio::test]
async fn a_loss_is_in_the_hold_and_in_the_release_that_fails() {
    alone(&[], async |server| {
        let client = client_with(server.url(), ms(3_000)).await;
        let lock = client.lock("lost");
        let guard = hold(&lock).await;
        let owner = guard.owner().to_owned();
        server.ask::<()>(&["DEL", "lost"]);
        soon("the loss is noticed", guard.lost()).await;
        soon("unlocking", guard.unlock()).await.expect_err("lost");
        let failed = [("loss", "KeyGone"), ("otel.status_code", "ERROR")];
        has(&only("hold", &owner), &failed);
        has(&only("release", &owner), &failed);
        has(&only("release", &owner), &[("error.type", "Lost")]);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_guard_ends_its_hold_and_is_released_in_the_background() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let lock = client.lock("dropped");
        let guard = hold(&lock).await;
        let owner = guard.owner().to_owned();
        drop(guard);
        only("hold", &owner);
        let released = |entry: &Entry| entry.is_by(&owner) && entry.says("released");
        let event = told("the release", released).await;
        assert_eq!(event.level, Level::DEBUG, "{event:?}");
        assert_eq!(entries(released).len(), 1);
        assert!(!server.exists("dropped"), "told when it is done");
        wait_until("the release", SOON, || !spans("release", &owner).is_empty()).await;
        has(&only("release", &owner), &[("background", "true"), ("error.type", "")]);
        has(&only("release", &owner), &[("server.port", &server.port().to_string())]);
    })
    .await;
}

#[tokio::test]
async fn an_acquisition_that_fails_says_why() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let lock = client.lock("data");
        server.ask::<()>(&["SET", "data", "1"]);
        soon("a refusal", lock.try_lock(Duration::ZERO, MINUTE)).await.expect_err("not a lock");
        let failed = [("error.type", "NotALock"), ("otel.status_code", "ERROR"), ("granted", "")];
        has(&only("acquire", lock.owner()), &failed);
        assert!(entries(|entry| entry.span && entry.name == "hold").is_empty());
    })
    .await;
}
