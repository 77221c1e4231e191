use proptest::prelude::*;

use super::*;
use crate::error::Loss;
use crate::tests::explore::CASES;

mod handoff;
mod scene;
mod world;

use world::{WATCHDOG, World};

/// What can happen next.
#[derive(Debug, Clone)]
enum Op {
    /// So many microseconds pass.
    Pass(u32),
    /// A call for one more hold gets the permit, sends the pending release and asks.
    Acquire(Lease),
    /// The n-th guard is dropped.
    GiveBack(usize),
    /// The background gets the permit and sends the pending release.
    Pay,
    /// Redis executes the request under way.
    Arrive,
    /// Its answer comes.
    Answer,
    /// The connection is cut, before or after Redis has executed the request, which is sent again.
    Cut {
        arrived: bool,
    },
    /// The request ends with no answer, or its caller leaves. What was sent arrives now or never,
    /// because an undo goes behind what it undoes.
    GiveUp {
        arrived: bool,
    },
    /// The request ends unsent.
    NotExecuted,
    /// The watchdog checks, and asks for a renewal if that is due.
    Look,
    ArriveRenewal,
    /// Its answer comes, or gets lost.
    AnswerRenewal {
        lost: bool,
    },
    /// Another owner acquires or releases.
    OtherAcquires(u32),
    OtherReleases,
    /// An operator deletes the key.
    Delete,
}

fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![
        Just(Lease::Watchdog),
        (1..2_000_000u64).prop_map(|micros| Lease::Fixed(Duration::from_micros(micros))),
    ]
}

/// Everything but an operator's delete.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..5_000u32).prop_map(Op::Pass),
        4 => (0..250_000u32).prop_map(Op::Pass),
        1 => (0..1_500_000u32).prop_map(Op::Pass),
        6 => lease().prop_map(Op::Acquire),
        4 => any::<usize>().prop_map(Op::GiveBack),
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
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_valid_guard_is_held_and_a_hold_that_was_given_back_is_released(
        ops in prop::collection::vec(op(), 1..80),
    ) {
        live(&ops);
    }

    #[test]
    fn a_key_that_was_deleted_costs_only_its_own_guards(
        ops in prop::collection::vec(prop_oneof![30 => op(), 1 => Just(Op::Delete)], 1..80),
    ) {
        live(&ops);
    }
}

/// A hold state in an unmoving world, whose events the tests name directly.
struct Story {
    owner: Owner,
    now: Instant,
}

const HOUR: Duration = Duration::from_secs(3600);

impl Story {
    fn new() -> Self {
        let now = Instant::now();
        Self { owner: Owner::new(Kind::Reentrant, Names::new("", "lock"), "us".into()), now }
    }

    fn grant(&self, lease: Lease) -> (HoldId, Arc<Validity>) {
        let requested = lease.checked(WATCHDOG).unwrap();
        let validity = Arc::new(Validity::new(valid_until(self.now, requested)));
        let mut holds = self.owner.holds.lock();
        let ask = holds.ask(self.now);
        let hold = holds.granted(ask, lease, validity.clone(), self.now);
        (hold, validity)
    }

    fn give_back(&self, hold: HoldId) -> Option<PendingRelease> {
        let mut holds = self.owner.holds.lock();
        holds.give_back(hold);
        holds.pending(self.now, WATCHDOG)
    }

    fn lose(&self, by: FoundBy) -> Option<bool> {
        self.owner.lose(by, Loss::KeyGone, self.now)
    }

    fn pending(&self) -> Option<PendingRelease> {
        self.owner.holds.lock().pending(self.now, WATCHDOG)
    }
}

