//! The history of one round: what all processes wrote down, folded into calls and holds, beside
//! what the nemesis did and what was seen at the server.

use std::ops::Range;

use fold::Fold;

use crate::nemesis::RESET;
use crate::prelude::*;
use crate::record::Log;
use crate::shared::COMMAND_TIMEOUT;
use crate::witness::GRANTED;

mod fold;

/// Later than everything.
pub(crate) const NEVER: u64 = u64::MAX;

/// A process and the number of the call in it.
pub(crate) type Id = (u16, u32);

/// Whom Redis knows by `<uuid>:<number>`.
pub(crate) type Owner = (u128, u32);

#[derive(Default)]
pub(crate) struct History {
    pub(crate) bounds: Bounds,
    pub(crate) processes: Vec<Process>,
    pub(crate) acquires: Vec<Acquire>,
    pub(crate) writes: Vec<StoreWrite>,
    pub(crate) counts: Vec<Count>,
    pub(crate) forced: Vec<Forced>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) heard: Vec<Heard>,
    /// What the last look at the server found, when all holds were kept, and after all was closed.
    pub(crate) kept: Option<Vec<Sample>>,
    pub(crate) left_over: Vec<Sample>,
    /// Pauses in which the nemesis and the servers' machine did not run, as seen by the parent.
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) operations: u64,
    /// Those of them on read-write locks.
    pub(crate) of_read_write: u64,
    /// And of several locks together.
    pub(crate) of_several: u64,
    /// What became of the requests that were held up.
    pub(crate) fates: Fates,
    /// Why it is not whole: a process ended that nobody had killed, or did not come home.
    pub(crate) trouble: Option<String>,
}

/// How many requests were held up; how many of them the server executed when nobody waited for them
/// any more, how many while somebody still did, and how many never.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fates {
    /// Those that went through a proxy, and of how many the answer was lost.
    pub(crate) requests: u64,
    pub(crate) unanswered: u64,
    pub(crate) held: u64,
    pub(crate) late: u64,
    pub(crate) slow: u64,
    pub(crate) never: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Process {
    pub(crate) log: Log,
    /// When it was seen to be dead, if it was killed.
    pub(crate) killed: Option<u64>,
    /// Those that it goes through with some of its clients.
    pub(crate) proxies: Vec<usize>,
    pub(crate) gaps: Vec<(u64, u64)>,
    /// By their numbers.
    pub(crate) clients: Vec<Client>,
    /// When its clock was set.
    pub(crate) jumps: Vec<u64>,
    /// For each of its runtimes that has ended, how many calls and guards that took with it.
    pub(crate) runtimes: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) uuid: u128,
    /// When `close()` was called, and when it had returned.
    pub(crate) closing: u64,
    pub(crate) closed: u64,
}

impl Client {
    pub(crate) fn new(uuid: u128) -> Self {
        Self { uuid, closing: NEVER, closed: NEVER }
    }
}

/// One call that asks for a lock, and the hold that came of it if it was granted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acquire {
    pub(crate) id: Id,
    pub(crate) key: u16,
    /// Process and handle.
    pub(crate) handle: (u16, u32),
    /// Its number is that of the guard, if it was granted.
    pub(crate) owner: Owner,
    pub(crate) inv: u64,
    /// When the first call began of those that have this hold's possession: by a hand-off, or by joining it.
    pub(crate) began: u64,
    /// [`NEVER`] if the call did not return.
    pub(crate) ret: u64,
    pub(crate) outcome: Outcome,
    pub(crate) how: How,
    /// For how long it waits: [`NEVER`] if without an end, 0 if it does not.
    pub(crate) wait: u64,
    pub(crate) lease: u64,
    pub(crate) watched: bool,
    /// It shares the lock with others that read.
    pub(crate) reads: bool,
    /// With which names it is acquired together; zero if that is alone.
    pub(crate) set: u8,
    pub(crate) token: Option<u64>,
    /// It was certainly believed from `ret` until then.
    pub(crate) believed: u64,
    /// The guard's own deadline is between these two, as far as was read.
    pub(crate) deadline: u64,
    pub(crate) deadline_high: u64,
    pub(crate) last_true: u64,
    pub(crate) loss: Option<Loss>,
    pub(crate) release: Option<Release>,
    /// Believed after it was lost, or after the deadline of an explicit lease.
    pub(crate) healed: Option<u64>,
    pub(crate) overdue: Option<u64>,
    pub(crate) kept: bool,
    pub(crate) renewals: u32,
}

