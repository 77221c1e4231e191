//! What the processes wrote down, and whether it was in order.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(super) const NAMES: usize = 160;

const SIZE: usize = 24;

/// Of the clock that all processes of the machine share, in nanoseconds.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short time")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Called,
    Granted,
    /// The hold was valid still.
    Held,
    /// The call ended without the lock.
    Left,
    /// A round trip took so long.
    Trip,
}

const EVENTS: [Event; 5] = [Event::Called, Event::Granted, Event::Held, Event::Left, Event::Trip];

#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    t: u64,
    event: Event,
    name: usize,
    /// The number of the call in its process, or a time.
    call: u64,
}

impl Record {
    pub(super) fn now(event: Event, name: usize, call: u64) -> Self {
        Self { t: now(), event, name, call }
    }

    pub(super) fn write(self, mut file: &File) {
        let event = EVENTS.iter().position(|one| *one == self.event).expect("one of them");
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.t.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.call.to_le_bytes());
        bytes[16..24].copy_from_slice(&((event * NAMES + self.name) as u64).to_le_bytes());
        file.write_all(&bytes).expect("room for a record");
    }

    fn read(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let rest = number(16) as usize;
        Self { t: number(0), event: EVENTS[rest / NAMES], name: rest % NAMES, call: number(8) }
    }
}

/// A place in the run, and how many processes were there before.
pub(super) type Process = (usize, usize);

/// A process was killed, had just come, or was stopped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    pub(super) process: Process,
    pub(super) from: u64,
    pub(super) to: u64,
    /// For so short that nobody may pass it over: all that it did took so much longer.
    pub(super) short: bool,
}

pub(super) struct History {
    records: HashMap<Process, Vec<Record>>,
    /// When a thread of this machine woke up late, and how late.
    late: Vec<(u64, u64)>,
    away: Vec<Away>,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) grants: u64,
    /// Of those, at how many nobody waited for longer whose process was away.
    pub(super) plain: u64,
    /// Waiters that somebody's grant was compared with.
    pub(super) checked: u64,
    /// Of those, how many were passed over while their process was away.
    pub(super) excused: u64,
    within_a_trip: u64,
    pub(super) passed: u64,
    pub(super) overlaps: u64,
    worst: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, plain, checked, excused, within_a_trip, .. } = self;
        let Self { passed, overlaps, worst, .. } = self;
        writeln!(
            f,
            "{grants} grants, {plain} of them with no excuse; {checked} waiters compared: {passed} passed over, {within_a_trip} within a \
             round trip, {excused} in a process that was away; {overlaps} overlaps"
        )?;
        for line in worst.iter().take(200) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// So many grants are written down by now, about.
pub(super) fn grants(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    let bytes: u64 = files.map(|file| file.metadata().map_or(0, |of| of.len())).sum();
    // Three records or so for each, and the trips.
    bytes / SIZE as u64 / 4
}

/// A call that waits.
#[derive(Debug, Clone, Copy)]
struct Waits {
    process: Process,
    since: u64,
}

/// What happened to a lock from a little before one time until another.
fn story(
    events: &[(Process, Record)],
    from: u64,
    to: u64,
) -> impl Iterator<Item = String> + use<'_> {
    const BEFORE: u64 = 60_000_000;
    let around =
        move |(_, record): &&(Process, Record)| record.t + BEFORE >= from && record.t <= to;
    events.iter().filter(around).map(move |(process, record)| {
        let at = (record.t as f64 - from as f64) / 1e6;
        format!("  {at:9.3} ms: {process:?} {:?} {}", record.event, record.call)
    })
}

impl History {
    pub(super) fn read(folder: &Path, away: Vec<Away>, late: Vec<(u64, u64)>) -> Self {
        let mut records = HashMap::new();
        for file in std::fs::read_dir(folder).expect("a folder").flatten() {
            let name = file.file_name().into_string().expect("a plain name");
            let (place, generation) = name.split_once('-').expect("two numbers");
            let process = (place.parse().expect("a number"), generation.parse().expect("a number"));
            let bytes = std::fs::read(file.path()).expect("a file");
            let all = bytes.chunks_exact(SIZE).map(Record::read).collect();
            records.insert(process, all);
        }
        Self { records, late, away }
    }

    pub(super) fn check(&self) -> Report {
        let mut report = Report::default();
        let mut by_name: Vec<Vec<(Process, Record)>> = vec![Vec::new(); NAMES];
        for (process, records) in &self.records {
            for record in records.iter().filter(|record| record.event != Event::Trip) {
                by_name[record.name].push((*process, *record));
            }
        }
        for mut events in by_name {
            events.sort_by_key(|(_, record)| record.t);
            self.check_name(&events, &mut report);
        }
        report
    }

