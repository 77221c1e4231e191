//! An unlock by force frees what the other side holds, wakes who waits on either side, and the
//! holder is told.

use redlatch::ErrorKind;

use crate::owners::{Ask, KINDS, Kind, Micros, Owner, PROMPT, now};
use crate::setup::Setup;
use crate::support::{ms, soon};

pub(crate) async fn wakes_waiters_of_both_kinds(setup: &Setup) {
    let mut holders = Vec::new();
    for by in KINDS {
        for holder in KINDS {
            for waiters in [&[Kind::Java][..], &[Kind::Rust], &KINDS] {
                holders.push(frees(setup, by, holder, waiters).await);
            }
        }
    }
    futures::future::join_all(holders.into_iter().map(is_told)).await;
}

/// Frees a lock that somebody holds. Returns who did.
async fn frees<'a>(setup: &'a Setup, by: Kind, kind: Kind, waiters: &[Kind]) -> Owner<'a> {
    let name = format!("forced-by-{by:?}-from-{kind:?}-for-{waiters:?}").replace(' ', "");
    let mut holder = match kind {
        Kind::Java => Owner::java(setup, &setup.java, "holder", &name),
        // Renewed every second, and so told soon.
        Kind::Rust => Owner::rust(setup, &setup.client_with(ms(3_000)).await, &name),
    };
    holder.takes().await;
    // One after the other: that each is parked is told by counting.
    let mut parked = Vec::new();
    for kind in waiters {
        let mut waiter = Owner::new(setup, *kind, "waiter", &name).await;
        waiter.waits(Ask::Lock).await;
        parked.push(waiter);
    }

    let begun = now();
    assert!(force(setup, by, &name).await, "it was locked");
    let served = parked.iter_mut().map(async |waiter| {
        let got = waiter.gets().await;
        waiter.gives_back().await;
        got
    });
    let got: Vec<Micros> = futures::future::join_all(served).await;
    let last = got.into_iter().max().expect("a waiter").saturating_sub(begun);
    assert!(last < PROMPT, "{name}: {last} us");
    assert!(!force(setup, by, &name).await, "it is free");
    holder
}

async fn is_told(holder: Owner<'_>) {
    match holder {
        Owner::Java(it) => it.thread.ask("unlock", &[&it.name]).await.assert_not_held(),
        Owner::Rust(mut it) => {
            let guard = it.guards.pop().expect("a guard");
            soon("the holder is told", guard.lost()).await;
            let error = guard.unlock().await.expect_err("a lock that was lost");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        }
    }
}

async fn force(setup: &Setup, by: Kind, name: &str) -> bool {
    match by {
        Kind::Java => setup.java.thread("force").get("forceUnlock", &[&name]).await,
        Kind::Rust => setup.client().await.lock(name).force_unlock().await.expect("an answer"),
    }
}