/// When the loss was first told, and the deadline (at the latest) that had been read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) t: u64,
    pub(crate) noticed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) how: How,
    pub(crate) inv: u64,
    /// That of a drop is its `inv`.
    pub(crate) ret: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreWrite {
    pub(crate) hold: Id,
    pub(crate) key: u16,
    pub(crate) inv: u64,
    pub(crate) ret: u64,
    pub(crate) me: u64,
    /// If the lock is fenced; else `before` is the writer whose value was replaced.
    pub(crate) token: Option<u64>,
    pub(crate) before: u64,
    pub(crate) number: u64,
    pub(crate) accepted: bool,
}

/// What `hold_count()` said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) id: Id,
    pub(crate) key: u16,
    pub(crate) handle: (u16, u32),
    pub(crate) inv: u64,
    pub(crate) ret: u64,
    pub(crate) count: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Forced {
    pub(crate) key: u16,
    pub(crate) inv: u64,
    pub(crate) ret: u64,
    /// It is known that there was something to free.
    pub(crate) freed: bool,
}

/// One thing that the nemesis did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) target: String,
    pub(crate) t0: u64,
    pub(crate) t1: u64,
    /// For how long after `t1` locks may be slow because of it; `None` if they may not be at all.
    pub(crate) settle: Option<u64>,
    /// The names whose keys it tampered with.
    pub(crate) keys: Range<u16>,
    /// Those of them whose keys may be there yet.
    pub(crate) spared: Vec<u16>,
    /// The server may have forgotten releases that it confirmed meanwhile.
    pub(crate) reverts: bool,
    /// The names whose tokens the server has lost by it.
    pub(crate) tokens: Range<u16>,
    pub(crate) reach: Reach,
    /// When what it held up had arrived at the server.
    pub(crate) late: Option<u64>,
    pub(crate) took_effect: bool,
    /// Of a connection that broke: for how long after `t1` its client does not make it again.
    pub(crate) pause: u64,
}

/// Whom a fault befalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    Everybody,
    /// Who goes through that proxy.
    Proxy(usize),
    Process(u16),
}

/// What the server had for one name at a moment between `t0` and `t1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) t0: u64,
    pub(crate) t1: u64,
    pub(crate) key: u16,
    pub(crate) owner: Owner,
    pub(crate) count: u64,
    pub(crate) pttl: i64,
}

/// What the server said that it carried out, between two times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) t: u64,
    pub(crate) key: u16,
    pub(crate) owner: Owner,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// An acquire was asked for.
    Asked,
    /// A script wrote the count of the owner.
    Wrote,
    /// That the owner is there, or has fewer holds.
    Told,
    /// A release of all holds was asked for.
    GivenBack,
}

impl History {
    /// How often a lock went from one handle of a client to the next under the same owner.
    pub(crate) fn hand_offs(&self) -> u64 {
        let mut inside = HashMap::new();
        // Readers of a client have one owner.
        let mut grants: Vec<&Acquire> = self.grants().filter(|grant| !grant.reads).collect();
        grants.sort_unstable_by_key(|grant| grant.ret);
        let handed = |grant: &&&Acquire| {
            let before = inside.insert((grant.owner, grant.key), grant.handle);
            before.is_some_and(|before| before != grant.handle)
        };
        grants.iter().filter(handed).count() as u64
    }

    /// The longest that a call waited until it had several locks, outside of what disturbed it.
    pub(crate) fn longest_for_several(&self) -> u64 {
        let calm = Calm::of(self);
        let waited = |call: &Acquire| call.ret - call.inv - calm.disturbed(call.inv, call.ret);
        self.grants().filter(|call| call.set != 0).map(waited).max().unwrap_or(0)
    }

    /// Takes in what one process wrote down.
    pub(crate) fn add(&mut self, process: Process) -> Result<(), String> {
        let number = u16::try_from(self.processes.len()).map_err(|e| e.to_string())?;
        let log = process.log.clone();
        self.processes.push(process);
        let mut fold = Fold::new(self, number);
        log.read(|record| fold.take(record))
    }

    /// To be called when everything has been added.
    pub(crate) fn finish(&mut self) {
        let mut tampering: HashMap<u16, Vec<(u64, u64)>> = HashMap::new();
        for (key, t0, t1) in self.tampering() {
            tampering.entry(key).or_default().push((t0, t1));
        }
        let began = self.beginnings();
        for acquire in &mut self.acquires {
            let of_possession = began.get(&(acquire.owner, acquire.key)).copied();
            acquire.began = of_possession.unwrap_or(acquire.inv).min(acquire.inv);
            acquire.settle(tampering.get(&acquire.key).map_or(&[], Vec::as_slice));
            // By a clock that was set forward it ends sooner than was read.
            let jumps = &self.processes[usize::from(acquire.id.0)].jumps;
            let jump = jumps.iter().copied().filter(|jump| acquire.ret <= *jump).min();
            acquire.believed = jump.into_iter().fold(acquire.believed, u64::min);
        }
        self.acquires.sort_by_key(|acquire| (acquire.key, acquire.ret));
    }

