//! H5 and H10: what the server counts for an owner is what that owner can have asked for.

use crate::check::liveness::takes_one_by_one;
use crate::check::orphans::surely_over;
use crate::check::several::STEP;
use crate::check::who;
use crate::prelude::*;
use crate::witness::GRANTED;

/// When calls began, and when the server can have had nothing more of them.
type Times = (Vec<u64>, Vec<u64>);

/// The times of the calls of each client on each name, and of each handle.
pub(crate) struct Possible {
    of_client: HashMap<(u128, u16), Times>,
    of_handle: HashMap<(u16, u32), Times>,
    /// Of each process.
    calm: Vec<Calm>,
}

impl Possible {
    pub(crate) fn new(history: &History) -> Self {
        let calm = Calm::of_each(history);
        let (mut of_client, mut of_handle) = (HashMap::new(), HashMap::new());
        for acquire in &history.acquires {
            let ends = surely_over(acquire, history, &calm[usize::from(acquire.id.0)]);
            let client: &mut Times = of_client.entry((acquire.owner.0, acquire.key)).or_default();
            let handle: &mut Times = of_handle.entry(acquire.handle).or_default();
            for (begun, over) in [client, handle] {
                begun.push(acquire.inv);
                over.push(ends);
                if let Some(since) = takes_one_by_one(acquire, history) {
                    // Those that it has nest when it has all.
                    begun.push(since);
                    over.push(ends);
                }
            }
        }
        for (begun, over) in of_client.values_mut().chain(of_handle.values_mut()) {
            begun.sort_unstable();
            over.sort_unstable();
        }
        Self { of_client, of_handle, calm }
    }

    /// How many holds that client may have of the name between those times.
    pub(crate) fn holds(&self, sample: &Sample) -> u64 {
        self.of_client((sample.owner.0, sample.key), (sample.t0, sample.t1))
    }

    fn of_client(&self, client: (u128, u16), window: (u64, u64)) -> u64 {
        self.of_client.get(&client).map_or(0, |times| between(times, window))
    }

    /// How many holds the handle of that call may have between those times. A server that has forgotten a hand-off counts
    /// those of another handle of the client, which had the lock before.
    fn of_handle(&self, acquire: &Acquire, window: (u64, u64), history: &History) -> u64 {
        let calm = &self.calm[usize::from(acquire.id.0)];
        let is_told_again = |t1| calm.after(t1, history.bounds.prompt);
        let mut reversions = history.reversions();
        match reversions.any(|(t0, t1)| t0 <= window.1 && window.0 <= is_told_again(t1)) {
            true => self.of_client((acquire.owner.0, acquire.key), window),
            false => between(&self.of_handle[&acquire.handle], window),
        }
    }
}

fn between((begun, over): &Times, (from, to): (u64, u64)) -> u64 {
    let begun = begun.partition_point(|begun| *begun <= to);
    (begun - over.partition_point(|over| *over < from)) as u64
}

/// H5: once everything has come home, the server counts the guards that are kept.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    history.kept.as_ref().map_or(Vec::new(), |samples| kept_wrongly(history, samples))
}

pub(crate) fn kept_wrongly(history: &History, samples: &[Sample]) -> Vec<Violation> {
    // All guards that are kept, and how many of them the watchdog keeps.
    let mut kept: HashMap<Owner, (u64, u64)> = HashMap::new();
    for hold in history.grants().filter(|hold| hold.kept) {
        let (all, watched) = kept.entry(hold.owner).or_default();
        *all += 1;
        *watched += u64::from(hold.watched && hold.loss.is_none());
        if hold.reads {
            // All readers of a client are one hold.
            (*all, *watched) = (1, (*watched).min(1));
        }
    }
    let killed = |owner: Owner| {
        let process = history.process_of(owner.0).map(|at| &history.processes[at]);
        process.is_none_or(|process| process.killed.is_some())
    };
    let mut found = Vec::new();
    let mut wrong = |(key, count): (u16, u64), window, want: (u64, u64), calls: &[&Acquire]| {
        let (all, watched) = want;
        let what = format!(
            "name {key}: the server counts {count} holds of an owner with {all} guards, of which \
             {watched} are kept renewed"
        );
        found.push(Violation::new("H5", what, window).of(calls));
    };
    let mut seen: HashMap<Owner, u64> = HashMap::new();
    for sample in samples.iter().filter(|sample| !killed(sample.owner)) {
        seen.insert(sample.owner, sample.count);
        let want = kept.get(&sample.owner).copied().unwrap_or_default();
        if !(want.1..=want.0).contains(&sample.count) {
            wrong((sample.key, sample.count), (sample.t0, sample.t1), want, &[]);
        }
    }
    let tampered = |hold: &Acquire| {
        let mut all = history.tampering();
        all.any(|(key, _, t1)| key == hold.key && (t1 >= hold.inv || hold.came_from(t1)))
    };
    for hold in history.grants().filter(|hold| hold.kept) {
        let want = kept[&hold.owner];
        // With a short lease, one of these seems to be a grant that nobody has taken.
        let shown = hold.owner.1 < GRANTED;
        if want.1 > 0 && shown && !seen.contains_key(&hold.owner) && !tampered(hold) {
            wrong((hold.key, 0), (hold.inv, hold.last_true), want, &[hold]);
        }
    }
    found
}

