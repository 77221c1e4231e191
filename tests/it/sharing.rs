//! What a read-write lock does, wherever Redis is (see `contract`). What is about the commands of one server
//! is in `read_write`.

use redlatch::kind::ReadWriteKind;
use redlatch::{ReadGuard, ReadWriteLock, WriteGuard};

use crate::prelude::*;

const NAME: &str = "config";

pub(crate) async fn reads<K: ReadWriteKind>(lock: &ReadWriteLock<K>) -> ReadGuard<K> {
    soon("reading", lock.read()).await.expect("to read")
}

pub(crate) async fn writes<K: ReadWriteKind>(lock: &ReadWriteLock<K>) -> WriteGuard<K> {
    soon("writing", lock.write()).await.expect("to write")
}

pub(crate) async fn is_free_to_write(client: &LockClient, name: &str) -> bool {
    let lock = client.read_write_lock(name);
    match soon("trying", lock.try_write_now()).await.expect("an answer") {
        Some(guard) => guard.unlock().await.map(|()| true).expect("to give it back"),
        None => false,
    }
}

async fn until_free(setup: &Setup) {
    wait_until("a free lock", SOON, || !setup.exists(NAME)).await;
}

fn waits_to_read(client: &LockClient) -> JoinHandle<Result<ReadGuard, Error>> {
    let lock = client.read_write_lock(NAME);
    tokio::spawn(async move { lock.read().await })
}

fn waits_to_write(client: &LockClient) -> JoinHandle<Result<WriteGuard, Error>> {
    let lock = client.read_write_lock(NAME);
    tokio::spawn(async move { lock.write().await })
}

/// Waits until so many clients stand in the queue, and a round trip longer.
async fn queued(setup: &Setup, clients: usize) {
    wait_until("an entry", SOON, || setup.queue(NAME).len() == clients).await;
    apart().await;
}

