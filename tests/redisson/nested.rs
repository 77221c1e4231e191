//! Who holds a lock twice has to give it back twice, and who does not get it is told so.

use futures::future::join_all;
use redlatch::Lease;

use crate::parties::{KINDS, Kind, PROMPT, Party};
use crate::setup::Setup;
use crate::sides::{Ask, Side};
use crate::support::{HOUR, ms, soon};

/// For how long somebody must not get in.
const A_WHILE: std::time::Duration = ms(300);

/// Whom a holder keeps out.
const KEEPS_OUT: [(Side, Side); 4] = [
    (Side::Plain, Side::Plain),
    (Side::Read, Side::Write),
    (Side::Write, Side::Read),
    (Side::Write, Side::Write),
];

/// A waiter of the other side gets it after the second unlock, and not before.
pub(crate) async fn keeps_the_other_side_out_until_the_second_unlock(setup: &Setup) {
    let cases = KINDS.into_iter().flat_map(|kind| KEEPS_OUT.map(|sides| (kind, sides)));
    let played = cases.map(async |(kind, (held, wanted))| {
        let name = format!("{held:?}-by-{kind:?}-then-{wanted:?}");
        let mut holder = Party::new(setup, kind, &name, &name).await;
        let mut waiter = Party::new(setup, kind.other(), &name, &name).await;
        let assert_counts = async |who: &Party<'_>, count: u32| {
            if held == Side::Plain {
                assert_eq!(setup.holds(&name), [(who.field(held).await, count)].into());
            }
        };
        // The inner one ends sooner, so that no lease gets shorter, of which the waiter would be told.
        for lease in [HOUR, HOUR / 2] {
            holder.takes_by(held, Ask::For(lease)).await;
        }
        assert_counts(&holder, 2).await;
        waiter.waits(wanted).await;
        holder.gives_back(held).await;
        assert_counts(&holder, 1).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(waiter.is_waiting(), "{name}: it got in between two unlocks");
        let begun = holder.gives_back(held).await;
        let took = waiter.gets().await.saturating_sub(begun);
        assert!(took < PROMPT, "{name}: {took} us");
        assert_counts(&waiter, 1).await;
        waiter.gives_back(wanted).await;
    });
    join_all(played).await;
    assert_eq!(setup.keys(), [""; 0]);
}

pub(crate) async fn who_waits_in_vain_is_told(setup: &Setup) {
    let client = setup.client().await;
    let thread = setup.java.thread("in-vain");

    let mut java = Party::new(setup, Kind::Java, "holder", "vain-java").await;
    java.takes(Side::Plain).await;
    let ours = client.lock("vain-java");
    for wait in [0, 200] {
        let got = soon("a refusal", ours.try_lock(ms(wait), Lease::Watchdog)).await;
        assert!(got.expect("an answer").is_none());
    }
    java.gives_back(Side::Plain).await;

    let mut rust = Party::new(setup, Kind::Rust, "", "vain-rust").await;
    rust.takes(Side::Plain).await;
    for wait in [0, 200] {
        let got: bool = thread.get("tryLock", &[&"vain-rust", &wait, &-1]).await;
        assert!(!got);
    }
    // What they left behind keeps nobody out.
    rust.gives_back(Side::Plain).await;
    rust.takes(Side::Plain).await;
    rust.gives_back(Side::Plain).await;
}
