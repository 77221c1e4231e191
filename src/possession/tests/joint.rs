//! One hold that readers of one thread have together.

use super::renewal::PERIOD;
use super::*;
use crate::host;

/// For how long a share is open.
const SHARE: Duration = Duration::from_millis(10);

/// Readers of three handles: the first one has a hold of its own.
struct Readers {
    story: Story,
    first: HoldId,
    joint: Arc<Joint>,
    guards: Vec<Held>,
}

impl Readers {
    fn new() -> Self {
        let story = Story::new();
        story.holds().set_shared(true);
        let (first, _) = story.grant(Lease::Watchdog);
        let mut readers = Self { first, guards: Vec::new(), joint: joint(&story), story };
        readers.open();
        let joins = [1, 2].map(|handle| readers.joins(handle).expect("it is open"));
        readers.guards.extend(joins);
        readers
    }

    /// Redis says that no other client waits to write.
    fn open(&self) {
        self.story.holds().set_share(Some(self.story.now + SHARE));
    }

    /// By way of the hold state.
    fn joins(&mut self, handle: HandleId) -> Option<Held> {
        let story = &self.story;
        let join = joins_as(handle);
        // Another one came before it.
        story.holds().shared.as_mut().unwrap().threads.takes_turns(host::lane(), 0);
        let (held, _) = story.holds().join_on_thread(&story.possession, join, story.now)?;
        let Held::Part(part) = &held else { panic!("a hold of its own") };
        self.joint = part.joint().clone();
        Some(held)
    }

    /// Without the hold state.
    fn takes_part(&self) -> Option<Held> {
        self.joint.take_part(3, self.story.now, || {}).map(Held::Part)
    }

    fn leaves(&mut self, how: GiveBack) -> Remains {
        let guard = self.guards.pop().expect("a guard");
        guard.leave(how, self.story.now, || {})
    }

    fn renewed(&mut self) {
        self.story.now += PERIOD;
        self.story.renewed(self.story.now);
    }
}

fn joins_as(handle: HandleId) -> Join {
    Join {
        handle: ME,
        lease: Lease::Watchdog,
        requested: WATCHDOG,
        passes: false,
        recurs: false,
        writes_as: handle,
        writes: false,
        has_limit: false,
        is_let_in: false,
    }
}

fn joint(story: &Story) -> Arc<Joint> {
    let none = (0, Arc::new(Validity::new(story.now)), None);
    Arc::new(Joint::new(AcquiredHold::new(story.possession.clone(), none, WATCHDOG), 0, None))
}

#[test]
fn those_of_a_thread_are_one_hold_of_many_guards() {
    let mut readers = Readers::new();
    let before = readers.joint.clone();
    let third = readers.joins(3).expect("it is open");
    readers.guards.push(third);
    assert!(Arc::ptr_eq(&before, &readers.joint));
    assert_eq!(readers.story.holds().live_with(readers.first), 4);
    let fourth = std::thread::scope(|scope| {
        scope.spawn(|| readers.joins(4).expect("it is open")).join().unwrap()
    });
    assert!(!Arc::ptr_eq(&before, &readers.joint), "another thread has another one");
    assert_eq!(fourth.leave(GiveBack::OrStay, readers.story.now, || {}), Remains::StillHeld);
    assert_eq!(fourth.leave(GiveBack::AfterStay, readers.story.now, || {}), Remains::Readers);
    for left in [Remains::Readers, Remains::Readers, Remains::Readers] {
        assert_eq!(readers.leaves(GiveBack::Now), left);
    }
    assert_eq!(readers.story.holds().live_with(readers.first), 1);
    assert_eq!(readers.story.give_back(readers.first).map(|pending| pending.count), Some(0));
}

/// It would be the last one each time.
#[test]
fn a_reader_that_is_alone_on_its_thread_has_a_hold_of_its_own() {
    let readers = Readers::new();
    let alone = std::thread::scope(|scope| {
        let joins = || {
            let story = &readers.story;
            let come = [1, 1, 2, 2].map(|handle| {
                let mut holds = story.holds();
                let (held, _) = holds
                    .join_on_thread(&story.possession, joins_as(handle), story.now)
                    .expect("it is open");
                held
            });
            come.map(|held| matches!(held, Held::Hold(_)))
        };
        scope.spawn(joins).join().unwrap()
    });
    assert_eq!(alone, [true, true, false, false]);
}

