//! A lock's keys and its channel have to be in one slot.

use std::future::Future;

use super::*;
use crate::errors::calls;

/// Their braces are no hash tag, or another one around the name than in it.
const BROKEN: [&str; 6] = ["a{b", "a{}b", "a}b", "{", "}", "{}"];

/// Theirs are a tag, or there are none.
const SOUND: [&str; 6] = ["ab", "{a}b", "a{b}c", "a{b}{c}", "a{b}}c", "}a{b}"];

async fn refused<T>(what: &str, call: impl Future<Output = Result<T, Error>>) {
    let error = soon(what, call).await.err().unwrap_or_else(|| panic!("{what} was accepted"));
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
    assert_eq!(error.outcome(), Outcome::NotExecuted, "{what}: {error}");
}

async fn every_call_refuses(client: &LockClient, name: &str) {
    for (what, call) in
        calls(&client.lock(name)).into_iter().chain(calls(&client.fenced_lock(name)))
    {
        refused(what, call).await;
    }
    let lock = client.read_write_lock(name);
    refused("read", lock.read()).await;
    refused("write", lock.write()).await;
    refused("try_read_now", lock.try_read_now()).await;
    refused("try_write", lock.try_write(MINUTE, MINUTE)).await;
    refused("is_read_locked", lock.is_read_locked()).await;
    refused("rw force_unlock", lock.force_unlock()).await;
    let lock = client.fenced_read_write_lock(name);
    refused("fenced read", lock.read()).await;
    refused("fenced try_write", lock.try_write(MINUTE, MINUTE)).await;
    let all = client.multi_lock(["sound", name]);
    refused("multi lock", all.lock()).await;
    refused("multi try_lock_now", all.try_lock_now()).await;
    refused("multi force_unlock", all.force_unlock()).await;
}

#[tokio::test]
async fn names_whose_braces_break_the_slot_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start();
    let client = client_of(&cluster, MINUTE).await;
    for name in BROKEN {
        assert_ne!(cluster.slot_of(name), cluster.slot_of(&channel(name)), "{name} is sound");
    }
    // Nobody could answer.
    for node in cluster.nodes() {
        node.pause();
    }
    for name in BROKEN {
        every_call_refuses(&client, name).await;
    }
    for node in cluster.nodes() {
        node.resume();
    }
    assert_eq!(cluster.size(), 0);
}

#[tokio::test]
async fn a_prefix_counts_as_part_of_the_name() {
    let cluster = shared();
    let client = connected(of(&cluster).name_prefix("shop}:")).await;
    every_call_refuses(&client, "till").await;
    let client = connected(of(&cluster).name_prefix("{shop}:")).await;
    let guard = hold(&client.lock("a}b")).await;
    assert!(cluster.exists("{shop}:a}b"));
    release(guard).await;
}

#[tokio::test]
async fn names_with_a_tag_work_in_a_cluster() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    for name in SOUND {
        assert_eq!(cluster.slot_of(name), cluster.slot_of(&channel(name)), "{name} is broken");
        let guard = soon(name, client.fenced_lock(name).lock()).await.expect(name);
        assert!(cluster.exists(name));
        assert!(client.lock(name).try_lock_now().await.expect(name).is_none());
        soon(name, guard.unlock()).await.expect(name);
        assert!(!cluster.exists(name));
        let writing = soon(name, client.fenced_read_write_lock(name).write()).await.expect(name);
        let token = writing.token();
        let reading = soon(name, writing.downgrade()).await.expect(name);
        assert_eq!(reading.token(), Some(token));
        soon(name, reading.unlock()).await.expect(name);
        assert!(!cluster.exists(name));
    }
}