#[test]
fn a_release_is_pending_from_before_an_acquire_is_sent_until_it_is_answered() {
    let story = Story::new();
    assert_eq!(story.pending(), None);
    let ask = story.owner.holds.lock().ask(story.now);
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
    story.owner.holds.lock().not_executed(ask);
    assert_eq!(story.pending(), None);
    story.owner.holds.lock().ask(story.now);
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
    story.lose(FoundBy::Refusal);
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
    story.owner.holds.lock().release_confirmed(pending);
    assert_eq!(story.pending(), None);
    assert_eq!(story.give_back(inner).map(|pending| pending.count), Some(0));
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
fn a_hold_of_an_earlier_generation_gives_nothing_back_of_a_later_one() {
    let story = Story::new();
    let (before, gone) = story.grant(HOUR.into());
    story.lose(FoundBy::Release);
    let (_after, validity) = story.grant(HOUR.into());
    assert_eq!(story.give_back(before), None);
    assert!(!story.owner.holds.lock().give_back(before), "it is lost, marked or not");
    assert!(gone.is_gone());
    assert!(validity.check(story.now).is_some());
}

#[test]
fn a_renewal_that_was_refused_says_nothing_of_a_later_generation() {
    let mut story = Story::new();
    let (hold, _) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 2;
    let due = story.owner.holds.lock().renewal(story.now, WATCHDOG / 3, Duration::MAX);
    let Renewal::Due { generation, .. } = due else { panic!("{due:?}") };
    // While it is under way, the lock is released and acquired again.
    let pending = story.give_back(hold).unwrap();
    story.owner.holds.lock().release_confirmed(pending);
    let (_, validity) = story.grant(Lease::Watchdog);
    assert_ne!(story.lose(FoundBy::Renewal { generation }), Some(true));
    assert!(validity.check(story.now).is_some());
}

#[test]
fn a_renewal_of_a_released_lock_is_refused_and_no_guard_learns_of_a_loss() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 2;
    let due = story.owner.holds.lock().renewal(story.now, WATCHDOG / 3, Duration::MAX);
    let Renewal::Due { generation, .. } = due else { panic!("{due:?}") };
    let pending = story.give_back(hold).unwrap();
    assert_ne!(story.lose(FoundBy::Renewal { generation }), Some(true));
    assert!(!validity.is_gone());
    assert_eq!(story.pending(), Some(pending), "the release is still to be confirmed");
}

#[test]
fn a_refused_renewal_of_what_is_held_is_a_loss() {
    let story = Story::new();
    let (hold, validity) = story.grant(Lease::Watchdog);
    assert_eq!(
        story.lose(FoundBy::Renewal { generation: hold.generation }),
        Some(true),
        "a guard was still valid"
    );
    assert!(validity.is_gone());
    assert_eq!(story.pending(), None);
}

#[test]
fn a_renewal_that_crosses_the_release_of_what_is_lost_says_nothing_of_what_was_given_back() {
    let mut story = Story::new();
    let (hold, _lost) = story.grant(Lease::Watchdog);
    let (given_back, validity) = story.grant(HOUR.into());
    story.give_back(given_back);
    story.now += WATCHDOG;
    // The other hold has run out, so all of it is released; the renewal finds nothing then.
    let pending = story.pending().unwrap();
    assert_eq!(pending.count, 0);
    story.owner.holds.lock().release_sent(pending);
    assert_ne!(story.lose(FoundBy::Renewal { generation: hold.generation }), Some(true));
    assert!(!validity.is_gone(), "the release finds out");
}

#[test]
fn a_renewal_prolongs_default_leases_and_never_a_fixed_one() {
    let mut story = Story::new();
    let (_, fixed) = story.grant(WATCHDOG.into());
    let (hold, watched) = story.grant(Lease::Watchdog);
    let as_granted = fixed.check(story.now);
    story.now += WATCHDOG / 2;
    let mut holds = story.owner.holds.lock();
    assert!(holds.renewed(hold.generation, story.now, WATCHDOG, story.now));
    assert_eq!(watched.check(story.now), Some(valid_until(story.now, WATCHDOG)));
    assert_eq!(fixed.check(story.now), as_granted);
}

#[test]
fn a_renewal_that_is_confirmed_after_the_deadline_came_too_late() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(Lease::Watchdog);
    let sent = story.now + WATCHDOG / 2;
    story.now += WATCHDOG;
    let mut holds = story.owner.holds.lock();
    assert!(!holds.renewed(hold.generation, sent, WATCHDOG, story.now));
    assert_eq!(validity.check(story.now), None);
}

