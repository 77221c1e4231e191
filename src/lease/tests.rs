use proptest::prelude::*;
use tokio_test::{assert_pending, assert_ready};

use super::*;
use crate::clock;
use crate::error::{ErrorKind, Outcome};
use crate::tests::suspended::suspend;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn any_lease() -> impl Strategy<Value = Duration> {
    let longest = u64::try_from(MAX_LEASE.as_nanos()).unwrap();
    prop_oneof![1..5_000_000u64, 1..100_000_000_000u64, 1..=longest].prop_map(Duration::from_nanos)
}

proptest! {
    #[test]
    fn a_lease_is_rounded_up_to_whole_milliseconds_and_no_further(lease in any_lease()) {
        let whole = whole_millis(lease);
        prop_assert_eq!(whole.subsec_nanos() % 1_000_000, 0);
        prop_assert!(whole >= MS && whole >= lease && whole - lease < MS);
        prop_assert_eq!(Lease::from(lease).checked(HOUR).unwrap(), whole);
    }

    #[test]
    fn a_lease_is_believed_for_at_most_99_percent_less_a_millisecond(lease in any_lease()) {
        let (sent, lease) = (clock::now(), whole_millis(lease));
        let until = valid_until(sent, lease);
        prop_assert!(until >= sent && until <= sent + lease - MS);
        prop_assert!((until - sent) * 100 <= lease * 99);
        // Nor is more than that given away.
        prop_assert!((until - sent + MS) * 100 + Duration::from_nanos(100) >= lease * 99);
    }

    #[test]
    fn a_term_is_a_deadline_that_only_moves_on_until_it_has_passed(
        first in 0..100u64,
        steps in prop::collection::vec((0..30u64, 0..3u8, 0..200u64), 1..40),
    ) {
        let base = clock::now();
        let at = |millis| base + MS * u32::try_from(millis).unwrap();
        let validity = Validity::new(at(first));
        let (mut now, mut model) = (0, Some(first));
        for (passed, what, to) in steps {
            now += passed;
            model = model.filter(|deadline| *deadline > now);
            match what {
                0 => {}
                1 => {
                    model = model.map(|deadline| deadline.max(to));
                    prop_assert_eq!(validity.extend(at(to), at(now)), model.is_some());
                }
                // A third as often as the others, so that there is something to lose.
                _ if to < 60 => {
                    model = None;
                    validity.lose(Loss::KeyGone, at(now));
                }
                _ => {}
            }
            prop_assert_eq!(validity.check(at(now)), model.map(at));
        }
    }
}

#[test]
fn a_lease_that_cannot_work_is_refused_before_anything_is_sent() {
    for lease in [Duration::ZERO, MAX_LEASE + Duration::from_nanos(1), Duration::MAX] {
        let error = Lease::Fixed(lease).checked(HOUR).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{lease:?}");
        assert_eq!(error.outcome(), Outcome::NotExecuted, "{lease:?}");
    }
    assert_eq!(MAX_LEASE.as_secs(), 3_153_600_000, "a hundred years");
    assert_eq!(Lease::Fixed(MAX_LEASE).checked(HOUR).unwrap(), MAX_LEASE);
    assert_eq!(Lease::Fixed(Duration::from_nanos(1)).checked(HOUR).unwrap(), MS);
}

#[test]
fn a_default_lease_is_the_watchdog_timeout() {
    assert_eq!(Lease::default(), Lease::Watchdog);
    assert_eq!(Lease::Watchdog.checked(HOUR).unwrap(), HOUR);
    let crooked = Duration::from_micros(30_500);
    assert_eq!(Lease::Watchdog.checked(crooked).unwrap(), 31 * MS);
}

#[test]
fn a_term_is_not_lost_before_its_deadline() {
    let now = clock::now();
    assert!(!Validity::new(now + HOUR).is_lost());
    assert!(Validity::new(now).is_lost());
}

