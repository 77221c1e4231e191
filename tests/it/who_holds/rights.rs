//! The rights of a user that only looks.

use super::*;

/// The rule of the guide, as arguments of `ACL`. Redis 6.2 knows no keys that are only read.
fn rule(server: &Server) -> Vec<String> {
    let guide = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/deployment.md"));
    let (_, rule) = guide.split_once("ACL SETUSER watcher ").expect("the rule");
    let words = rule.split("```").next().expect("its end").split_whitespace();
    let is_old = server.info("redis_version").is_some_and(|version| version.starts_with("6."));
    let word = |word: &str| if is_old { word.replace("%R~", "~") } else { word.to_owned() };
    ["SETUSER", "watcher"].map(str::to_owned).into_iter().chain(words.map(word)).collect()
}

async fn watcher(server: &Server, without: &str) -> LockClient {
    let rule = rule(server);
    let rule = rule.iter().map(|word| &**word).filter(|word| *word != without);
    server.ask::<u64>(&["ACL", "DELUSER", "watcher"]);
    server.ask::<()>(&["ACL"].into_iter().chain(rule).collect::<Vec<_>>());
    let url = format!("redis://watcher:secret@127.0.0.1:{}/", server.port());
    let builder = LockClient::builder().url(url).name_prefix("lock:");
    soon("connecting", builder.connect()).await.expect("a client that only looks")
}

#[tokio::test]
async fn the_rights_of_the_guide_are_enough_to_look_and_for_nothing_else() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).name_prefix("lock:").label("orders");
    let holder = soon("connecting", builder.connect()).await.expect("a client");
    let guard = holder.fenced_lock("fenced").lock().await.unwrap();
    let reads = holder.read_write_lock("shared").read().await.unwrap();
    let fair = holder.fair_lock("fair").lock().await.unwrap();
    let waits = holder.fair_lock("fair");
    let waiter = tokio::spawn(async move { waits.lock().await.unwrap() });
    queued(&server, "redlatch_queue:{lock:fair}", 1).await;
    let client = watcher(&server, "").await;
    server.ask::<()>(&["ACL", "LOG", "RESET"]);
    let fenced = seen(&client, "fenced").await;
    assert!(fenced.token >= Some(guard.token()) && is_here(&fenced.holders[0], "orders"));
    let shared = seen(&client, "shared").await;
    assert!(shared.holders[0].lease_left.is_some_and(|left| left > Duration::ZERO), "{shared:?}");
    assert!(seen(&client, "fair").await.waiting[0].age.is_some());
    assert!(all(&client, "*").await.keys().eq(["fair", "fenced", "shared"]));
    let log: Vec<redis::Value> = server.ask(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{log:?}");
    // It may lock nothing.
    let error = client.lock("free").try_lock_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server, "{error}");
    // Without the list of clients the owner is all that is known.
    let client = watcher(&server, "+client|list").await;
    let fenced = seen(&client, "fenced").await;
    assert_eq!((&*fenced.holders[0].owner, place(&fenced.holders[0])), (guard.owner(), None));
    assert!(soon("a lock", client.locks("fenced").next()).await.unwrap().is_ok());
    // Without one that it needs it says so.
    for (right, command) in [("+hrandfield", "hrandfield"), ("+hscan", "hscan"), ("+scan", "scan")]
    {
        let client = watcher(&server, right).await;
        let error = soon("a lock", client.locks("*").next()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server, "{right}: {error}");
        assert!(error.to_string().contains(&format!("`{command}`")), "{right}: {error}");
    }
    guard.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    fair.unlock().await.unwrap();
    release(soon("the lock", waiter).await.unwrap()).await;
}

/// Its client has no prefix, and most hashes of the database are those of others.
#[tokio::test]
async fn keys_that_a_user_may_not_read_are_left_out_of_all_locks() {
    let server = Server::start();
    for number in 0..400 {
        server.ask::<u64>(&["HSET", &format!("other:{number}"), "field", "value"]);
    }
    for number in 0..3 {
        server.hold_by_hand(&format!("lock:{number}"), "somebody:1", MINUTE);
    }
    server.ask::<()>(
        &[&["ACL"], &*rule(&server).iter().map(|word| &**word).collect::<Vec<_>>()].concat(),
    );
    let url = format!("redis://watcher:secret@127.0.0.1:{}/", server.port());
    let client =
        soon("connecting", LockClient::builder().url(url).connect()).await.expect("a client");
    assert!(all(&client, "*").await.keys().eq(["lock:0", "lock:1", "lock:2"]));
    server.ask::<()>(&["FLUSHALL"]);
}