#[test]
fn a_renewal_counts_from_the_first_default_hold_and_not_from_an_earlier_one() {
    let mut story = Story::new();
    let period = WATCHDOG / 3;
    let (hold, _) = story.grant(Lease::Watchdog);
    let pending = story.give_back(hold).unwrap();
    story.owner.holds.lock().release_confirmed(pending);
    story.now += 2 * period;
    let _again = story.grant(Lease::Watchdog);
    let found = story.owner.holds.lock().renewal(story.now, period, Duration::MAX);
    assert_eq!(found, Renewal::NotBefore(story.now + period));
}

#[test]
fn a_generation_that_ran_out_leaves_nothing_in_the_count_of_the_next() {
    let mut story = Story::new();
    let _ran_out = [story.grant(WATCHDOG.into()), story.grant(WATCHDOG.into())];
    story.now += WATCHDOG;
    let _held = story.grant(HOUR.into());
    assert_eq!(story.owner.holds.lock().ask(story.now).count, 2);
}

#[test]
fn a_loss_reaches_every_guard_of_the_generation() {
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
    let ask = story.owner.holds.lock().ask(story.now);
    assert_eq!(ask.count, 1, "nothing is left to stand on");
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
    let story = Story::new();
    let (hold, validity) = story.grant(HOUR.into());
    story.give_back(hold);
    story.lose(FoundBy::Release);
    assert!(validity.is_gone());
    assert_eq!(story.pending(), None);
}

#[test]
fn a_hold_whose_release_is_pending_learns_that_another_owner_had_come_in() {
    let story = Story::new();
    let (hold, validity) = story.grant(HOUR.into());
    story.give_back(hold);
    story.lose(FoundBy::Refusal);
    assert!(validity.is_gone());
    assert_eq!(story.pending(), None);
}

#[test]
fn a_pending_release_that_the_next_generation_took_over_is_not_lost_with_it() {
    let story = Story::new();
    let (hold, validity) = story.grant(HOUR.into());
    story.give_back(hold);
    let (_, next) = story.grant(HOUR.into());
    story.lose(FoundBy::Release);
    assert!(next.is_gone() && !validity.is_gone());
}

#[test]
fn a_hold_that_redis_has_forgotten_has_no_pending_release() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(WATCHDOG.into());
    story.now += WATCHDOG;
    let pending = story.pending().expect("a release of what is lost");
    story.owner.holds.lock().release_confirmed(pending);
    assert_eq!(story.give_back(hold), None);
    story.lose(FoundBy::Refusal);
    assert!(!validity.is_gone(), "it was lost by the clock alone");
}

#[test]
fn a_release_that_was_confirmed_cannot_be_lost_later() {
    let story = Story::new();
    let (hold, validity) = story.grant(HOUR.into());
    let pending = story.give_back(hold).unwrap();
    story.owner.holds.lock().release_confirmed(pending);
    story.grant(HOUR.into());
    story.lose(FoundBy::Release);
    assert!(!validity.is_gone());
}

#[test]
fn a_release_of_everything_that_was_never_answered_may_be_what_freed_the_lock() {
    let story = Story::new();
    let (outer, _) = story.grant(HOUR.into());
    let (inner, _) = story.grant(HOUR.into());
    let one_less = story.give_back(inner).unwrap();
    let mut holds = story.owner.holds.lock();
    assert!(!holds.release_sent(one_less));
    assert!(!holds.release_sent(one_less), "it leaves something, which can be missed");
    holds.give_back(outer);
    let all = holds.pending(story.now, WATCHDOG).unwrap();
    assert!(!holds.release_sent(all));
    assert!(holds.release_sent(all));
    holds.release_not_executed();
    assert!(!holds.release_sent(all), "it is known not to have been executed");
    holds.release_confirmed(all);
    assert!(!holds.release_sent(all), "it was answered");
}
