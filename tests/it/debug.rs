//! What the public types show of themselves with `{:?}`: what one needs to know in a log, and no secret
//! (`tests/secrets.rs`). It is local knowledge.

use std::fmt::Debug;

use crate::prelude::*;

#[track_caller]
fn shows(what: &dyn Debug, parts: &[&str]) {
    let shown = format!("{what:?}");
    for part in parts {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
}

#[tokio::test]
async fn a_client_shows_its_server_its_id_what_it_holds_and_whether_it_is_closed() {
    let server = Server::start_with(&["--requirepass", "correct-horse"]);
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let (lazy, client) =
        (builder.clone().connect_lazy().unwrap(), builder.connect().await.unwrap());
    let [first, second] = ["a", "b"].map(|name| client.lock(name));
    let id = first.owner().split(':').next().unwrap().to_owned();
    let guards = (hold(&first).await, hold(&first).await, hold(&second).await);
    let at = format!("Standalone {{ server: \"127.0.0.1:{}\" }}", proxy.port());
    proxy.forget_commands();
    shows(&client, &[&id, &at, "held: 2", "closed: false"]);
    shows(&lazy, &[&at, "held: 0", "closed: false"]);
    assert!(proxy.commands().is_empty(), "{:?}", proxy.commands());
    assert!(!format!("{client:?}{lazy:?}").contains("horse"));
    release(guards.2).await;
    shows(&client, &["held: 1"]);
    soon("closing", client.close()).await;
    shows(&client, &["held: 1", "closed: true"]);
}

#[tokio::test]
async fn a_client_shows_the_servers_of_its_topology() {
    let (sentinel, cluster) = (Setup::sentinel(), Setup::cluster());
    shows(&sentinel.connect().await, &["Sentinel { master: \"", "primary: Some(\"127.0.0.1:"]);
    shows(&cluster.connect().await, &["Cluster { nodes: [\"127.0.0.1:"]);
}

#[tokio::test]
async fn a_handle_shows_its_name_and_owner_and_a_guard_its_holds_and_what_became_of_them() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).name_prefix("app:");
    let client = soon("connecting", builder.connect()).await.unwrap();
    let lock = client.lock("order");
    let owner = |owner: &str| format!("owner: \"{owner}\"");
    shows(&lock, &["name: \"order\"", &owner(lock.owner())]);
    let outer = lock.lock_with_lease(ms(100_000)).await.unwrap();
    let inner = lock.lock_with_lease(ms(100_000)).await.unwrap();
    shows(&inner, &["name: \"order\"", &owner(inner.owner())]);
    shows(&inner, &["holds: 2", "remaining: 98.", "lost: false", "loss: None"]);
    server.ask::<()>(&["DEL", "app:order"]);
    soon("unlocking", inner.unlock()).await.unwrap_err();
    shows(&outer, &["holds: 0", "remaining: 0ns", "lost: true", "loss: Some(KeyGone)"]);

    let fenced = client.fenced_lock("fenced");
    shows(&fenced, &["FencedLock", "name: \"fenced\"", fenced.owner()]);
    let guard = soon("locking", fenced.lock()).await.unwrap();
    shows(&guard, &["FencedLockGuard", "holds: 1", &format!("FencingToken({})", guard.token())]);

    let shared = client.fenced_read_write_lock("shared");
    shows(&shared, &["FencedReadWriteLock", "name: \"shared\"", shared.owner()]);
    let writing = soon("writing", shared.write()).await.unwrap();
    let token = format!("token: FencingToken({})", writing.token());
    shows(&writing, &["FencedWriteGuard", "holds: 1", &token]);
    let reading = soon("downgrading", writing.downgrade()).await.unwrap();
    shows(&reading, &["FencedReadGuard", "holds: 1", &token]);
    let plain = client.read_write_lock("plain");
    shows(&plain, &["ReadWriteLock", "name: \"plain\""]);
    let reading = soon("reading", plain.read()).await.unwrap();
    shows(&reading, &["ReadGuard", "holds: 1"]);
    assert!(!format!("{plain:?}{reading:?}").contains("Fenc"));
}

#[tokio::test]
async fn an_error_and_its_parts_show_what_they_are() {
    let error = LockClient::builder().connect().await.expect_err("no address");
    shows(&error, &["kind: InvalidArgument", "outcome: NotExecuted", "message: where is Redis?"]);
    shows(&Loss::TakenOver, &["TakenOver"]);
}

#[tokio::test]
async fn a_builder_shows_its_options_and_its_clone_is_another_client() {
    let server = Server::start_with(&["--requirepass", "correct-horse"]);
    let builder = LockClient::builder().url(server.url()).name_prefix("app:");
    let builder = builder.watchdog_timeout(Duration::from_secs(7));
    let builder = builder.sentinel_credentials("watch", "battery");
    let other = builder.clone();
    for builder in [&builder, &other] {
        shows(builder, &["name_prefix: \"app:\"", "watchdog_timeout: 7s"]);
        let shown = format!("{builder:?} {builder:#?}");
        assert!(!shown.contains("horse") && !shown.contains("battery"), "{shown}");
    }
    let builder = LockClient::builder().url(server.url());
    let clients = [builder.clone().connect().await.unwrap(), builder.connect().await.unwrap()];
    let owners = clients.map(|client| client.lock("a").owner().to_owned());
    assert_ne!(owners[0].split(':').next(), owners[1].split(':').next());
}
