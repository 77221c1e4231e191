//! What became of a lock that is lost: whichever request finds it out, the error of that call, the
//! guard and every later error say the same.

use Blow::{Deleted, Overwritten, Replaced, Taken};
use Finder::{Execution, Extension, HandOff, Nested, Renewal, Unlock, UnlockOfOne};
use redlatch::kind::LockKind;
use redlatch::redis;

use crate::prelude::*;

/// What another client does to the key.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Deleted,
    /// A hash of the application's is there.
    Overwritten,
    /// A string is there.
    Replaced,
    /// Another owner has it.
    Taken,
}

impl Blow {
    fn strike(self, server: &Server, name: &str) -> Loss {
        let (field, loss) = match self {
            Deleted => {
                server.ask::<()>(&["DEL", name]);
                return Loss::KeyGone;
            }
            Replaced => {
                server.ask::<()>(&["SET", name, "a string", "PX", "60000"]);
                return Loss::KeyGone;
            }
            Overwritten => ("name", Loss::KeyGone),
            Taken => ("8743c9c0-0795-4907-87fd-6c719a6b4586:27", Loss::TakenOver),
        };
        // At once: a renewal may come at any time.
        server.ask::<()>(&["MULTI"]);
        server.ask::<()>(&["DEL", name]);
        server.ask::<()>(&["HSET", name, field, "1"]);
        server.ask::<()>(&["PEXPIRE", name, "60000"]);
        server.ask::<()>(&["EXEC"]);
        loss
    }
}

/// The request that finds it out, and the error of its call.
#[derive(Debug, Clone, Copy)]
enum Finder {
    Renewal,
    Unlock,
    UnlockOfOne,
    Nested,
    Extension,
    Execution,
    HandOff,
}

fn words(loss: Loss) -> &'static str {
    match loss {
        Loss::LeaseEnded => "its lease has ended",
        Loss::KeyGone => "its key is gone",
        Loss::TakenOver => "another owner has it",
        _ => unreachable!("{loss:?}"),
    }
}

#[track_caller]
fn says(error: Error, loss: Loss) {
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(loss)), "{error}");
    assert!(error.to_string().ends_with(words(loss)), "{error}");
}

/// The guard, and what all calls on it say from then on.
async fn is_latched(guard: LockGuard, loss: Loss) {
    soon("the loss", guard.lost()).await;
    assert!(guard.is_lost());
    assert_eq!(guard.loss(), Some(loss));
    says(soon("extending", guard.extend(MINUTE)).await.expect_err("lost"), loss);
    let begun: Result<(), Error> = guard.run_until_lost(async { panic!("it was begun") }).await;
    says(begun.expect_err("lost"), loss);
    let executed = guard.execute::<()>(redis::pipe().cmd("PING")).await;
    says(executed.expect_err("lost"), loss);
    says(soon("unlocking", guard.unlock()).await.expect_err("lost"), loss);
}