pub(crate) async fn readers_share_a_lock_and_a_writer_has_it_alone(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (here, there) = (client.read_write_lock(NAME), other.read_write_lock(NAME));
    let (one, two) = (reads(&here).await, reads(&there).await);
    let owner = |guard: &ReadGuard| (guard.owner().to_owned(), "1".to_owned());
    let readers = [("mode".to_owned(), "read".to_owned()), owner(&one), owner(&two)];
    assert_eq!(setup.fields(NAME), BTreeMap::from(readers), "as an RReadWriteLock");
    assert!(here.is_read_locked().await.unwrap() && !there.is_write_locked().await.unwrap());
    assert!(!is_free_to_write(&client, NAME).await && !is_free_to_write(&other, NAME).await);
    one.extend(MINUTE).await.unwrap();
    assert!(setup.pttl(NAME) > 50_000);
    one.unlock().await.unwrap();
    assert!(!is_free_to_write(&client, NAME).await, "the other one reads yet");
    two.unlock().await.unwrap();
    assert!(!setup.exists(NAME));

    let writing = writes(&here).await;
    let fields = [("mode", "write"), (writing.owner(), "1")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(setup.fields(NAME), BTreeMap::from(fields));
    assert!(there.is_write_locked().await.unwrap() && !here.is_read_locked().await.unwrap());
    for lock in [&there, &client.read_write_lock(NAME), &here.clone()] {
        assert!(lock.try_read_now().await.unwrap().is_none());
        assert!(lock.try_read(ms(50), Lease::Watchdog).await.unwrap().is_none());
        assert!(lock.try_write_now().await.unwrap().is_none());
        assert!(lock.try_write(ms(50), MINUTE).await.unwrap().is_none());
    }
    writing.extend(MINUTE).await.unwrap();
    assert!(setup.pttl(NAME) > 50_000 && writing.remaining() > ms(50_000));
    writing.unlock().await.unwrap();
    assert!(!setup.exists(NAME));
}

pub(crate) async fn calls_of_one_handle_nest_or_say_that_they_would_deadlock(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let lock = client.read_write_lock(NAME);
    let outer = reads(&lock).await;
    for client in [&client, &other] {
        let elsewhere = reads(&client.read_write_lock(NAME)).await;
        let error = soon("a write", lock.write()).await.unwrap_err();
        let (kind, outcome) = (error.kind(), error.outcome());
        assert_eq!((kind, outcome), (ErrorKind::WouldDeadlock, Outcome::NotExecuted));
        elsewhere.unlock().await.unwrap();
    }
    let waiting = waits_to_write(&other);
    queued(&setup, 1).await;
    // It passes the writer that waits, and nobody else does.
    let inner = reads(&lock).await;
    let tried = lock.try_read_now().await.unwrap().expect("to read again");
    until_refused(&client).await;
    let writing = soon("the only reader", lock.write()).await.unwrap();
    assert_eq!(setup.fields(NAME).len(), 3, "both sides, and the mode");
    let reading = soon("the way back", writing.downgrade()).await.unwrap();
    for guard in [outer, tried, inner] {
        guard.unlock().await.unwrap();
        assert!(!waiting.is_finished());
    }
    let writing = soon("the last guard", reading.try_upgrade()).await.unwrap().expect("to write");
    assert!(!waiting.is_finished());
    writing.unlock().await.unwrap();
    soon("the writer", waiting).await.unwrap().unwrap().unlock().await.unwrap();

    let (outer, inner) = (writes(&lock).await, writes(&lock).await);
    assert_eq!(outer.owner(), inner.owner());
    let reading = soon("a read", lock.read()).await.unwrap();
    outer.unlock().await.unwrap();
    reading.unlock().await.unwrap();
    assert!(!is_free_to_write(&other, NAME).await, "a nested hold is left");
    inner.unlock().await.unwrap();
    assert!(is_free_to_write(&other, NAME).await);
}

/// A share that a reader of that client left open before a writer came ends by itself.
async fn until_refused(client: &LockClient) {
    soon("a refusal", async {
        while let Some(guard) = client.read_write_lock(NAME).try_read_now().await.unwrap() {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn who_waits_to_read_or_to_write_has_it_in_the_order_of_coming(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    for (a, b) in [(&client, &client), (&client, &other), (&other, &client)] {
        let reading = reads(&a.read_write_lock(NAME)).await;
        let writing = waits_to_write(b);
        queued(&setup, 1).await;
        until_refused(a).await;
        let behind = [waits_to_read(a), waits_to_read(b)];
        apart().await;
        assert!(a.read_write_lock(NAME).try_read_now().await.unwrap().is_none(), "no barging");
        assert!(!writing.is_finished() && behind.iter().all(|one| !one.is_finished()));
        reading.unlock().await.unwrap();
        let guard = soon("the writer", writing).await.unwrap().unwrap();
        apart().await;
        assert!(behind.iter().all(|one| !one.is_finished()));
        guard.unlock().await.unwrap();
        // Neither gives it back before both have it.
        let guards = soon("those behind it", join_all(behind)).await;
        for guard in guards {
            guard.unwrap().unwrap().unlock().await.unwrap();
        }
        until_free(&setup).await;
    }
}

pub(crate) async fn an_explicit_lease_to_read_or_to_write_ends_by_itself(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let lease = setup.stretch(ms(300));
    let (lock, next) = (client.read_write_lock(NAME), other.read_write_lock(NAME));
    let reading = lock.read_with_lease(lease).await.unwrap();
    assert!(reading.remaining() <= lease && !reading.is_lost());
    let writing = writes(&next).await;
    assert_eq!((reading.loss(), reading.remaining()), (Some(Loss::LeaseEnded), Duration::ZERO));
    assert_eq!(reading.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(setup.exists(NAME), "a late unlock frees nothing of another owner");
    writing.unlock().await.unwrap();

    let writing = lock.write_with_lease(lease).await.unwrap();
    let error = writing.run_until_lost(std::future::pending::<()>());
    let error = soon("the end of the lease", error).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(Loss::LeaseEnded)));
    let reading = reads(&next).await;
    assert_eq!(writing.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(setup.exists(NAME) && !reading.is_lost());
    reading.unlock().await.unwrap();
}

pub(crate) async fn a_default_lease_to_read_or_to_write_is_renewed(setup: Setup) {
    let watchdog = setup.stretch(ms(600));
    let (client, other) = (setup.client_with(watchdog).await, setup.connect().await);
    let reading = reads(&client.read_write_lock(NAME)).await;
    let too = reads(&client.read_write_lock(NAME)).await;
    let writing = writes(&client.read_write_lock("written")).await;
    drop(reading);
    tokio::time::sleep(3 * watchdog).await;
    assert!(!too.is_lost() && !writing.is_lost());
    assert!(!is_free_to_write(&other, NAME).await);
    assert!(other.read_write_lock("written").try_read_now().await.unwrap().is_none());
    too.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    assert!(is_free_to_write(&other, NAME).await && !setup.exists("written"));
}

pub(crate) async fn a_read_write_lock_that_is_gone_is_told_lost_to_all_who_have_it(setup: Setup) {
    let client = setup.client_with(setup.stretch(ms(900))).await;
    let lock = client.read_write_lock(NAME);
    let (one, two) = (reads(&lock).await, reads(&client.read_write_lock(NAME)).await);
    let writing = writes(&client.read_write_lock("written")).await;
    for name in [NAME, "written"] {
        setup.ask::<()>("DEL", name, &[]);
    }
    soon("the loss", async { tokio::join!(one.lost(), two.lost(), writing.lost()) }).await;
    assert_eq!((one.loss(), two.loss()), (Some(Loss::KeyGone), Some(Loss::KeyGone)));
    assert_eq!(writing.loss(), Some(Loss::KeyGone));
    // Who comes next begins anew.
    let next = reads(&lock).await;
    assert_ne!(next.owner(), one.owner());
    for guard in [one, two] {
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(writing.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(setup.exists(NAME) && !next.is_lost());
    next.unlock().await.unwrap();
}

pub(crate) async fn what_is_dropped_that_reads_or_writes_or_waits_leaves_nothing(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let lock = client.read_write_lock(NAME);
    let (one, two) = (reads(&lock).await, reads(&lock).await);
    drop(one);
    assert!(!is_free_to_write(&other, NAME).await);
    drop(two);
    until_free(&setup).await;
    let writing = writes(&lock).await;
    let waiting = [waits_to_write(&other), waits_to_write(&client)];
    let reading = [waits_to_read(&other), waits_to_read(&client)];
    queued(&setup, 2).await;
    waiting.iter().for_each(JoinHandle::abort);
    reading.iter().for_each(JoinHandle::abort);
    wait_until("nobody waits", SOON, || setup.queue(NAME).is_empty()).await;
    drop(writing);
    until_free(&setup).await;
    assert!(is_free_to_write(&other, NAME).await);
}

pub(crate) async fn closing_sends_home_who_waits_to_read_or_to_write(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let writing = writes(&other.read_write_lock(NAME)).await;
    let reading = reads(&client.read_write_lock("alive")).await;
    let waiting = [waits_to_read(&client), waits_to_read(&client)];
    let too = waits_to_write(&client);
    queued(&setup, 1).await;
    soon("closing", client.close()).await;
    for one in waiting {
        assert_eq!(soon("a wait", one).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(soon("a wait", too).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(setup.queue(NAME), [""; 0], "its entry is given up");
    let refused = client.read_write_lock("alive").read().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    reading.unlock().await.expect("a guard outlives its client");
    writing.unlock().await.unwrap();
}

pub(crate) async fn a_forced_unlock_frees_readers_and_writers(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (lock, next) = (client.read_write_lock(NAME), other.read_write_lock(NAME));
    let (one, two) = (reads(&lock).await, reads(&next).await);
    assert!(next.force_unlock().await.unwrap());
    assert!(!next.force_unlock().await.unwrap());
    // A handle that has a guard believes in it until it hears of the loss.
    let writing = writes(&other.read_write_lock(NAME)).await;
    for guard in [one, two] {
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    let waiting = waits_to_read(&client);
    queued(&setup, 1).await;
    assert!(lock.force_unlock().await.unwrap());
    let reading = soon("who waited", waiting).await.unwrap().unwrap();
    assert_eq!(writing.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    reading.unlock().await.unwrap();
}
