//! A request that was said not to have been executed is never executed (W12).

use futures::future::join_all;
use redlatch::{ErrorKind, LockClient, Outcome};

use crate::support::{Fault, Proxy, SOON, Server, hold, ms, release, soon, wait_until};

/// So many calls share one, and the deadline of each is this much behind that of the one before.
const MANY: u64 = 24;
const APART: u64 = 30;

#[tokio::test]
async fn w12_a_call_that_is_not_executed_by_its_deadline_is_not_executed_after_it() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    release(hold(&client.lock("warm-up")).await).await;
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    server.reset_stats();

    // They wait for a connection, one after the other, and then leave together.
    proxy.hold("HELLO");
    proxy.cut_all();
    let tasks = (0..MANY).map(|number| {
        let lock = client.lock(format!("lock:{number}"));
        tokio::spawn(async move {
            tokio::time::sleep(ms(number * APART)).await;
            (number, lock.try_lock_now().await)
        })
    });
    let mut tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(ms(MANY * APART)).await;
    let faults = proxy.faults();
    proxy.plan("SCRIPT", 1, Fault::HoldBack);
    proxy.let_go();
    wait_until("the script on its way", SOON, || proxy.faults() > faults).await;
    // Of those that share a call, too: the first two are on their own.
    wait_until("deadlines that pass", SOON, || tasks[..8].iter().all(|task| task.is_finished()))
        .await;
    assert_eq!(server.calls("hset"), 0, "the scripts were not flushed");
    proxy.let_go();

    let rest = tasks.split_off(8);
    let answers = soon("answers", join_all(tasks.into_iter().chain(rest))).await;
    let (mut guards, mut refused, mut unknown) = (Vec::new(), Vec::new(), 0);
    for answer in answers {
        match answer.expect("a task that does not panic") {
            (_, Ok(guard)) => guards.push(guard.expect("a free lock")),
            (number, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                match error.outcome() {
                    Outcome::NotExecuted => refused.push(format!("lock:{number}")),
                    Outcome::Unknown => unknown += 1,
                    outcome => panic!("{outcome:?}: {error}"),
                }
            }
        }
    }
    proxy.settled(ms(200)).await;
    assert!(refused.len() >= 8 - unknown, "{} were refused", refused.len());
    assert!(!guards.is_empty(), "no call was sent again");
    for name in &refused {
        assert!(!server.exists(name), "{name} was not executed, and is locked");
    }
    // Nor was it executed and undone.
    let most = (guards.len() + unknown) as u64;
    assert!(server.calls("hset") <= most, "{} of {most}", server.calls("hset"));
    soon("unlocking", join_all(guards.into_iter().map(release))).await;
    let gone = || (0..MANY).all(|number| !server.exists(&format!("lock:{number}")));
    wait_until("the undo of what is unknown", SOON, gone).await;
}
