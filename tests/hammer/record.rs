//! What a process writes down: one record of 64 bytes for each thing that it did or was told.
//!
//! Each process appends to a file of its own with plain `write(2)`: what was written survives the
//! process, even if it is killed, because it is in the system's page cache. A record never crosses
//! a page, so a kill cannot leave half of one.
//!
//! A machine of a simulated world keeps its records in memory, and the clock is the world's. Else it
//! is `CLOCK_MONOTONIC`, which is the same for all processes of a machine. **Times are
//! taken on the side that proves less**, so that a rule that is broken in the history is broken
//! in the world:
//!
//! - a call's time is taken before the call, its return's after it has returned;
//! - a guard that says "not lost" is read at the time *before* it was asked: loss is latched, so it
//!   was believed at that time too. One that says "lost" is read at the time after;
//! - a deadline is the time before the guard was asked plus what it said is left, which is never
//!   later than the guard's own. [`Record::slack`] more is never earlier than it;
//! - a hold ends, for whoever believes in it, before its release is written down.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::prelude::*;

pub(crate) const SIZE: usize = 64;

thread_local! {
    /// The clock of the world that this thread plays.
    static WORLD: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// Says for how long a world has existed.
pub(crate) type Clock = Box<dyn Fn() -> Duration>;

/// What the clock of a world shows at its beginning: rules look a little into the past.
const BEGINNING: u64 = 100 * SECOND;

/// Has this thread take the time of a world, or of the real one again.
#[cfg(feature = "test-util")]
pub(crate) fn set_clock(clock: Option<Clock>) {
    WORLD.set(clock);
}

/// Nanoseconds of the clock that all processes share.
pub(crate) fn now() -> u64 {
    let elapsed = WORLD.with_borrow(|clock| clock.as_ref().map(|clock| clock()));
    if let Some(elapsed) = elapsed {
        return BEGINNING + elapsed.as_secs() * SECOND + u64::from(elapsed.subsec_nanos());
    }
    let time = clock_gettime(ClockId::Monotonic);
    // It counts from zero upwards, so neither part can be negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $code:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum $name {
            #[default]
            $($(#[$each])* $code,)*
        }

        impl $name {
            fn from_code(code: u8) -> Option<Self> {
                [$(Self::$code),*].get(usize::from(code)).copied()
            }
        }
    };
}

codes! {
    /// What happened.
    Event {
        /// A client is there: `handle` is its number, `token` and `aux` are the two halves of its
        /// UUID.
        Client,
        /// `token` is the number of the client, `aux` the time that the caller would wait, `slack` the set of
        /// names that are locked together.
        AcquireInv,
        /// Of a grant: the deadline, and the token if it has one. The time is that of the first
        /// look at the guard, after the return.
        AcquireRet,
        ReleaseInv,
        ReleaseRet,
        GuardDrop,
        /// The guard was asked whether it may be believed; `flags` has the answer.
        ValidRead,
        /// `lost()` completed.
        LostNotice,
        /// The protected resource is about to be written.
        StoreInv,
        StoreRet,
        /// A call that only asks.
        StatusInv,
        /// `aux` is the hold count, if that was asked for.
        StatusRet,
        ForceInv,
        ForceRet,
        /// The process was not run from `aux` to `t`.
        Gap,
        /// The run is over, and this hold is kept for the count at the server.
        Kept,
        /// `close()` has returned: `aux` is 1; it was called: 0. `handle` is the client's number.
        Close,
        /// A runtime has ended: `aux` is the number of calls and guards that it took with it.
        RuntimeEnd,
    }
}

codes! {
    /// What came of a call.
    Outcome {
        /// None yet.
        Open,
        Granted,
        /// `None`: the lock stayed busy.
        Busy,
        Done,
        NotExecuted,
        Executed,
        Unknown,
        /// The future was dropped, by its caller or by the end of its runtime.
        Cancelled,
        /// A release of a hold that was lost.
        Lost,
        /// The same where the server may still count the hold: the background goes on with the release.
        LostUnknown,
    }
}

impl Outcome {
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::LostUnknown)
    }
}

codes! {
    /// How a lock was asked for, or a guard given back.
    How {
        Lock,
        WithLease,
        Try,
        Now,
        Unlock,
        Drop,
        /// In a thread without a runtime.
        DropOutside,
        /// `run_until_lost` gave the value.
        Ran,
        /// The runtime of the task that had the guard has ended.
        WithRuntime,
    }
}

pub(crate) const WATCHDOG: u8 = 1;
pub(crate) const FENCED: u8 = 2;
pub(crate) const BELIEVED: u8 = 4;
/// The hold was asked for on a handle that held the lock already, as far as its task knew.
pub(crate) const NESTED: u8 = 8;
/// Of a read-write lock: to read it.
pub(crate) const READ: u8 = 16;
/// Of several locks together: each has its record.
pub(crate) const SEVERAL: u8 = 32;
/// It is the record of another one of these than the first.
pub(crate) const FOLLOWS: u8 = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) t: u64,
    pub(crate) deadline: u64,
    pub(crate) token: u64,
    pub(crate) aux: u64,
    pub(crate) seq: u32,
    /// The hammer's own number of the handle; it does not trust the library's.
    pub(crate) handle: u32,
    /// The library's number of the owner.
    pub(crate) owner: u32,
    /// The number of the call, and of the hold that came of it.
    pub(crate) req: u32,
    /// In milliseconds.
    pub(crate) lease: u32,
    pub(crate) slack: u32,
    pub(crate) task: u16,
    pub(crate) key: u16,
    pub(crate) event: Event,
    pub(crate) outcome: Outcome,
    pub(crate) how: How,
    pub(crate) flags: u8,
}

