//! The read-write lock: readers share it, a writer is alone, and who came first comes first. The lock is that
//! of Redisson, on the wire, too.

use redlatch::{ReadGuard, ReadWriteLock, WriteGuard};

use crate::prelude::*;
use crate::sharing::{is_free_to_write, reads, writes};

mod dropped;
mod leases;
mod limits;
mod sides;
mod threads;

/// What stands in the hash.
fn fields(server: &Server, name: &str) -> BTreeMap<String, String> {
    server.ask(&["HGETALL", name])
}

fn queue(server: &Server, name: &str) -> Vec<String> {
    server.ask(&["ZRANGE", &format!("redlatch_rw_queue:{{{name}}}"), "0", "-1"])
}

/// A task that waits, and whose client stands in the queue by now.
async fn waiter<F: Future<Output: Send> + Send + 'static>(
    server: &Server,
    lock: ReadWriteLock,
    call: impl FnOnce(ReadWriteLock) -> F,
) -> JoinHandle<F::Output> {
    let name = lock.name().to_owned();
    let client = lock.owner().rsplit_once(':').expect("an owner").0.to_owned();
    let task = tokio::spawn(call(lock));
    wait_until("an entry", SOON, || queue(server, &name).contains(&client)).await;
    apart().await;
    task
}

async fn reader(lock: ReadWriteLock) -> ReadGuard {
    lock.read().await.expect("to read")
}

async fn writer(lock: ReadWriteLock) -> WriteGuard {
    lock.write().await.expect("to write")
}

#[tokio::test]
async fn on_the_wire_it_is_that_of_redisson() {
    let server = Server::start();
    let client = connect(&server).await;
    let listener = Listener::new(&server, "redisson_rwlock:{config}");
    let lock = client.read_write_lock("config");
    let reading = reads(&lock).await;
    let again = reads(&client.read_write_lock("config")).await;
    let owner = reading.owner().to_owned();
    assert_eq!(again.owner(), owner, "all readers of a client are one");
    let expected = [("mode", "read"), (&owner, "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(fields(&server, "config"), BTreeMap::from(expected));
    let marker = format!("{{config}}:{owner}:rwlock_timeout:1");
    for key in ["config", &marker] {
        let left = server.ask::<i64>(&["PTTL", key]);
        assert!((29_000..=30_000).contains(&left), "{key}: {left}");
    }
    again.unlock().await.unwrap();
    assert!(server.exists("config"));
    reading.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    let writing = writes(&lock).await;
    let nested = writes(&lock).await;
    let owner = writing.owner().to_owned();
    assert!(owner.ends_with(":write"), "{owner}");
    let expected = [("mode", "write"), (&owner, "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(fields(&server, "config"), BTreeMap::from(expected));
    nested.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    assert_eq!(listener.heard(&server), ["0", "1"], "after the last reader, and after the writer");
}

#[tokio::test]
async fn a_reader_that_is_lost_keeps_no_writer_of_its_handle_waiting() {
    let server = Server::start();
    let lock = connect(&server).await.read_write_lock("config");
    let brief = lock.read_with_lease(ms(500)).await.unwrap();
    soon("the end of the lease", brief.lost()).await;
    writes(&lock).await.unlock().await.unwrap();
}
