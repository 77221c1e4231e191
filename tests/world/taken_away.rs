//! An operator takes a lock away (S22), or the server takes no renewals (S15): what the holder hears of it.

use redlatch::Loss;

use crate::outages::{NAME, play_with};
use crate::prelude::*;

#[test]
fn s22_a_holder_whose_key_is_taken_away_is_told_by_the_next_renewal() {
    let ways: [&[&str]; 6] = [
        &["DEL", NAME],
        &["UNLINK", NAME],
        &["RENAME", NAME, "elsewhere"],
        &["PEXPIRE", NAME, "0"],
        &["FLUSHDB"],
        &["FLUSHALL"],
    ];
    for words in ways {
        play_with(ms(3_000), async |way| {
            let guard = way.hold(NAME).await;
            let lease_ends = Instant::now() + guard.remaining();
            way.scene.ask::<redlatch::redis::Value>(words);
            timeout(HOUR, guard.lost()).await.expect("its loss");
            assert!(Instant::now() < lease_ends, "{words:?}: told by its lease");
            assert_eq!(guard.loss(), Some(Loss::KeyGone), "{words:?}");
            assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
        });
    }
}

#[test]
fn s15_a_holder_whose_renewals_lack_replicas_is_told_before_its_lease_ends_in_redis() {
    play_with(ms(3_000), async |way| {
        let guard = way.hold(NAME).await;
        let lease_ends = Instant::now() + guard.remaining();
        way.scene.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        timeout(HOUR, guard.lost()).await.expect("its loss");
        assert_eq!(guard.loss(), Some(Loss::LeaseEnded));
        let (now, left) = (Instant::now(), way.scene.pttl(NAME));
        assert!((lease_ends..lease_ends + ms(2)).contains(&now), "{:?}", now - lease_ends);
        assert!(left > 0, "{left}");
        let refused =
            way.scene.network.at(way.scene.server, |server, _| server.errors("NOREPLICAS"));
        assert!(refused > 1, "that is the point");
    });
}