impl Record {
    pub(crate) fn new(event: Event) -> Self {
        Self { t: now(), event, ..Self::default() }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let longs = [self.t, self.deadline, self.token, self.aux].map(u64::to_le_bytes);
        let words = [self.seq, self.handle, self.owner, self.req, self.lease, self.slack];
        let (words, shorts) =
            (words.map(u32::to_le_bytes), [self.task, self.key].map(u16::to_le_bytes));
        let codes = [self.event as u8, self.outcome as u8, self.how as u8, self.flags];
        let mut bytes = [0; SIZE];
        let mut rest = &mut bytes[..];
        for part in [longs.as_flattened(), words.as_flattened(), shorts.as_flattened(), &codes] {
            rest.write_all(part).expect("they fit");
        }
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let long = |at: usize| u64::from_le_bytes(bytes.as_chunks().0[at]);
        let word = |at: usize| u32::from_le_bytes(bytes.as_chunks().0[at]);
        let short = |at: usize| u16::from_le_bytes(bytes.as_chunks().0[at]);
        let [t, deadline, token, aux] = [0, 1, 2, 3].map(long);
        let [seq, handle, owner, req, lease, slack] = [8, 9, 10, 11, 12, 13].map(word);
        let [task, key] = [28, 29].map(short);
        let [event, outcome, how, flags] = [60, 61, 62, 63].map(|at| bytes[at]);
        let (event, outcome) = (Event::from_code(event)?, Outcome::from_code(outcome)?);
        let (longs, how) =
            (Self { t, deadline, token, aux, ..Self::default() }, How::from_code(how)?);
        let words = Self { seq, handle, owner, req, lease, slack, ..longs };
        Some(Self { task, key, event, outcome, how, flags, ..words })
    }
}

/// Where a process writes.
pub(crate) struct Recorder {
    to: To,
    seq: AtomicU32,
    /// Calls and guards that the end of a runtime took with it.
    cut_off: AtomicU64,
}

enum To {
    File(File),
    Memory(Mutex<Memory>),
}

#[derive(Default)]
struct Memory {
    records: Vec<Record>,
    is_closed: bool,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Self::to(To::File(file)))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn in_memory() -> Self {
        Self::to(To::Memory(Mutex::default()))
    }

    fn to(to: To) -> Self {
        Self { to, seq: AtomicU32::new(0), cut_off: AtomicU64::new(0) }
    }

    pub(crate) fn put(&self, mut record: Record) {
        record.seq = self.seq.fetch_add(1, Ordering::Relaxed);
        match &self.to {
            // A history with a hole proves nothing, so there is nothing to go on for.
            To::File(file) => {
                let written = (&mut &*file).write_all(&record.encode());
                written.expect("writing the history");
            }
            To::Memory(memory) => {
                let mut memory = lock(memory);
                if !memory.is_closed {
                    memory.records.push(record);
                }
            }
        }
    }

    /// The end of a runtime took a call or a guard with it.
    pub(crate) fn count_cut_off(&self) {
        self.cut_off.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// The process is dead: what its memory would write when it is freed is no part of the history.
    #[cfg(feature = "test-util")]
    pub(crate) fn close(&self) {
        if let To::Memory(memory) = &self.to {
            lock(memory).is_closed = true;
        }
    }
}

/// What a process has written.
#[derive(Clone)]
pub(crate) enum Log {
    File(PathBuf),
    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "of a simulated world"))]
    Memory(Arc<Recorder>),
}

impl Log {
    /// Calls `each` with every record. An error for a file that is damaged or missing.
    pub(crate) fn read(&self, mut each: impl FnMut(&Record)) -> Result<(), String> {
        match self {
            Self::File(path) => read(path, each),
            Self::Memory(recorder) => {
                if let To::Memory(memory) = &recorder.to {
                    lock(memory).records.iter().for_each(&mut each);
                }
                Ok(())
            }
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::File(PathBuf::new())
    }
}

/// Calls `each` with every record of a file. An error for one that is damaged or missing.
fn read(path: &Path, mut each: impl FnMut(&Record)) -> Result<(), String> {
    let at = path.display();
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(|error| format!("{at}: {error}"))?;
    file.read_to_end(&mut bytes).map_err(|error| format!("{at}: {error}"))?;
    let (records, rest) = bytes.as_chunks::<SIZE>();
    let (mut highest, mut count) = (0, 0);
    for bytes in records {
        let record = Record::decode(bytes).ok_or_else(|| format!("{at}: a damaged record"))?;
        highest = highest.max(u64::from(record.seq) + 1);
        count += 1;
        each(&record);
    }
    // A kill may fall between taking a number and writing the record: one for each thread.
    if !rest.is_empty() || highest > count + 16 {
        return Err(format!("{at}: {count} whole records of {highest}"));
    }
    Ok(())
}

/// Run as a trial, because a target without the standard harness has no `#[test]`.
pub(crate) fn a_record_survives_being_written_and_read() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("log");
    // No byte is like another one, but for the codes and the number, which the recorder gives.
    let mut bytes = std::array::from_fn(|at| 0xff - at as u8);
    bytes[32..36].fill(0);
    bytes[60..63].copy_from_slice(&[
        Event::RuntimeEnd as u8,
        Outcome::Lost as u8,
        How::WithRuntime as u8,
    ]);
    let record = Record::decode(&bytes).expect("codes that there are");
    assert_eq!(record.encode(), bytes);
    Recorder::create(&path).expect("a file").put(record);
    let mut seen = Vec::new();
    read(&path, |record| seen.push(*record)).expect("reading");
    assert_eq!(seen, [record]);
}
