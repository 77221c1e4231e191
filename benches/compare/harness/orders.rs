//! What the program that measures and the processes that it measures say to each other: one line
//! an order on standard input, one line an answer on standard output.
//!
//! | order | answer |
//! |---|---|
//! | (after the start) | `ready`: connected, and one lock was taken and given back |
//! | `work MODE TASKS NAME TURNS HOLD LIMIT` | `set`, and after a `go` of the parent `done ELAPSED HELD ERRORS LATE TURNS:LONGEST ... cpu=CPU` |
//! | `paced TASKS NAME RATE LIMIT` | `set`, and after a `go` of the parent `paced TURNS ERRORS P50 P99` |
//! | `hold NAME` | `held`, and after a `free` of the parent `freed WHEN`, when the unlock was called |
//! | `wait NAME` | `got WHEN`, when the lock was there; it is given back at once |
//!
//! All times are microseconds; WHEN is wall clock, because two processes have to agree on it.
//! Redisson's side understands the same: `benches/redisson/src/main/java/bench/Contestant.java`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::Result;

/// Which tasks want which name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each task has a name of its own: NAME, a colon and its number.
    Apart,
    /// All tasks want the same name, each for itself.
    Together,
    /// The same name, handed from one to the next by one task that awaits each step: what a
    /// contended lock cannot do without.
    InTurns,
}

/// Take the lock and give it back, again and again.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) mode: Mode,
    pub(crate) tasks: usize,
    pub(crate) name: String,
    /// After so many a task has done its part.
    pub(crate) turns: u64,
    pub(crate) hold: Duration,
    /// When it is over, whoever waits still stops waiting.
    pub(crate) limit: Duration,
}

/// Take locks with names of their own, and give them back, so many times a second, all tasks together.
#[derive(Clone)]
pub(crate) struct Pace {
    pub(crate) tasks: usize,
    pub(crate) name: String,
    pub(crate) rate: u64,
    pub(crate) limit: Duration,
}

/// No end of turns: the limit ends the work.
pub(crate) const ENDLESS: u64 = u32::MAX as u64;

pub(crate) enum Order {
    Work(Work),
    Paced(Pace),
    Hold(String),
    Wait(String),
}

impl Order {
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Hold(name) => format!("hold {name}"),
            Self::Wait(name) => format!("wait {name}"),
            Self::Paced(Pace { tasks, name, rate, limit }) => {
                format!("paced {tasks} {name} {rate} {}", limit.as_micros())
            }
            Self::Work(Work { mode, tasks, name, turns, hold, limit }) => {
                let mode = match mode {
                    Mode::Apart => "apart",
                    Mode::Together => "together",
                    Mode::InTurns => "in-turns",
                };
                let (hold, limit) = (hold.as_micros(), limit.as_micros());
                format!("work {mode} {tasks} {name} {turns} {hold} {limit}")
            }
        }
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["hold", name] => Ok(Self::Hold(name.into())),
            ["wait", name] => Ok(Self::Wait(name.into())),
            ["paced", tasks, name, rate, limit] => Ok(Self::Paced(Pace {
                tasks: tasks.parse()?,
                name: name.into(),
                rate: rate.parse()?,
                limit: Duration::from_micros(limit.parse()?),
            })),
            ["work", mode, tasks, name, turns, hold, limit] => Ok(Self::Work(Work {
                mode: match mode {
                    "apart" => Mode::Apart,
                    "together" => Mode::Together,
                    "in-turns" => Mode::InTurns,
                    _ => return Err(format!("no mode: {mode}").into()),
                },
                tasks: tasks.parse()?,
                name: name.into(),
                turns: turns.parse()?,
                hold: Duration::from_micros(hold.parse()?),
                limit: Duration::from_micros(limit.parse()?),
            })),
            _ => Err(format!("no order: {line}").into()),
        }
    }
}

/// What one task had of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) turns: u64,
    /// Its longest wait, also one that the limit ended.
    pub(crate) longest: Duration,
}

/// What one process says when its work is over.
#[derive(Clone, Default)]
pub(crate) struct Done {
    /// From `go` until the last turn was given back, or until the limit.
    pub(crate) elapsed: Duration,
    /// How long the lock was held, all tasks together.
    pub(crate) held: Duration,
    pub(crate) errors: u64,
    /// Turns that began after the limit, of whoever cannot stop waiting. They are nobody's share,
    /// but the server had work with them.
    pub(crate) late: u64,
    /// The processor time of the whole process.
    pub(crate) cpu: Duration,
    pub(crate) shares: Vec<Share>,
}

impl Done {
    /// Of all its tasks.
    pub(crate) fn turns(&self) -> u64 {
        self.shares.iter().map(|share| share.turns).sum()
    }

    pub(crate) fn line(&self) -> String {
        let (elapsed, held) = (self.elapsed.as_micros(), self.held.as_micros());
        let mut line = format!("done {elapsed} {held} {} {}", self.errors, self.late);
        for share in &self.shares {
            line += &format!(" {}:{}", share.turns, share.longest.as_micros());
        }
        line += &format!(" cpu={}", self.cpu.as_micros());
        line
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let wrong = || format!("not an answer to work: {line}");
        let mut words = line.strip_prefix("done ").ok_or_else(wrong)?.split(' ');
        let mut next = || words.next().ok_or_else(wrong);
        let (elapsed, held) = (next()?.parse()?, next()?.parse()?);
        let (errors, late) = (next()?.parse()?, next()?.parse()?);
        let words: Vec<&str> = words.collect();
        // An older build says nothing of it.
        let (cpu, shares) = match words.split_last() {
            Some((last, shares)) if last.starts_with("cpu=") => (last[4..].parse()?, shares),
            _ => (0, &*words),
        };
        let cpu = Duration::from_micros(cpu);
        let shares = shares.iter().map(|share| {
            let (turns, longest) = share.split_once(':').ok_or_else(wrong)?;
            let longest = Duration::from_micros(longest.parse()?);
            Ok(Share { turns: turns.parse()?, longest })
        });
        Ok(Self {
            elapsed: Duration::from_micros(elapsed),
            held: Duration::from_micros(held),
            errors,
            late,
            cpu,
            shares: shares.collect::<Result<_>>()?,
        })
    }
}

/// What a process says when its paced work is over.
#[derive(Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) turns: u64,
    /// A turn that failed counts as one that had to wait until the end.
    pub(crate) errors: u64,
    /// From when a turn was due until its lock was given back.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Latency {
    pub(crate) fn line(&self) -> String {
        let [p50, p99] = [self.p50, self.p99].map(|time| time.as_micros());
        format!("paced {} {} {p50} {p99}", self.turns, self.errors)
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["paced", turns, errors, p50, p99] = *words else {
            return Err(format!("not an answer to paced work: {line}").into());
        };
        let [p50, p99] = [p50.parse()?, p99.parse()?].map(Duration::from_micros);
        Ok(Self { turns: turns.parse()?, errors: errors.parse()?, p50, p99 })
    }
}

pub(crate) fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