    /// When each possession began at the latest: when the first call did that was granted it, or when a
    /// later one of its client was granted, for a client counts them as it asks. So one is known, too,
    /// that was granted to a call that had given up, and handed on. If no later one says that, and the guard is valid for
    /// less than what was asked for, it may have begun at any time before.
    fn beginnings(&self) -> HashMap<(Owner, u16), u64> {
        // Redis makes numbers, too, for what it grants by itself.
        let drawn = |grant: &&Acquire| grant.owner.1 < GRANTED;
        let mut in_order: Vec<_> =
            self.grants().filter(drawn).map(|grant| (grant.owner, grant.ret)).collect();
        in_order.sort_unstable();
        let mut granted = HashMap::new();
        let (mut client, mut later) = (0, NEVER);
        for (owner, ret) in in_order.into_iter().rev() {
            if client != owner.0 {
                (client, later) = (owner.0, NEVER);
            }
            granted.entry(owner).or_insert(later);
            later = ret.min(later);
        }
        let mut known: HashMap<(Owner, u16), u64> = HashMap::new();
        for grant in self.grants() {
            let first = known.entry((grant.owner, grant.key)).or_insert(grant.inv);
            *first = grant.inv.min(*first);
        }
        let later = |owner: &Owner| granted.get(owner).copied().unwrap_or(NEVER);
        let mut began: HashMap<(Owner, u16), u64> =
            known.iter().map(|(of, first)| (*of, later(&of.0).min(*first))).collect();
        // The first of its possession that is known was handed it.
        let handed =
            |grant: &&Acquire| grant.in_the_air() && known[&(grant.owner, grant.key)] == grant.inv;
        began.extend(self.grants().filter(handed).map(|grant| ((grant.owner, grant.key), 0)));
        began
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = &Acquire> {
        self.acquires.iter().filter(|acquire| acquire.outcome == Outcome::Granted)
    }
}

impl Acquire {
    /// It was handed off inside its client, and as far as was read it was never confirmed: from
    /// the beginning it is believed for far less than whoever asks Redis is.
    pub(crate) fn in_the_air(&self) -> bool {
        let margin = self.lease / 100 + 2 * MS;
        let less_than = |most| self.deadline_high + margin < most;
        self.renewals == 0
            && (less_than(self.inv + self.lease) || less_than(self.ret + self.lease / 2))
    }
}

impl Fault {
    /// What was done; the nemesis adds what it was, and when.
    pub(crate) fn done(target: impl Into<String>, took_effect: bool) -> Option<Self> {
        Some(Self { target: target.into(), took_effect, ..Self::default() })
    }

    pub(crate) fn at_process(number: usize, took_effect: bool) -> Option<Self> {
        let reach = Reach::Process(u16::try_from(number).ok()?);
        Some(Self { reach, ..Self::done(format!("of process {number}"), took_effect)? })
    }

    /// The names whose keys it took away, and between which times.
    fn deleted(&self) -> impl Iterator<Item = (u16, u64, u64)> + use<> {
        let (t0, t1) = (self.t0, self.t1);
        self.keys.clone().map(move |key| (key, t0, t1))
    }

    /// Whether that process can notice it.
    fn reaches(&self, process: usize, proxies: &[usize]) -> bool {
        match self.reach {
            Reach::Everybody => true,
            // The names of the server are reached by the same clients.
            Reach::Proxy(number) => proxies.contains(&number),
            Reach::Process(number) => usize::from(number) == process,
        }
    }
}

impl History {
    /// When releases may have been undone: between which times.
    pub(crate) fn reversions(&self) -> impl Iterator<Item = (u64, u64)> {
        let reverting = self.faults.iter().filter(|fault| fault.reverts);
        reverting.map(|fault| (fault.t0, fault.t1))
    }

    /// Every time that somebody took a key away: which, and between which times.
    pub(crate) fn tampering(&self) -> impl Iterator<Item = (u16, u64, u64)> {
        let deleted = self.faults.iter().flat_map(Fault::deleted);
        deleted.chain(self.forced.iter().map(|forced| (forced.key, forced.inv, forced.ret)))
    }

    /// Those of which it is known that they took something away.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = (u16, u64, u64)> {
        let deleted = self.faults.iter().filter(|fault| fault.took_effect && !fault.reverts);
        let forced = self.forced.iter().filter(|forced| forced.freed);
        let gone = |fault: &Fault| {
            let spared = fault.spared.clone();
            fault.deleted().filter(move |(key, ..)| !spared.contains(key))
        };
        let forced = forced.map(|forced| (forced.key, forced.inv, forced.ret));
        deleted.flat_map(gone).chain(forced)
    }

