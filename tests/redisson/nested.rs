//! Who holds a lock twice has to give it back twice, and who does not get it is told so.

use redlatch::Lease;

use crate::owners::{Ask, Kind, Owner, PROMPT};
use crate::setup::Setup;
use crate::support::{ms, soon};

/// For how long somebody must not get in.
const A_WHILE: std::time::Duration = ms(300);

async fn keeps_out_until_the_second_unlock(setup: &Setup, holder: Kind, waiter: Kind) {
    let name = format!("nested-{holder:?}");
    let mut holder = Owner::new(setup, holder, "holder", &name).await;
    let mut waiter = Owner::new(setup, waiter, "waiter", &name).await;
    holder.takes().await;
    holder.takes().await;
    let owner = holder.owner().await;
    assert_eq!(setup.holds(&name), [(owner.clone(), 2)].into());
    waiter.waits(Ask::Lock).await;
    holder.gives_back().await;
    assert_eq!(setup.holds(&name), [(owner, 1)].into());
    tokio::time::sleep(A_WHILE).await;
    assert!(waiter.is_waiting(), "it got in between two unlocks");
    let begun = holder.gives_back().await;
    assert!(waiter.gets().await.saturating_sub(begun) < PROMPT);
    assert_eq!(setup.holds(&name), [(waiter.owner().await, 1)].into());
    waiter.gives_back().await;
}

pub(crate) async fn java_keeps_rust_out(setup: &Setup) {
    keeps_out_until_the_second_unlock(setup, Kind::Java, Kind::Rust).await;
}

pub(crate) async fn rust_keeps_java_out(setup: &Setup) {
    keeps_out_until_the_second_unlock(setup, Kind::Rust, Kind::Java).await;
}

pub(crate) async fn who_waits_in_vain_is_told(setup: &Setup) {
    let client = setup.client().await;
    let thread = setup.java.thread("in-vain");

    let mut java = Owner::new(setup, Kind::Java, "holder", "vain-java").await;
    java.takes().await;
    let ours = client.lock("vain-java");
    for wait in [0, 200] {
        let got = soon("a refusal", ours.try_lock(ms(wait), Lease::Watchdog)).await;
        assert!(got.expect("an answer").is_none());
    }
    java.gives_back().await;

    let mut rust = Owner::new(setup, Kind::Rust, "", "vain-rust").await;
    rust.takes().await;
    for wait in [0, 200] {
        let got: bool = thread.get("tryLock", &[&"vain-rust", &wait, &-1]).await;
        assert!(!got);
    }
    // What they left behind keeps nobody out.
    rust.gives_back().await;
    rust.takes().await;
    rust.gives_back().await;
}