#[test]
fn a_look_at_a_passed_deadline_latches_the_loss() {
    let now = clock::now();
    let validity = Validity::new(now + MS);
    assert_eq!(validity.check(now + MS), None);
    assert_eq!(validity.check(now), None, "found good again by a look at an earlier time");
    assert!(!validity.extend(now + HOUR, now));
    assert!(validity.is_lost());
}

#[test]
fn a_loss_by_the_clock_and_one_that_redis_told_are_told_apart() {
    let now = clock::now();
    let (ran_out, gone) = (Validity::new(now), Validity::new(now + HOUR));
    assert!(gone.lose(Loss::TakenOver, now));
    assert!(ran_out.is_lost() && gone.is_lost());
    assert!(!ran_out.is_gone() && gone.is_gone());
    assert!(!ran_out.lose(Loss::KeyGone, now));
    assert!(ran_out.is_gone(), "also when the clock was first");
}

#[test]
fn what_was_found_out_first_is_what_became_of_the_lock() {
    let now = clock::now();
    let validity = Validity::new(now + HOUR);
    assert_eq!(validity.loss(now), None);
    assert!(validity.lose(Loss::TakenOver, now));
    assert!(!validity.lose(Loss::KeyGone, now));
    assert_eq!(validity.loss(now + HOUR), Some(Loss::TakenOver), "before the clock");
    for lose_at in [HOUR, 2 * HOUR] {
        let validity = Validity::new(now + HOUR);
        assert!(!validity.lose(Loss::KeyGone, now + lose_at));
        assert_eq!(validity.loss(now), Some(Loss::LeaseEnded), "the deadline was first");
    }
}

#[tokio::test]
async fn a_loss_wakes_everybody_who_awaits_it() {
    let validity = Validity::new(clock::now() + HOUR);
    let mut one = tokio_test::task::spawn(validity.lost_while(|| true));
    let mut other = tokio_test::task::spawn(validity.lost_while(|| true));
    assert_pending!(one.poll());
    assert_pending!(other.poll());
    validity.lose(Loss::KeyGone, clock::now());
    validity.wake();
    assert!(one.is_woken() && other.is_woken());
    assert_ready!(one.poll());
    assert_ready!(other.poll());
    assert_ready!(tokio_test::task::spawn(validity.lost_while(|| true)).poll());
}

#[tokio::test]
async fn a_loss_is_told_at_the_deadline_with_nobody_there_to_tell_it() {
    let until = clock::now() + 20 * MS;
    let validity = Validity::new(until);
    validity.lost_while(|| true).await;
    assert!(clock::now() >= until);
}

#[tokio::test]
async fn whoever_awaits_a_loss_waits_on_when_the_lease_was_renewed() {
    let begun = clock::now();
    let validity = Validity::new(begun + 300 * MS);
    let mut lost = tokio_test::task::spawn(validity.lost_while(|| true));
    assert_pending!(lost.poll());
    assert!(validity.extend(begun + HOUR, begun));
    tokio::time::sleep(330 * MS).await;
    assert!(lost.is_woken(), "the first deadline should have been looked at");
    assert_pending!(lost.poll());
    validity.lose(Loss::KeyGone, clock::now());
    validity.wake();
    assert_ready!(lost.poll());
}

#[tokio::test(start_paused = true)]
async fn c13_a_lease_that_ended_while_the_machine_was_suspended_is_lost() {
    let validity = Validity::new(clock::now() + 60 * SECOND);
    let mut lost = tokio_test::task::spawn(validity.lost_while(|| true));
    assert_pending!(lost.poll());
    suspend(59 * SECOND);
    assert!(!validity.is_lost());
    suspend(SECOND);
    assert!(validity.is_lost(), "a call that asks knows at once");
    // Timers have not noticed; a task that awaits the loss knows within a second.
    let timers = tokio::time::Instant::now();
    lost.await;
    assert!(timers.elapsed() <= SECOND + MS);
}