    fn check_name(&self, events: &[(Process, Record)], report: &mut Report) {
        let mut waiting: BTreeMap<(u64, Process, u64), ()> = BTreeMap::new();
        let mut since: HashMap<(Process, u64), u64> = HashMap::new();
        let mut held: HashMap<(Process, u64), u64> = HashMap::new();
        let mut free_from = 0;
        for (process, record) in events {
            let id = (*process, record.call);
            match record.event {
                Event::Called => {
                    since.insert(id, record.t);
                    waiting.insert((record.t, *process, record.call), ());
                }
                Event::Granted => {
                    let called = since.remove(&id).expect("a call");
                    waiting.remove(&(called, *process, record.call));
                    report.grants += 1;
                    held.insert(id, record.t);
                    let granted = Waits { process: *process, since: called };
                    let excused = report.excused;
                    let is_there = |of: Process| !self.was_killed(of, record.t);
                    let earlier = waiting.range(..(called, (0, 0), 0));
                    for ((earlier, of, _), ()) in earlier.filter(|((_, of, _), ())| is_there(*of)) {
                        report.checked += 1;
                        let earlier = Waits { process: *of, since: *earlier };
                        let passed = report.passed;
                        self.compare(earlier, granted, record, report);
                        if report.passed > passed {
                            report.worst.extend(story(events, earlier.since, record.t));
                        }
                    }
                    report.plain += u64::from(report.excused == excused);
                }
                Event::Held => {
                    let from = held.remove(&id).expect("a grant");
                    // Sorted by its end: an overlap ends after another begins.
                    report.overlaps += u64::from(from < free_from);
                    free_from = free_from.max(record.t);
                }
                Event::Left => {
                    let called = since.remove(&id).expect("a call");
                    waiting.remove(&(called, *process, record.call));
                }
                Event::Trip => unreachable!("not of a name"),
            }
        }
    }

    /// `earlier` waits still, and a later one has the lock.
    fn compare(&self, earlier: Waits, granted: Waits, record: &Record, report: &mut Report) {
        let [from, to] = [earlier.since, record.t];
        let trip = self.trip(earlier.process, from, to).max(self.trip(granted.process, from, to));
        let late = self.late(from, granted.since + 2 * trip);
        // Two threads pass each request on.
        let trip = trip + 2 * late + self.stopped(earlier.process, from, to);
        if granted.since - earlier.since <= trip {
            report.within_a_trip += 1;
        } else if self.was_away(earlier.process, from, to) {
            report.excused += 1;
        } else {
            report.passed += 1;
            report.worst.push(format!(
                "{:9.3} ms earlier, waited for {:9.3} ms, a trip takes {:7.3} ms: {:?} passed by {:?} on {}",
                (granted.since - earlier.since) as f64 / 1e6,
                (to - from) as f64 / 1e6,
                trip as f64 / 1e6,
                earlier.process,
                granted.process,
                record.name,
            ));
        }
    }

    /// The longest round trip of a process around that time.
    fn trip(&self, process: Process, from: u64, to: u64) -> u64 {
        const AROUND: u64 = 50_000_000;
        let records = &self.records[&process];
        // They are written in the order of their ends, nearly.
        let begin = records.partition_point(|record| record.t + AROUND < from);
        let around = records[begin..].iter().take_while(|record| record.t < to + 4 * AROUND);
        let trips = around.filter(|record| record.event == Event::Trip);
        trips.map(|record| record.call).max().unwrap_or(AROUND)
    }

    /// How late a thread of the machine woke up at the worst in that time.
    fn late(&self, from: u64, to: u64) -> u64 {
        let begin = self.late.partition_point(|(t, _)| *t < from);
        let late = self.late[begin..].iter().take_while(|(t, late)| *t < to + late);
        late.map(|(_, late)| *late).max().unwrap_or(0)
    }

    fn was_killed(&self, process: Process, by: u64) -> bool {
        let mut killed = self.away.iter().filter(|away| away.to == u64::MAX);
        killed.any(|away| away.process == process && away.from <= by)
    }

    fn was_away(&self, process: Process, from: u64, to: u64) -> bool {
        self.of(process, from, to).any(|away| !away.short)
    }

    /// For how long a process was stopped in that time.
    fn stopped(&self, process: Process, from: u64, to: u64) -> u64 {
        self.of(process, from, to).filter(|away| away.short).map(|away| away.to - away.from).sum()
    }

    fn of(&self, process: Process, from: u64, to: u64) -> impl Iterator<Item = &Away> {
        let overlaps = move |away: &&Away| away.from <= to && from <= away.to;
        self.away.iter().filter(move |away| away.process == process).filter(overlaps)
    }
}
