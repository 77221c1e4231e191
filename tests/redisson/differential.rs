//! The cases of `RedissonReadWriteLockTest` that two sides can share, each with Java and Rust as every one of its parties;
//! and random steps beside a model.
//!
//! A case is a line of steps. After each of them, what came of it and what stands in Redis of the lock must be what they
//! are when all parties are in Java: the mode, the holds of each party, its markers, and how long they last. What may
//! differ, and why:
//!
//! | of a party in Rust | why |
//! |---|---|
//! | all its reads are one hold with one marker, which lasts as long as the longest | its readers share one (`Seen::of_ours`) |
//! | a second write does not add its lease to what is left of the first one | Redisson adds them up: 60 s instead of 30, until its watchdog renews them all, at any moment (`Seen::of_a_writer`) |
//! | its `unlock` to write leaves the longest lease of those that it has still | Redisson sets the one of the last call, were it shorter (`Seen::matches`) |
//! | its `unlock` to read does not cut the TTL of the hash to the longest marker, unless it is more than twice as long as one of the other readers' | it looks at one of them, most times, and Redisson at all (`Seen::matches`) |
//! | it calls a lock that its writer reads, too, locked to write alone | Redisson says both; 3.23 does not, either (`Came::fits`) |
//! | `force_unlock` frees both sides | the party asks first what the lock is held for (`Party::forces`) |
//! | an `unlock` after the lease has ended is `Lost`, whether or not others have the lock by then | Redisson finds a field that others keep alive; and 3.23 has no error for a lock that is free, whoever gives it back (`Came::fits`) |
//! | a write beside its own read is granted | no case asks for it: Redisson refuses, or waits for ever |
//!
//! A lease that is shorter than what a busy machine takes for some calls ends between two steps, also with all parties in
//! Java: such a play begins again (`Case::took_too_long`).

use std::fmt;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use redlatch::LockClient;

use crate::parties::{KINDS, Kind, Party, tagged};
use crate::setup::Setup;
use crate::sides::{Ask, Side};
use crate::support::{SOON, ms, wait_until};

mod cases;
mod random;
mod seen;

pub(crate) use random::steps_beside_a_model;
use seen::{Came, Seen};

/// How many plays are under way at a time: most of the time they wait for the end of a lease.
const BESIDE: usize = 16;

/// How often a play may begin again that was too slow for its leases.
const ATTEMPTS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Takes what it can have at once, for that lease in milliseconds.
    Takes(Side, Option<u64>),
    Tries(Side),
    Waits(Side),
    Gets,
    GivesBack(Side),
    AsksWhetherLocked(Side),
    Forces(Side),
    /// Everybody waits until the lease of what it has is over.
    Ends,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    who: usize,
    act: Act,
}

impl Step {
    /// `a.read`, `a.read:2000` for a lease, `a.read?` for a try, `a.read~` to wait, `a.gets`, `a.-read` to give it back,
    /// `a.read-locked`, `a.force-read`, and so for `write`; `a.ends`.
    fn new(word: &str) -> Self {
        let (who, what) = word.split_once('.').expect("a party and what it does");
        let side = |side: &str| match side {
            "read" => Side::Read,
            "write" => Side::Write,
            _ => panic!("no side: {word}"),
        };
        let act = match what {
            "gets" => Act::Gets,
            "ends" => Act::Ends,
            _ if what.starts_with('-') => Act::GivesBack(side(&what[1..])),
            _ if what.starts_with("force-") => Act::Forces(side(&what["force-".len()..])),
            _ => match (what.strip_suffix('?'), what.strip_suffix('~'), what.split_once(':')) {
                (Some(what), ..) => Act::Tries(side(what)),
                (_, Some(what), _) => Act::Waits(side(what)),
                (.., Some((what, lease))) => {
                    Act::Takes(side(what), Some(lease.parse().expect("a lease")))
                }
                _ => match what.strip_suffix("-locked") {
                    Some(what) => Act::AsksWhetherLocked(side(what)),
                    None => Act::Takes(side(what), None),
                },
            },
        };
        Self { who: usize::from(who.as_bytes()[0] - b'a'), act }
    }
}

/// Whose play it is: a letter for each party, `j` or `r`.
struct Cast<'k>(&'k [Kind]);

