use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::error::Loss;
use crate::kind::Kind;
use crate::tests::explore::CASES;

mod gap;
mod handoff;
mod joint;
mod renewal;
mod returned;
mod streak;
mod world;

use world::{Op, WATCHDOG, World};

fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![
        3 => Just(Lease::Watchdog),
        // About as long as a renewal waits.
        2 => (100_000..400_000u64).prop_map(|micros| Lease::Fixed(Duration::from_micros(micros))),
        1 => (1..900_000u64).prop_map(|micros| Lease::Fixed(Duration::from_micros(micros))),
        1 => (900_000..3_000_000u64).prop_map(|micros| Lease::Fixed(Duration::from_micros(micros))),
    ]
}

/// Everything but an operator's delete.
fn op() -> impl Strategy<Value = Op> {
    let handle = || 1..3u64;
    prop_oneof![
        4 => (0..5_000u32).prop_map(Op::Pass),
        4 => (0..250_000u32).prop_map(Op::Pass),
        1 => (0..1_500_000u32).prop_map(Op::Pass),
        6 => (handle(), lease()).prop_map(|(handle, lease)| Op::Acquire(handle, lease)),
        3 => any::<usize>().prop_map(Op::GiveBack),
        12 => (prop::bool::weighted(0.7), handle(), lease(), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(turn, to, lease, confirms, in_queue)| {
                Op::HandOff { turn, to, lease, confirms, in_queue }
            }),
        6 => Just(Op::LeaveInGap),
        6 => Just(Op::Claim),
        6 => Just(Op::Update),
        2 => Just(Op::Pay),
        8 => Just(Op::Arrive),
        8 => Just(Op::Answer),
        1 => any::<bool>().prop_map(|arrived| Op::Cut { arrived }),
        1 => any::<bool>().prop_map(|arrived| Op::GiveUp { arrived }),
        1 => Just(Op::NotExecuted),
        6 => Just(Op::Look),
        6 => Just(Op::ArriveRenewal),
        6 => prop::bool::weighted(0.2).prop_map(|lost| Op::AnswerRenewal { lost }),
        1 => (1..1000u32).prop_map(Op::OtherAcquires),
        1 => Just(Op::OtherReleases),
    ]
}

fn live(ops: &[Op]) {
    let mut world = World::new();
    for op in ops {
        world.run(op);
    }
    world.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * CASES))]

    #[test]
    fn a_valid_guard_is_held_and_a_hold_that_was_given_back_is_released(
        ops in prop::collection::vec(op(), 1..100),
    ) {
        live(&ops);
    }

    #[test]
    fn a_key_that_was_deleted_costs_only_its_own_guards(
        ops in prop::collection::vec(prop_oneof![30 => op(), 1 => Just(Op::Delete)], 1..100),
    ) {
        live(&ops);
    }
}

/// One possession in an unmoving world, whose events the tests name directly.
struct Story {
    possession: Arc<Possession>,
    config: Config,
    now: Instant,
}

const HOUR: Duration = Duration::from_secs(3600);

/// The handle that asks for the lock.
const ME: HandleId = 7;

impl Story {
    fn new() -> Self {
        let names = Arc::new(Names::new("", "lock"));
        let possession = Arc::<Possessions>::default().begin(Kind::Reentrant, &names, None);
        let config = Config { watchdog_timeout: WATCHDOG, ..Config::default() };
        Self { possession, config, now: Instant::now() }
    }

    fn holds(&self) -> parking_lot::MutexGuard<'_, HoldState> {
        self.possession.holds.lock()
    }

    /// The first hold, or one more.
    fn grant(&self, lease: Lease) -> (HoldId, Arc<Validity>) {
        let mut holds = self.holds();
        let ask = if holds.has_holds() {
            match holds.ask_nested(ME, self.now) {
                Nesting::Ask(ask) => ask,
                other => panic!("{other:?}"),
            }
        } else {
            holds.ask_first(ME)
        };
        let requested = lease.checked(WATCHDOG).unwrap();
        let (hold, validity, _) =
            holds.record_grant(ask, lease, requested, TokenBlock::default(), self.now);
        (hold, validity)
    }

    fn give_back(&self, hold: HoldId) -> Option<PendingRelease> {
        let mut holds = self.holds();
        holds.give_back(hold);
        holds.pending(self.now, WATCHDOG)
    }

    fn lose(&self, by: FoundBy) -> Option<bool> {
        self.possession.lose(by, Loss::KeyGone, self.now)
    }

    fn pending(&self) -> Option<PendingRelease> {
        self.holds().pending(self.now, WATCHDOG)
    }
}

