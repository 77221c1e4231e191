//! An unlock by force frees what the other side holds, wakes who waits on either side, and the
//! holder is told.

use futures::future::join_all;

use crate::parties::{KINDS, Kind, Micros, PROMPT, Party, now};
use crate::setup::Setup;
use crate::sides::Side;
use crate::support::ms;

pub(crate) async fn wakes_waiters_of_both_kinds(setup: &Setup) {
    let mut holders = Vec::new();
    for by in KINDS {
        for holder in KINDS {
            for waiters in [&[Kind::Java][..], &[Kind::Rust], &KINDS] {
                holders.push(frees(setup, by, holder, waiters).await);
            }
        }
    }
    let told = holders.iter_mut().map(async |holder| {
        holder.hears_of_its_loss().await;
        holder.gives_back_too_late().await;
    });
    join_all(told).await;
}

/// Frees a lock that somebody holds. Returns who did.
async fn frees<'a>(setup: &'a Setup, by: Kind, kind: Kind, waiters: &[Kind]) -> Party<'a> {
    let name = format!("forced-by-{by:?}-from-{kind:?}-for-{waiters:?}").replace(' ', "");
    let mut holder = match kind {
        Kind::Java => Party::java(setup, &setup.java, "holder", &name),
        // Renewed every second, and so told soon.
        Kind::Rust => Party::rust(setup, &setup.client_with(ms(3_000)).await, &name),
    };
    holder.takes(Side::Plain).await;
    // One after the other: that each is parked is told by counting.
    let mut parked = Vec::new();
    for kind in waiters {
        let mut waiter = Party::new(setup, *kind, "waiter", &name).await;
        waiter.waits(Side::Plain).await;
        parked.push(waiter);
    }

    let other = Party::new(setup, by, "force", &name).await;
    let begun = now();
    assert!(other.forces(Side::Plain).await, "it was locked");
    let served = parked.iter_mut().map(async |waiter| {
        let got = waiter.gets().await;
        waiter.gives_back(Side::Plain).await;
        got
    });
    let got: Vec<Micros> = join_all(served).await;
    let last = got.into_iter().max().expect("a waiter").saturating_sub(begun);
    assert!(last < PROMPT, "{name}: {last} us");
    assert!(!other.forces(Side::Plain).await, "it is free");
    holder
}
