//! How the records of one process become calls and holds.

use super::{Acquire, Client, Count, Forced, History, Id, Loss, NEVER, Owner, Release, StoreWrite};
use crate::prelude::*;
use crate::record::{BELIEVED, FOLLOWS, READ, SEVERAL, WATCHDOG};

pub(super) struct Fold<'a> {
    history: &'a mut History,
    number: u16,
    /// By the number of the call and the name.
    open: HashMap<(u32, u16), usize>,
    /// When a write to the resource or a status call began.
    others: HashMap<u32, (u64, u64)>,
}

impl<'a> Fold<'a> {
    /// Of the process of that number.
    pub(super) fn new(history: &'a mut History, number: u16) -> Self {
        Self { history, number, open: HashMap::new(), others: HashMap::new() }
    }

    pub(super) fn take(&mut self, record: &Record) {
        let before = self.history.operations;
        self.take_in(record);
        if record.has(FOLLOWS) {
            self.history.operations = before;
        } else if record.has(SEVERAL) {
            self.history.of_several += self.history.operations - before;
        } else if Names::kind(record.key) == Kind::ReadWrite {
            self.history.of_read_write += self.history.operations - before;
        }
    }

    fn take_in(&mut self, record: &Record) {
        let number = self.number;
        let id = (number, record.req);
        let handle = (number, record.handle);
        let process = &mut self.history.processes[usize::from(number)];
        match record.event {
            Event::Client => {
                let uuid = u128::from(record.token) << 64 | u128::from(record.aux);
                process.clients.push(Client::new(uuid));
            }
            Event::Gap => process.gaps.push((record.aux, record.t)),
            Event::Close => {
                let client = &mut process.clients[record.handle as usize];
                let when = if record.aux == 0 { &mut client.closing } else { &mut client.closed };
                *when = record.t;
            }
            Event::RuntimeEnd => process.runtimes.push(record.aux),
            Event::AcquireInv => {
                let uuid = process.clients[record.token as usize].uuid;
                self.open.insert((record.req, record.key), self.history.acquires.len());
                self.history.acquires.push(begun(record, id, handle, (uuid, 0)));
            }
            Event::StoreInv | Event::StatusInv | Event::ForceInv => {
                self.others.insert(record.req, (record.t, record.aux));
                if record.event == Event::ForceInv {
                    let Record { key, t, .. } = *record;
                    self.history.forced.push(Forced { key, inv: t, ret: NEVER, freed: false });
                }
            }
            Event::StoreRet => {
                let Some((inv, me)) = self.others.remove(&record.req) else { return };
                self.history.writes.push(StoreWrite {
                    hold: id,
                    key: record.key,
                    inv,
                    ret: record.t,
                    me,
                    token: record.has(FENCED).then_some(record.token),
                    before: record.deadline,
                    number: record.aux,
                    accepted: record.outcome == Outcome::Done,
                });
            }
            Event::StatusRet => {
                self.history.operations += 1;
                let Some((inv, _)) = self.others.remove(&record.req) else { return };
                if record.outcome == Outcome::Done {
                    let Record { key, t: ret, aux: count, .. } = *record;
                    self.history.counts.push(Count { id, key, handle, inv, ret, count });
                }
            }
            Event::ForceRet => {
                self.history.operations += 1;
                let Some((inv, _)) = self.others.remove(&record.req) else { return };
                let known = outcome_is_known(record.outcome);
                let mut all = self.history.forced.iter_mut().rev();
                let forced = all.find(|forced| forced.key == record.key && forced.inv == inv);
                if let Some(forced) = forced.filter(|_| known) {
                    forced.ret = record.t;
                    forced.freed = record.aux == 1;
                }
            }
            _ => {
                let Some(at) = self.open.get(&(record.req, record.key)) else { return };
                self.history.operations += goes_on(&mut self.history.acquires[*at], record);
            }
        }
    }
}

fn outcome_is_known(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Done | Outcome::NotExecuted | Outcome::Executed)
}

fn begun(record: &Record, id: Id, handle: (u16, u32), owner: Owner) -> Acquire {
    Acquire {
        id,
        key: record.key,
        handle,
        owner,
        inv: record.t,
        began: record.t,
        ret: NEVER,
        how: record.how,
        wait: record.aux,
        lease: u64::from(record.lease) * MS,
        watched: record.has(WATCHDOG),
        reads: record.has(READ),
        set: if record.has(SEVERAL) { record.slack as u8 } else { 0 },
        ..Acquire::default()
    }
}

/// The next record of a call and its hold. Returns how many operations it completes.
fn goes_on(acquire: &mut Acquire, record: &Record) -> u64 {
    let t = record.t;
    match record.event {
        Event::AcquireRet => {
            acquire.ret = t;
            acquire.outcome = record.outcome;
            if record.outcome == Outcome::Granted {
                acquire.owner.1 = record.owner;
                // A reader has that of the last writer: zero is none.
                let has_token =
                    record.has(FENCED) || acquire.reads && Names::has_tokens(record.key);
                acquire.token = has_token.then_some(record.token);
                acquire.deadline = record.deadline;
                acquire.deadline_high = record.deadline + u64::from(record.slack);
                acquire.last_true = t;
            }
            1
        }
        Event::ValidRead if record.has(BELIEVED) => {
            if acquire.loss.is_some() {
                acquire.healed.get_or_insert(t);
            }
            // One that was handed off has its whole lease from when that is confirmed.
            let told = if record.how == How::Ran { 0 } else { record.deadline };
            let whole = told.min(acquire.ret + acquire.lease);
            if !acquire.watched && t > acquire.deadline_high.max(whole) {
                acquire.overdue.get_or_insert(t);
            }
            acquire.last_true = acquire.last_true.max(t);
            if record.deadline > acquire.deadline + 2 * MS {
                acquire.renewals += 1;
            }
            acquire.deadline = acquire.deadline.max(record.deadline);
            let high = record.deadline + u64::from(record.slack);
            acquire.deadline_high = acquire.deadline_high.max(high);
            1
        }
        Event::ValidRead | Event::LostNotice => {
            let noticed = record.event == Event::LostNotice;
            acquire.loss.get_or_insert(Loss { t, noticed });
            1
        }
        Event::GuardDrop => {
            let outcome = Outcome::Cancelled;
            acquire.release = Some(Release { how: record.how, inv: t, ret: t, outcome });
            1
        }
        Event::ReleaseInv => {
            let outcome = Outcome::Open;
            acquire.release = Some(Release { how: record.how, inv: t, ret: NEVER, outcome });
            0
        }
        Event::ReleaseRet => {
            if let Some(release) = &mut acquire.release {
                release.ret = t;
                release.outcome = record.outcome;
            }
            1
        }
        Event::Kept => {
            acquire.kept = true;
            0
        }
        _ => 0,
    }
}