/// Those of readers, say, of which one stays for months.
#[test]
fn no_two_live_holds_have_one_number_however_many_came_between_them() {
    let story = Story::new();
    let (first, _) = story.grant(HOUR.into());
    story.holds().last_number = HoldId::MAX - 1;
    let [last, next] = [(); 2].map(|()| story.grant(Lease::Watchdog).0);
    assert_eq!((first, last, next), (1, HoldId::MAX, 2));
    story.give_back(next);
    assert!(story.holds().live_with(first) > 0 && story.holds().live_with(next) == 0);
}

#[test]
fn a_release_is_pending_from_before_an_acquire_is_sent_until_it_is_answered() {
    let story = Story::new();
    assert_eq!(story.pending(), None);
    let ask = story.holds().ask_first(ME);
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
    story.holds().not_executed(ask);
    assert_eq!(story.pending(), None);
    story.holds().ask_first(ME);
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
    story.holds().record_refusal();
    assert_eq!(story.pending(), None);
}

#[test]
fn nested_holds_are_counted_up_and_given_back_in_any_order() {
    let story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let (inner, _) = story.grant(HOUR.into());
    assert_eq!(story.pending(), None);
    let pending = story.give_back(outer).unwrap();
    assert_eq!((pending.count, pending.lease), (1, HOUR));
    story.holds().release_confirmed(pending);
    assert_eq!(story.pending(), None);
    assert_eq!(story.give_back(inner).map(|pending| pending.count), Some(0));
}

#[test]
fn a_nested_hold_needs_its_handle_inside_and_comes_after_a_pending_release() {
    let mut story = Story::new();
    let ask = |story: &Story, handle| story.holds().ask_nested(handle, story.now);
    assert_eq!(ask(&story, ME), Nesting::Over, "it was never granted");
    let (outer, _) = story.grant(WATCHDOG.into());
    assert_eq!(ask(&story, ME + 1), Nesting::Over, "another handle is inside");
    let Nesting::Ask(second) = ask(&story, ME) else { panic!("it is inside") };
    assert_eq!(second.count, 2);
    assert_eq!(ask(&story, ME), Nesting::ReleaseFirst, "Redis may count two");
    story.holds().not_executed(second);
    story.now += WATCHDOG;
    assert_eq!(ask(&story, ME), Nesting::ReleaseFirst, "it has run out");
    let pending = story.give_back(outer).unwrap();
    story.holds().release_confirmed(pending);
    assert_eq!(ask(&story, ME), Nesting::Over, "Redis has released it");
    let story = Story::new();
    story.grant(HOUR.into());
    story.lose(FoundBy::NestedAcquire);
    assert_eq!(ask(&story, ME), Nesting::Over, "it is lost");
}

#[test]
fn a_hold_that_was_given_back_twice_counts_once() {
    let story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let _inner = story.grant(HOUR.into());
    let once = story.give_back(outer);
    assert_eq!(story.give_back(outer), once);
}

#[test]
fn a_possession_that_is_lost_takes_nothing_back_and_hands_nothing_on() {
    let story = Story::new();
    let (hold, gone) = story.grant(HOUR.into());
    story.lose(FoundBy::Release);
    assert_eq!(story.give_back(hold), None);
    assert!(!story.holds().give_back(hold), "it is lost, marked or not");
    assert!(gone.is_gone() && !story.holds().is_of(ME));
    assert_eq!(story.holds().live_with(hold), 0);
}

#[test]
fn a_loss_reaches_every_guard() {
    let story = Story::new();
    let (_, first) = story.grant(Lease::Watchdog);
    let (_, second) = story.grant(HOUR.into());
    assert_eq!(story.lose(FoundBy::Release), Some(true));
    assert!(first.is_gone() && second.is_gone());
    assert_eq!(story.pending(), None);
    assert_ne!(story.lose(FoundBy::Release), Some(true), "no guard can lose it");
}

#[test]
fn guards_that_are_all_lost_keep_nothing_in_redis() {
    let mut story = Story::new();
    let _held = story.grant(WATCHDOG.into());
    story.now += WATCHDOG;
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
    assert!(!story.holds().holds_for(ME, story.now), "nothing is left to stand on");
}

