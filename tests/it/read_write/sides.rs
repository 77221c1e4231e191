//! A handle that reads and writes: one inside the other, and one that becomes the other.

use super::*;

/// The owners in the hash, without what is random.
fn held(server: &Server, name: &str) -> (String, usize, usize) {
    let mut fields = fields(server, name);
    let mode = fields.remove("mode").unwrap_or_default();
    let writers = fields.keys().filter(|owner| owner.ends_with(":write")).count();
    (mode, fields.len() - writers, writers)
}

fn is(mode: &str, readers: usize, writers: usize) -> (String, usize, usize) {
    (mode.to_owned(), readers, writers)
}

fn would_deadlock(error: Error) {
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::WouldDeadlock, Outcome::NotExecuted));
    assert!(error.to_string().contains("config"), "{error}");
}

#[tokio::test]
async fn a_handle_that_is_the_only_reader_writes_at_once_and_any_other_hears_that_it_would_wait() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = client.read_write_lock("config");
    let (reading, again) = (reads(&lock).await, reads(&lock).await);
    // Whoever waits, in whichever client.
    let waits = [&client, &other].map(|client| client.read_write_lock("config"));
    let [here, there] = waits;
    let writers = [waiter(&server, here, writer).await, waiter(&server, there, writer).await];
    let writing = writes(&lock).await;
    assert_eq!(held(&server, "config"), is("write", 1, 1));
    writing.unlock().await.unwrap();
    assert_eq!(held(&server, "config"), is("read", 1, 0));
    let writing = soon("a try", lock.try_write_now()).await.unwrap().expect("the only reader");
    again.unlock().await.unwrap();
    reading.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    for one in writers {
        soon("those that wait", one).await.unwrap().unlock().await.unwrap();
    }
    for client in [&client, &other] {
        let (reading, elsewhere) = (reads(&lock).await, client.read_write_lock("config"));
        let elsewhere = reads(&elsewhere).await;
        let asked = server.calls("evalsha");
        would_deadlock(soon("a write", lock.write()).await.unwrap_err());
        would_deadlock(soon("a try", lock.try_write(MINUTE, MINUTE)).await.unwrap_err());
        assert!(lock.try_write_now().await.unwrap().is_none());
        assert_eq!(server.calls("evalsha") == asked, elsewhere.owner() == reading.owner());
        assert_eq!(held(&server, "config").0, "read");
        elsewhere.unlock().await.unwrap();
        soon("the only one", lock.write()).await.unwrap().unlock().await.unwrap();
        reading.unlock().await.unwrap();
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

/// The share is open when the writer comes: by no way does another handle join then.
#[tokio::test]
async fn no_other_handle_of_the_client_joins_a_reader_that_has_a_writer_beside_it() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).max_handoff_time(MINUTE);
    let client = soon("connecting", builder.connect()).await.unwrap();
    let lock = client.read_write_lock("config");
    let reading = reads(&lock).await;
    reads(&client.read_write_lock("config")).await.unlock().await.unwrap();
    let writing = writes(&lock).await;
    assert!(client.read_write_lock("config").try_read_now().await.unwrap().is_none());
    let waits = waiter(&server, client.read_write_lock("config"), reader).await;
    // Another writer of the client does not get it without Redis, past the reader.
    let next = tokio::spawn(writer(client.read_write_lock("config")));
    apart().await;
    assert!(!waits.is_finished());
    drop(writing);
    let joined = soon("the reader", waits).await.unwrap();
    assert_eq!(joined.owner(), reading.owner());
    apart().await;
    assert!(!next.is_finished());
    reading.unlock().await.unwrap();
    joined.unlock().await.unwrap();
    let guard = soon("the writer", next).await.unwrap();
    assert_eq!(held(&server, "config"), is("write", 0, 1));
    guard.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_reader_becomes_a_writer_if_it_is_the_only_one_and_else_stays_what_it_is() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = client.read_write_lock("config");
    let reading = reads(&lock).await;
    let elsewhere = reads(&other.read_write_lock("config")).await;
    let reading = soon("a try", reading.try_upgrade()).await.unwrap().unwrap_err();
    assert!(!reading.is_lost());
    assert_eq!(held(&server, "config"), is("read", 2, 0));
    elsewhere.unlock().await.unwrap();
    let writing = soon("a try", reading.try_upgrade()).await.unwrap().expect("the only one");
    assert_eq!(held(&server, "config"), is("write", 0, 1));
    // A reader beside its writer becomes another hold of that.
    let nested = reads(&lock).await.try_upgrade().await.unwrap().expect("its own writer");
    assert_eq!(nested.owner(), writing.owner());
    nested.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    let brief = lock.read_with_lease(ms(5_000)).await.unwrap();
    let writing = brief.try_upgrade().await.unwrap().expect("the only one");
    assert!(writing.remaining() < ms(5_000) && server.pttl("config") <= 5_000);
    writing.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_writer_becomes_a_reader_and_those_that_wait_to_read_come_in() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = client.read_write_lock("config");
    let writing = writes(&lock).await;
    let mut waits = Vec::new();
    for client in [&client, &other, &client, &other] {
        waits.push(waiter(&server, client.read_write_lock("config"), reader).await);
    }
    let behind = waiter(&server, other.read_write_lock("config"), writer).await;
    // Its client had an entry before, for a reader.
    let behinds = other.read_write_lock("config").owner().rsplit_once(':').unwrap().0.to_owned();
    let field = ["HEXISTS", "redlatch_rw_waiting:{config}", &format!("writer:{behinds}")];
    wait_until("the place of the writer", SOON, || server.ask::<bool>(&field)).await;
    let last = waiter(&server, client.read_write_lock("config"), reader).await;
    let reading = soon("the change", writing.downgrade()).await.unwrap();
    let guards = soon("those before the writer", join_all(waits)).await;
    assert_eq!(held(&server, "config"), is("read", 2, 0));
    apart().await;
    assert!(!behind.is_finished() && !last.is_finished());
    drop(guards);
    reading.unlock().await.unwrap();
    soon("the writer", behind).await.unwrap().unlock().await.unwrap();
    soon("the last one", last).await.unwrap().unlock().await.unwrap();
    // One of two holds: the other one writes.
    let (one, two) = (writes(&lock).await, writes(&lock).await);
    let reading = one.downgrade().await.unwrap();
    assert_eq!(held(&server, "config"), is("write", 1, 1));
    two.unlock().await.unwrap();
    reading.unlock().await.unwrap();
    // A writer of its client does not come in beside it.
    let writing = writes(&lock).await;
    let behind = waiter(&server, client.read_write_lock("config"), writer).await;
    let reading = soon("the change", writing.downgrade()).await.unwrap();
    apart().await;
    assert!(!behind.is_finished());
    reading.unlock().await.unwrap();
    soon("the writer", behind).await.unwrap().unlock().await.unwrap();
    let brief = lock.write_with_lease(ms(5_000)).await.unwrap().downgrade().await.unwrap();
    assert!(brief.remaining() < ms(5_000));
    brief.unlock().await.unwrap();
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test]
async fn what_is_lost_becomes_nothing_else() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.read_write_lock("config");
    let is_lost = |what: &str, error: Error| {
        assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(Loss::KeyGone)), "{what}");
        // Redis has granted the other side, which is given back in the background.
        assert_eq!(error.outcome(), Outcome::Unknown, "{what}");
        wait_until("nothing is left", SOON, || {
            let keys: Vec<String> = server.ask(&["KEYS", "*"]);
            keys.iter().all(|key| key.contains("rwlock_timeout"))
        })
    };
    let reading = reads(&lock).await;
    server.ask::<()>(&["DEL", "config"]);
    is_lost("a reader", reading.try_upgrade().await.map(drop).unwrap_err()).await;
    let writing = writes(&lock).await;
    server.ask::<()>(&["DEL", "config"]);
    is_lost("a writer", writing.downgrade().await.map(drop).unwrap_err()).await;
    // The other side is found lost, and the call goes on as any other.
    let reading = reads(&lock).await;
    server.ask::<()>(&["DEL", "config"]);
    let writing = writes(&lock).await;
    assert!(reading.is_lost());
    server.ask::<()>(&["DEL", "config"]);
    let reading = reads(&lock).await;
    assert!(writing.is_lost());
    assert_eq!(held(&server, "config"), is("read", 1, 0));
    reading.unlock().await.unwrap();
    // What other readers of the client had is lost, and nobody knows it yet.
    let lost = reads(&client.read_write_lock("config")).await;
    server.ask::<()>(&["DEL", "config"]);
    let writing = writes(&lock).await;
    let reading = reads(&lock).await;
    assert_eq!(held(&server, "config"), is("write", 1, 1));
    assert!(lost.is_lost() && !reading.is_lost());
    reading.unlock().await.unwrap();
    writing.unlock().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_outlives_its_writer_goes_on_and_a_writer_its_reader() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.read_write_lock("config");
    let brief = lock.write_with_lease(ms(60)).await.unwrap();
    let reading = reads(&lock).await;
    soon("the end of the write", brief.lost()).await;
    // It reads again, whatever Redis has of its writer.
    reads(&lock).await.unlock().await.unwrap();
    let longer = soon("a longer lease", lock.read_with_lease(MINUTE)).await.unwrap();
    longer.unlock().await.unwrap();
    assert_eq!(brief.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(held(&server, "config"), is("read", 1, 0));
    let writing = writes(&lock).await;
    reading.unlock().await.unwrap();
    let brief = lock.read_with_lease(ms(60)).await.unwrap();
    soon("the end of the read", brief.lost()).await;
    let reading = reads(&lock).await;
    assert_eq!(held(&server, "config"), is("write", 1, 1));
    drop(brief);
    reading.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}