#[test]
fn the_last_one_gives_it_back_in_whichever_way() {
    for how in [GiveBack::Now, GiveBack::OrStay] {
        let mut readers = Readers::new();
        assert!(readers.story.give_back(readers.first).is_none());
        let are_all = readers.story.holds().are_all(1, |_| true, readers.story.now);
        assert!(!are_all, "another handle has a part");
        assert_eq!(readers.leaves(how), Remains::Readers);
        let last = readers.guards.pop().unwrap();
        if how == GiveBack::OrStay {
            assert_eq!(
                last.leave(how, readers.story.now, || panic!("it reads")),
                Remains::StillHeld
            );
            assert_eq!(readers.story.pending(), None);
            let other = readers.takes_part().expect("it stays for others");
            let goes = other.leave(how, readers.story.now, || {});
            assert_eq!(goes, Remains::Readers, "one that stays is enough");
            assert_eq!(last.leave(GiveBack::AfterStay, readers.story.now, || {}), Remains::Release);
        } else {
            assert_eq!(last.leave(how, readers.story.now, || {}), Remains::Release);
        }
        assert_eq!(readers.story.pending().map(|pending| pending.count), Some(0));
        assert!(readers.takes_part().is_none(), "it is given back");
    }
}

#[test]
fn it_is_open_for_as_long_as_the_share_is() {
    let mut readers = Readers::new();
    assert!(readers.takes_part().is_some());
    readers.story.now += SHARE;
    assert!(readers.takes_part().is_none(), "Redis has to be asked again");
    readers.open();
    assert!(readers.takes_part().is_some(), "and has been");
    readers.story.holds().set_share(None);
    assert!(readers.takes_part().is_none(), "a writer waits");
    readers.open();
    readers.story.holds().close_joint_holds();
    assert!(readers.takes_part().is_none(), "a writer is about to stand beside the readers");
    readers.open();
    assert!(readers.takes_part().is_none(), "for good");
    let before = readers.joint.clone();
    readers.joins(3).expect("the writer was refused");
    assert!(!Arc::ptr_eq(&before, &readers.joint));
}

#[test]
fn it_is_renewed_while_somebody_has_a_part_and_watched_again_from_the_next_one_on() {
    let mut readers = Readers::new();
    assert!(readers.story.give_back(readers.first).is_none());
    readers.renewed();
    readers.open();
    assert!(matches!(readers.story.renewal(ME), Renewal::NotBefore(_)));
    assert_eq!(readers.leaves(GiveBack::OrStay), Remains::Readers);
    assert_eq!(readers.leaves(GiveBack::OrStay), Remains::StillHeld);
    let part = readers.takes_part().expect("the watchdog has not looked");
    assert!(matches!(readers.story.renewal(ME), Renewal::NotBefore(_)));
    assert_eq!(part.leave(GiveBack::Now, readers.story.now, || {}), Remains::Readers);
    assert_eq!(readers.story.renewal(ME), Renewal::Idle { ran_out: false });
    assert!(readers.takes_part().is_none(), "the watchdog has to know of it");
    let until = readers.joint.granted.validity.check(readers.story.now);
    readers.renewed();
    assert_eq!(readers.joint.granted.validity.check(readers.story.now), until, "it only stays");
    readers.open();
    let late = readers.joins(3).expect("it is open");
    assert!(readers.story.holds().watched_since(ME).is_some());
    let part = readers.takes_part().expect("it is watched");
    let own = valid_until(readers.story.now, WATCHDOG);
    assert_eq!(part.validity.check(readers.story.now), Some(own));
    assert!(Arc::ptr_eq(&part.validity, &late.validity));
}

#[test]
fn nobody_joins_whose_lease_would_end_before_the_next_renewal_is_sure() {
    let mut readers = Readers::new();
    let until = readers.joint.granted.validity.check(readers.story.now).unwrap();
    while valid_until(readers.story.now, WATCHDOG) <= until + WATCHDOG / 3 {
        readers.open();
        assert!(readers.takes_part().is_some());
        readers.story.now += PERIOD / 10;
    }
    readers.open();
    assert!(readers.takes_part().is_none(), "its renewal may be late");
    readers.renewed();
    readers.open();
    assert!(readers.takes_part().is_some());
}