impl fmt::Display for Cast<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|kind| f.write_str(if *kind == Kind::Java { "j" } else { "r" }))
    }
}

/// All ways to have Java and Rust play so many parties; all of them in Java comes first.
fn casts(parties: usize) -> Vec<Vec<Kind>> {
    let kind = |cast: usize, who: usize| KINDS[cast >> who & 1];
    (0..1 << parties).map(|cast| (0..parties).map(|who| kind(cast, who)).collect()).collect()
}

/// The clients of ours that play a party each.
async fn clients(setup: &Setup) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(setup.client().await);
    }
    clients
}

/// A play: parties on a lock of their own.
struct Stage<'a> {
    setup: &'a Setup,
    name: String,
    parties: Vec<Party<'a>>,
    ids: Vec<String>,
}

impl<'a> Stage<'a> {
    async fn new(setup: &'a Setup, clients: &[LockClient], name: String, cast: &[Kind]) -> Self {
        let mut parties = Vec::new();
        let mut ids = Vec::new();
        for (who, kind) in cast.iter().enumerate() {
            let party = match kind {
                Kind::Java => Party::java(setup, &setup.java, &format!("{name}/{who}"), &name),
                Kind::Rust => Party::rust(setup, &clients[who], &name),
            };
            ids.push(party.id().await);
            parties.push(party);
        }
        Self { setup, name, parties, ids }
    }

    async fn play(&mut self, step: Step) -> Came {
        let party = &mut self.parties[step.who];
        match step.act {
            Act::Takes(side, lease) => {
                party.takes_by(side, lease.map_or(Ask::Lock, |lease| Ask::For(ms(lease)))).await;
                Came::Done
            }
            Act::Tries(side) => Came::Said(party.tries(side).await),
            Act::Waits(side) => {
                party.waits(side).await;
                Came::Said(party.is_waiting())
            }
            Act::Gets => {
                party.gets().await;
                Came::Done
            }
            Act::GivesBack(side) if party.tries_to_give_back(side).await => Came::Done,
            Act::GivesBack(_) => Came::Failed,
            Act::AsksWhetherLocked(side) => Came::Said(party.is_locked(side).await),
            Act::Forces(side) => Came::Said(party.forces(side).await),
            Act::Ends => {
                let ends = || {
                    let seen = self.look();
                    let mut held = seen.markers.keys().chain(seen.writes.keys()).peekable();
                    // The hash may end a moment after the last marker.
                    let is_left_over = held.peek().is_none() && seen.mode.is_some();
                    !is_left_over && !held.any(|who| *who == step.who)
                };
                wait_until("its end", SOON, ends).await;
                Came::Done
            }
        }
    }

    fn look(&self) -> Seen {
        Seen::new(self.setup, &self.name, &self.ids)
    }
}

/// What came of each step, how long it took, and what stood there after it.
type Course = Vec<(Came, Duration, Seen)>;

async fn play(
    setup: &Setup,
    clients: &[LockClient],
    name: String,
    steps: &[Step],
    cast: &[Kind],
) -> Course {
    let mut stage = Stage::new(setup, clients, name, cast).await;
    let mut course = Vec::new();
    for step in steps {
        let begun = Instant::now();
        let came = stage.play(*step).await;
        course.push((came, begun.elapsed(), stage.look()));
    }
    if steps.iter().any(|step| matches!(step.act, Act::Forces(_))) {
        // It leaves the markers to their TTL.
        let markers: Vec<String> =
            setup.ask_at(&stage.name, &["KEYS", &format!("{}:*", tagged(&stage.name))]);
        markers.iter().for_each(|key| setup.ask_at(key, &["DEL", key]));
    }
    course
}

/// A case, ready to be played.
struct Case {
    name: &'static str,
    words: Vec<&'static str>,
    steps: Vec<Step>,
}

impl Case {
    fn new(line: &'static str) -> Self {
        let (name, line) = line.split_once(": ").expect("a name and steps");
        let words: Vec<_> = line.split_whitespace().collect();
        let steps = words.iter().map(|word| Step::new(word)).collect();
        Self { name, words, steps }
    }

    fn parties(&self) -> usize {
        self.steps.iter().map(|step| step.who).max().expect("a step") + 1
    }