async fn find<K: LockKind<Token = ()>>(
    finder: Finder,
    blow: Blow,
    server: &Server,
    client: &LockClient,
    lock: Lock<K>,
) {
    let guard = match finder {
        Renewal => lock.lock().await.expect("the lock"),
        _ => lock.lock_with_lease(MINUTE).await.expect("the lock"),
    };
    assert_eq!(guard.loss(), None);
    let inner = match finder {
        Renewal => Some(lock.lock().await.expect("a nested hold")),
        UnlockOfOne => Some(lock.lock_with_lease(MINUTE).await.expect("a nested hold")),
        _ => None,
    };
    let waiter = match finder {
        HandOff => {
            let next = client.lock(lock.name());
            let waiter = tokio::spawn(async move { next.lock_with_lease(MINUTE).await });
            wait_until("a subscription", SOON, || server.subscribers(lock.name()) == 1).await;
            Some(waiter)
        }
        _ => None,
    };
    let loss = blow.strike(server, lock.name());
    match finder {
        Renewal => is_latched(inner.expect("a nested hold"), loss).await,
        Unlock | HandOff => {
            says(soon("unlocking", guard.unlock()).await.expect_err("lost"), loss);
            waiter.inspect(|waiter| waiter.abort());
            return;
        }
        UnlockOfOne => {
            let inner = inner.expect("a nested hold");
            says(soon("unlocking", inner.unlock()).await.expect_err("lost"), loss);
        }
        Nested => {
            // If the name is free, it takes the lock anew.
            let new = soon("nesting", lock.try_lock_now()).await.expect("an answer");
            assert_eq!(new.is_some(), loss == Loss::KeyGone);
            is_latched(guard, loss).await;
            if let Some(new) = new {
                assert!(!new.is_lost());
                assert_eq!(lock.hold_count().await.expect("an answer"), 1);
                soon("unlocking", new.unlock()).await.expect("it is held");
                assert!(!server.exists(lock.name()));
            }
            return;
        }
        Extension => {
            says(soon("extending", guard.extend(MINUTE)).await.expect_err("lost"), loss);
        }
        Execution => {
            let executed = guard.execute::<()>(redis::pipe().cmd("PING")).await;
            says(executed.expect_err("lost"), loss);
        }
    }
    is_latched(guard, loss).await;
}

#[tokio::test]
async fn every_request_that_finds_a_loss_tells_a_key_that_is_gone_from_one_that_was_taken() {
    let server = Server::start();
    let client = client_with(server.url(), ms(1_800)).await;
    for finder in [Renewal, Unlock, UnlockOfOne, Nested, Extension, Execution, HandOff] {
        for blow in [Deleted, Overwritten, Replaced, Taken] {
            // A nested call says that this is no lock, and loses nothing.
            if let (Nested, Overwritten | Replaced) = (finder, blow) {
                continue;
            }
            println!("{finder:?} {blow:?}");
            let name = format!("{finder:?}:{blow:?}");
            find(finder, blow, &server, &client, client.lock(&name)).await;
            // A waiter of a fair lock listens elsewhere, and the hand-off is that of a plain one.
            if !matches!(finder, HandOff) {
                let lock = client.fair_lock(format!("{name}:fair"));
                find(finder, blow, &server, &client, lock).await;
            }
        }
    }
}

#[tokio::test]
async fn a_lease_that_ended_by_the_clock_stays_the_reason_whatever_redis_says_later() {
    let server = Server::start();
    let client = connect(&server).await;
    for blow in [Deleted, Overwritten, Taken] {
        let lock = client.lock(format!("{blow:?}"));
        let guard = lock.lock_with_lease(ms(500)).await.expect("the lock");
        soon("the deadline", guard.lost()).await;
        blow.strike(&server, lock.name());
        is_latched(guard, Loss::LeaseEnded).await;
    }
}

#[tokio::test]
async fn work_around_which_a_lock_was_lost_learns_the_same() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("around");
    let with = lock.with(async |_| Taken.strike(&server, "around")).await;
    says(with.expect_err("found by the unlock"), Loss::TakenOver);
    server.ask::<()>(&["DEL", "around"]);
    let work = async |guard: &LockGuard| guard.lost().await;
    let with = soon("the deadline", lock.try_with(Duration::ZERO, ms(50), work)).await;
    says(with.expect_err("found by the clock"), Loss::LeaseEnded);
}

#[tokio::test]
async fn an_unlock_of_a_lost_lock_says_whether_it_released_anything() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.lock("lock");
    // Lost by its own deadline, beside a hold that keeps the key.
    let outer = hold(&lock).await;
    let inner = soon("locking", lock.lock_with_lease(ms(500))).await.unwrap();
    soon("the end of the lease", inner.lost()).await;
    let error = soon("unlocking", inner.unlock()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::Executed));
    assert_eq!(setup.holds("lock").values().sum::<u32>(), 1);
    // Gone.
    setup.ask::<()>("DEL", "lock", &[]);
    let error = soon("unlocking", outer.unlock()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::NotExecuted));
}