    /// The loud faults that reach a process.
    pub(crate) fn faults_of(&self, process: usize) -> impl Iterator<Item = (u64, u64, u64)> {
        let reaching = self.reaching(process);
        reaching.filter_map(|fault| Some((fault.t0, fault.t1, fault.settle?)))
    }

    /// From when to when those keep requests of a process from being answered. A request that is held
    /// up keeps what is behind it on its connection waiting, too: as long as a command may take.
    pub(crate) fn outages_of(&self, process: usize) -> impl Iterator<Item = (u64, u64)> {
        let loud = self.reaching(process).filter(|fault| fault.settle.is_some());
        loud.map(|fault| {
            let given_up = fault.t1 + COMMAND_TIMEOUT.as_millis() as u64 * MS;
            (fault.t0, fault.late.map_or(fault.t1, |late| late.min(given_up).max(fault.t1)))
        })
    }

    /// When connections of a process may have broken, in order, and until when one of them, or of those
    /// before, may not be made again.
    pub(crate) fn resets_of(&self, process: usize) -> Vec<(u64, u64)> {
        let resets = self.reaching(process).filter(|fault| fault.kind == RESET);
        let mut resets: Vec<_> = resets.map(|fault| (fault.t1, fault.t1 + fault.pause)).collect();
        resets.sort_unstable();
        let mut latest = 0;
        for (_, until) in &mut resets {
            latest = latest.max(*until);
            *until = latest;
        }
        resets
    }

    fn reaching(&self, process: usize) -> impl Iterator<Item = &Fault> {
        let proxies = &self.processes[process].proxies;
        self.faults.iter().filter(move |fault| fault.reaches(process, proxies))
    }

    /// If a process was killed: since when nothing of it is under way any more. What had been held
    /// up arrives after its end, and nobody is left to close its connection.
    pub(crate) fn dead(&self, process: usize) -> Option<u64> {
        let killed = self.processes[process].killed?;
        let held_up = self.reaching(process).filter(|fault| fault.t0 <= killed);
        held_up.filter_map(|fault| fault.late).chain([killed]).max()
    }

    pub(crate) fn process_of(&self, client: u128) -> Option<usize> {
        let is_of = |process: &Process| process.clients.iter().any(|one| one.uuid == client);
        self.processes.iter().position(is_of)
    }

    /// The clients that were closed, by their UUIDs.
    pub(crate) fn closed(&self) -> HashMap<u128, Client> {
        let all = self.processes.iter().flat_map(|process| &process.clients);
        let closed = all.filter(|client| client.closing != NEVER);
        closed.map(|client| (client.uuid, *client)).collect()
    }
}

/// Of those that the workers ask for.
pub(crate) const LONGEST_LEASE: u64 = 5_000 * MS;

impl Acquire {
    /// Works out until when the hold was believed for certain. Somebody who deletes the key breaks
    /// exclusion by definition: from then on nothing is certain of the holds that were there.
    fn settle(&mut self, tampering: &[(u64, u64)]) {
        let mut until = self.deadline.max(self.last_true);
        if self.loss.is_some_and(|loss| loss.t < until) {
            until = self.last_true;
        }
        if let Some(release) = self.release {
            if release.outcome.is_lost() {
                until = until.min(self.last_true.max(self.ret));
                // Handed off inside a client by one whose key was taken away in its time, who had
                // not heard of it: that was no hold from the beginning.
                let before = |t1: u64| self.inv < t1.saturating_add(LONGEST_LEASE);
                if tampering.iter().any(|(t0, t1)| *t0 < self.ret && before(*t1)) {
                    until = self.ret;
                }
            }
            until = until.min(release.inv);
        }
        for (t0, t1) in tampering {
            if self.inv <= *t1 && *t0 <= until {
                until = *t0;
            } else if *t1 < self.inv && self.came_from(*t1) {
                // The same, and it goes on under the same owner.
                until = until.min(self.ret);
            }
        }
        self.believed = until;
    }

    /// Whether its possession may be one whose key was taken away then, and whose client has not heard of it.
    pub(crate) fn came_from(&self, taken_away: u64) -> bool {
        self.began <= taken_away && self.inv < taken_away.saturating_add(LONGEST_LEASE)
    }

    /// The names that its guard has.
    pub(crate) fn has(&self, key: u16) -> bool {
        key == self.key || Names::several(self.set).any(|member| member == key)
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.outcome == Outcome::Granted
    }
}