    /// Whether the steps that wait for no lease took so long that one may have ended before its time.
    fn took_too_long(&self, course: &Course) -> bool {
        let lease = |step: &Step| match step.act {
            Act::Takes(_, lease) => lease.map(Duration::from_millis),
            _ => None,
        };
        let busy = course.iter().zip(&self.steps);
        let busy = busy.filter(|(_, step)| !matches!(step.act, Act::Gets | Act::Ends));
        let busy: Duration = busy.map(|((_, took, _), _)| *took).sum();
        self.steps.iter().filter_map(lease).min().is_some_and(|shortest| busy > shortest / 3)
    }

    async fn play(&self, setup: &Setup, clients: &[LockClient], cast: &[Kind]) -> Course {
        // One with a tag and colons.
        let name = if self.name == "testName" { "{test}:abc:key" } else { self.name };
        for attempt in 1..=ATTEMPTS {
            let name = format!("{name}-{}-{attempt}", Cast(cast));
            let course = play(setup, clients, name, &self.steps, cast).await;
            if !self.took_too_long(&course) {
                return course;
            }
        }
        panic!("the machine is too busy for {}", self.name);
    }

    /// The first step at which the plays differ. Between the end of a hold and the last of those that wait for it, more
    /// than one state is right.
    fn compare(&self, cast: &[Kind], expected: &Course, found: &Course) -> Option<String> {
        let (mut has_ended, mut is_ours, mut longest, mut waiting) = (false, false, 0, 0);
        let said = self.words.iter().zip(&self.steps);
        said.zip(expected.iter().zip(found)).find_map(|((word, step), (expected, found))| {
            let (came, took, seen) = expected;
            let lease = match step.act {
                Act::Takes(_, Some(lease)) => i64::try_from(lease).expect("a lease"),
                Act::Takes(..) | Act::Tries(_) | Act::Waits(_) => 30_000,
                _ => 0,
            };
            longest = longest.max(lease);
            waiting += i32::from(matches!(step.act, Act::Waits(_)));
            waiting -= i32::from(step.act == Act::Gets);
            is_ours |= cast[step.who] == Kind::Rust;
            has_ended |= matches!(step.act, Act::Ends | Act::Gets | Act::Forces(_));
            let (expected, at_most) = seen.clone().of_ours(cast).of_a_writer(cast, longest);
            let (found_came, found_took, found) = found;
            let fits = came == found_came
                || cast[step.who] == Kind::Rust && came.fits(*found_came, *step, has_ended, seen);
            let in_time = *found_took < *took + ms(2_000);
            let settles = waiting > 0 && !matches!(step.act, Act::Waits(_));
            let at_most = at_most.or(is_ours.then_some(longest));
            let stands = settles || expected.matches(found, at_most);
            (!fits || !in_time || !stands).then(|| {
                format!(
                    "after {word}: {came:?} in {took:?}\n  {expected:?}, and not {found_came:?} in \
                     {found_took:?}\n  {found:?}"
                )
            })
        })
    }
}

pub(crate) async fn cases_of_redisson(setup: &Setup) {
    let clients = &clients(setup).await;
    // The first calls of a Java process take long.
    let warm = Case::new("warm: a.write b.read~ a.-write b.gets c.write~ b.-read c.gets c.-write");
    warm.play(setup, clients, &[Kind::Java; 3]).await;
    let cases: Vec<Case> = cases::CASES.iter().copied().map(Case::new).collect();
    let plays = cases.iter().enumerate().flat_map(|(number, case)| {
        casts(case.parties()).into_iter().map(move |cast| (number, case, cast))
    });
    let played = plays.map(async |(number, case, cast)| {
        let course = case.play(setup, clients, &cast).await;
        (number, cast, course)
    });
    let played: Vec<_> = stream::iter(played).buffered(BESIDE).collect().await;
    let mut wrong = Vec::new();
    for (number, cast, course) in &played {
        let case = &cases[*number];
        // All in Java.
        let (.., expected) = played.iter().find(|(other, ..)| other == number).expect("itself");
        let differs = case.compare(cast, expected, course);
        wrong.extend(differs.map(|what| format!("{}, {}: {what}", case.name, Cast(cast))));
    }
    assert!(wrong.is_empty(), "redisson {}:\n{}", setup.version, wrong.join("\n"));
}