/// Its reader had a longer lease, and has gone. Redis does not answer the first request because of that.
#[test]
fn a_writer_asks_again_for_the_lease_that_a_reader_leaves_it() {
    let story = Story::new();
    story.grant(Lease::Watchdog);
    story.holds().set_readers(story.possession.id());
    let until = story.now + HOUR;
    assert!(story.holds().outlasts_readers(until, WATCHDOG, story.now));
    for _ in 0..2 {
        let pending = story.pending().expect("Redis may not have heard of it");
        assert_eq!((pending.count, pending.lease), (1, WATCHDOG));
        story.holds().release_sent(pending, story.now);
    }
    let pending = story.pending().expect("no answer came");
    story.holds().release_confirmed(pending);
    assert_eq!(story.pending(), None);
}

#[test]
fn a_release_keeps_the_longest_lease_that_is_still_promised() {
    let mut story = Story::new();
    let _short = story.grant(Duration::from_secs(10).into());
    let (long, _) = story.grant(Duration::from_secs(60).into());
    let (middle, _) = story.grant(Duration::from_secs(30).into());
    story.now += Duration::from_secs(4);
    let lease = |pending: Option<PendingRelease>| pending.unwrap().lease;
    assert_eq!(lease(story.give_back(middle)), Duration::from_secs(56));
    assert_eq!(lease(story.give_back(long)), Duration::from_secs(6));
}

#[test]
fn a_hold_whose_release_is_pending_learns_of_a_loss_that_the_release_finds() {
    for by in [FoundBy::Release, FoundBy::HandOff, FoundBy::Execution] {
        let story = Story::new();
        let (hold, validity) = story.grant(HOUR.into());
        story.give_back(hold);
        story.lose(by);
        assert!(validity.is_gone());
        assert_eq!(story.pending(), None);
    }
}

#[test]
fn a_hold_that_redis_has_forgotten_has_no_pending_release() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(WATCHDOG.into());
    story.now += WATCHDOG;
    let pending = story.pending().expect("a release of what is lost");
    story.holds().release_confirmed(pending);
    assert_eq!(story.give_back(hold), None);
    story.lose(FoundBy::Release);
    assert!(!validity.is_gone(), "it was lost by the clock alone");
}

#[test]
fn a_release_that_was_confirmed_cannot_be_lost_later() {
    let story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let (inner, validity) = story.grant(HOUR.into());
    let pending = story.give_back(inner).unwrap();
    story.holds().release_sent(pending, story.now);
    story.holds().release_confirmed(pending);
    story.give_back(outer);
    story.lose(FoundBy::Release);
    assert!(!validity.is_gone());
}

#[test]
fn a_release_of_everything_that_was_never_answered_may_be_what_freed_the_lock() {
    let story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let (inner, _) = story.grant(HOUR.into());
    let one_less = story.give_back(inner).unwrap();
    let (mut holds, now) = (story.holds(), story.now);
    assert!(!holds.release_sent(one_less, now));
    assert!(!holds.release_sent(one_less, now), "it leaves something, which can be missed");
    holds.give_back(outer);
    let all = holds.pending(now, WATCHDOG).unwrap();
    assert!(!holds.release_sent(all, now));
    assert!(holds.release_sent(all, now));
    holds.release_not_executed(all, false);
    assert!(!holds.release_sent(all, now), "it is known not to have been executed");
    holds.release_confirmed(all);
    assert!(!holds.release_sent(all, now), "it was answered");
}

#[test]
fn the_last_release_leaves_the_key_for_as_long_as_any_guard_has_asked_for() {
    let mut story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let (inner, _) = story.grant(HOUR.into());
    let at = |seconds| story.now + Duration::from_secs(seconds);
    let [early, late] = [at(10), at(60)];
    story.holds().hold_until(inner, late);
    story.holds().hold_until(outer, early);
    let pending = story.give_back(inner).unwrap();
    assert_eq!((pending.count, pending.retains), (1, false), "a guard is left");
    story.holds().release_confirmed(pending);
    let pending = story.give_back(outer).unwrap();
    let lease = Duration::from_secs(60);
    assert_eq!((pending.count, pending.lease, pending.retains), (0, lease, true));
    assert_eq!(story.holds().hands_off_until(story.now), None, "no handle is inside for that long");
    story.now = late;
    let pending = story.pending().unwrap();
    assert!(!pending.retains, "its time is over");
    story.holds().release_confirmed(pending);
    assert_eq!(story.holds().retention(story.now), None);
    // A server that has missed that hears it again.
    story.holds().releases_again(Some(late + HOUR));
    assert_eq!(story.holds().retention(story.now), Some(HOUR));
}