/// H10: a request that was sent twice counts once. `hold_count()`, and whoever looks at the server,
/// never sees more holds than there can be.
pub(crate) fn once(history: &History) -> Vec<Violation> {
    let possible = Possible::new(history);
    let owners: HashMap<_, _> =
        history.acquires.iter().map(|acquire| (acquire.handle, acquire)).collect();
    let mut found = Vec::new();
    for count in &history.counts {
        let Some(acquire) = owners.get(&count.handle) else { continue };
        let window = (count.inv, count.ret);
        let most = possible.of_handle(acquire, window, history);
        if count.count > most {
            let who = who(acquire);
            let what = format!("name {}: {who} counts {}, not {most}", count.key, count.count);
            let mut violation = Violation::new("H10", what, window);
            violation.calls.push(count.id);
            let is_its = |acquire: &Acquire| acquire.handle == count.handle;
            violation.calls.extend(recent(history, window, is_its));
            found.push(violation);
        }
    }
    let killed: HashMap<u128, u64> = history
        .processes
        .iter()
        .flat_map(|process| process.clients.iter().map(|client| (client.uuid, process.killed)))
        .filter_map(|(client, killed)| Some((client, killed?)))
        .collect();
    // The nested holds of a dead process end with the longest of them.
    let alive = |sample: &&Sample| killed.get(&sample.owner.0).is_none_or(|t| sample.t1 < *t);
    for sample in history.samples.iter().filter(alive) {
        let most = possible.holds(sample);
        // Whether there may be any at all is for another rule.
        if most > 0 && sample.count > most {
            let what = format!(
                "name {}: the server counts {} holds of possession {} where there can be {most}",
                sample.key, sample.count, sample.owner.1
            );
            let window = (sample.t0, sample.t1);
            let of = (sample.owner.0, sample.key);
            let is_its = |acquire: &Acquire| (acquire.owner.0, acquire.key) == of;
            let calls = recent(history, window, is_its).collect();
            found.push(Violation { calls, ..Violation::new("H10", what, window) });
        }
    }
    found
}

/// Those of the calls that began not long before.
fn recent(
    history: &History,
    (from, to): (u64, u64),
    is_meant: impl Fn(&Acquire) -> bool,
) -> impl Iterator<Item = Id> {
    let calls = history.acquires.iter().filter(move |acquire| {
        is_meant(acquire) && acquire.inv <= to && acquire.inv + 5_000 * MS >= from
    });
    calls.map(|acquire| acquire.id)
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, fault, held, history, seen};
    use crate::history::Count;

    pub(crate) const TRIALS: Trials = &[
        ("kept guards are counted at the server", || {
            let hold = Acquire { kept: true, ..held(0, 10).renewed_by_a_watchdog() };
            let found = |samples| {
                check(&history([hold.clone()]).with(|history| history.kept = Some(samples)))
            };
            for (count, wrong) in [(1, 0), (2, 1)] {
                assert_eq!(found(vec![seen(&hold, 100, count)]).len(), wrong);
            }
            assert_eq!(found(Vec::new())[0].rule, "H5");
        }),
        ("a count is never more than the calls", || {
            let holds = [held(0, 10).until(30, 31), held(0, 20).until(28, 29)];
            let found = |counts: &[(u64, u64)]| {
                let count = |(t, count): &(u64, u64)| {
                    let Acquire { id, handle, .. } = holds[0];
                    Count { id, key: KEY, handle, inv: t * MS, ret: t * MS + 1, count: *count }
                };
                let counts = counts.iter().map(count).collect();
                once(&history(holds.clone()).with(|history| history.counts = counts))
            };
            assert_eq!(found(&[(15, 1), (25, 2)]), []);
            assert_eq!(found(&[(30, 2)])[0].rule, "H10");
        }),
        ("a server that has forgotten a hand-off counts the holds of the handle before", || {
            let before = [held(0, 10).until(30, 31), held(0, 20).until(28, 29)];
            let handle = (before[0].handle.0, before[0].handle.1 + 1);
            let next = Acquire { handle, ..held(0, 40).until(60, 61) };
            let count =
                Count { id: next.id, key: KEY, handle, inv: 45 * MS, ret: 46 * MS, count: 2 };
            let found = |faults: Option<Fault>| {
                let calls = [before[0].clone(), before[1].clone(), next.clone()];
                let history = history(calls).with(|history| history.counts = vec![count]);
                once(&history.fault(faults))
            };
            assert_eq!(found(None)[0].rule, "H10");
            assert_eq!(found(Some(Fault { reverts: true, ..fault(25, 35) })), []);
        }),
        ("a call for several counts twice once its clock may say that it has waited long", || {
            let call = Acquire { set: 1, ret: 800 * MS, ..held(0, 10).until(900, 901) };
            let step = 10 + STEP / MS;
            let found = |t, jump: Option<u64>| {
                let history = history([call.clone()]).sampled([seen(&call, t, 2)]);
                once(&jump.into_iter().fold(history, History::jumped))
            };
            assert_eq!(found(step - 5, None)[0].rule, "H10");
            assert_eq!(found(step - 5, Some(20)), []);
            assert_eq!(found(step - 5, Some(5))[0].rule, "H10");
            assert_eq!(found(step + 5, Some(5)), []);
        }),
        ("a sample is never more than the calls", || {
            let hold = held(0, 10).until(30, 31);
            let found = |count| once(&history([hold.clone()]).sampled([seen(&hold, 20, count)]));
            assert_eq!(found(1), []);
            assert_eq!(found(2)[0].rule, "H10");
        }),
    ];
}
