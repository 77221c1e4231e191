//! What the log says when Redis refuses what the client tries again.

use futures::future::join_all;
use redlatch::{FencedLockGuard, LockClient, LockGuard};
use tracing::Level;

use super::{Entry, alone, entries};
use crate::support::{SOON, Server, connected, hold, ms, soon, wait_until};

/// A client whose user may do everything, until it may touch no key.
async fn restricted(server: &Server) -> LockClient {
    server.ask::<()>(&["ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", "+@all"]);
    let url = format!("redis://narrow:pass@127.0.0.1:{}/", server.port());
    let builder = LockClient::builder().url(url).name_prefix("app:").watchdog_timeout(ms(15_000));
    connected(builder).await
}

fn forbid(server: &Server) {
    server.ask::<()>(&["ACL", "SETUSER", "narrow", "resetkeys"]);
}

fn permit(server: &Server) {
    server.ask::<()>(&["ACL", "SETUSER", "narrow", "~*"]);
}

fn refused(entry: &Entry) -> bool {
    entry.field("error").contains("the user may not")
}

#[tokio::test]
async fn a_crowd_whose_renewals_and_releases_are_refused_is_a_warning_every_ten_seconds() {
    alone(&[], async |server| {
        let client = restricted(server).await;
        let locks: Vec<_> = (0..400).map(|number| client.lock(format!("many {number}"))).collect();
        let mut guards = join_all(locks.iter().map(hold)).await;
        forbid(server);
        let kept = guards.split_off(200);
        drop(guards);
        let warnings = || entries(|entry| refused(entry) && entry.level == Level::WARN);
        wait_until("a second warning", 3 * SOON, || warnings().len() > 1).await;
        let warned = warnings();
        assert_eq!(warned.len(), 2, "{warned:?}");
        assert!(warned[0].says("trying again") && warned[0].field("failed_attempts") == "1");
        let attempts: u64 = warned[1].field("failed_attempts").parse().expect("a number");
        let all = entries(refused).len() as u64;
        assert!((400..all).contains(&attempts), "{attempts} of {all}");
        permit(server);
        drop((kept, locks));
    })
    .await;
}

#[tokio::test]
async fn a_call_whose_release_is_refused_names_the_lock_as_it_is_in_redis() {
    alone(&[], async |server| {
        let client = restricted(server).await;
        let (plain, fenced) = (client.lock("around"), client.fenced_lock("around"));
        let forbids = async |_: &LockGuard| forbid(server);
        soon("the call", plain.with(forbids)).await.expect("the work is done");
        permit(server);
        let forbids = async |_: &FencedLockGuard| forbid(server);
        soon("the call", fenced.with(forbids)).await.expect("the work is done");
        permit(server);
        let said = entries(|entry| entry.says("the release of a lock around a call"));
        let owners: Vec<_> = said.iter().map(|entry| entry.field("owner")).collect();
        assert_eq!(owners, [plain.owner(), fenced.owner()], "{said:?}");
        assert!(said.iter().all(|entry| entry.field("name") == "app:around"), "{said:?}");
        wait_until("a free lock", SOON, || !server.exists("app:around")).await;
    })
    .await;
}
