use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_stamp_is_the_instant_that_it_was_made_of(
        nanos in any::<u32>(), many in 0..100u64 * 365 * 24 * 3600,
    ) {
        let now = Instant::now();
        let before = now - Duration::from_nanos(nanos.into());
        let after = now + Duration::from_secs(many) + Duration::from_nanos(nanos.into());
        for instant in [now, before, after] {
            prop_assert_eq!(Stamp::from(instant).instant(), instant);
        }
        prop_assert!(Stamp::from(before) <= Stamp::from(now));
        prop_assert!(Stamp::from(now) <= Stamp::from(after));
    }
}

#[test]
fn a_stamp_that_may_be_missing_takes_no_more_room() {
    assert_eq!(size_of::<Option<Stamp>>(), size_of::<Instant>() / 2);
}
