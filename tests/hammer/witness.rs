//! Looks at the server all the time: who holds what, how often, and for how long.
//!
//! It is a source of its own: what the processes say of themselves is compared with it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::history::LONGEST_LEASE;
use crate::nemesis::name;
use crate::prelude::*;
use crate::record::SECOND;
use crate::support::Server;

/// All locks at one moment: for each, the number of its name, owners with counts, and their TTLs. A
/// reader whose marker has ended has nothing any more.
const LOOK: &str = "
local seen = {}
for i, key in ipairs(KEYS) do
  if redis.call('TYPE', key).ok == 'hash' then
    local owners, ends = {}, {}
    local all, reads = redis.call('HGETALL', key), redis.call('HGET', key, 'mode') == 'read'
    for f = 1, #all, 2 do
      local marker = ARGV[2 * i - 1] .. all[f] .. ARGV[2 * i]
      local ttl = redis.call('PTTL', reads and marker or key)
      if all[f] ~= 'mode' and ttl ~= -2 then
        owners[#owners + 1], ends[#ends + 1] = {all[f], tonumber(all[f + 1])}, ttl
      end
    end
    seen[#seen + 1] = {i - 1, owners, ends}
  end
end
return seen";

/// In milliseconds.
const GRACE: i64 = 1_000;

const EVERY: Duration = Duration::from_millis(40);

pub(crate) struct Witness {
    redis: redis::Connection,
    look: redis::Cmd,
    /// When the server took long to answer: it was not run, or it was made to stop.
    pub(crate) slow: Vec<(u64, u64)>,
}

/// An answer that takes longer says that somebody was not run.
const SLOW: u64 = 20 * MS;

type Seen = Vec<(u16, Vec<(String, u64)>, Vec<i64>)>;

impl Witness {
    pub(crate) fn new(server: &Server, names: Names) -> Self {
        let mut redis = server.connection().expect("a connection for the witness");
        name(&mut redis);
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(names.all().len());
        for key in names.all() {
            look.arg(names.name(key));
        }
        for key in names.all() {
            look.arg(names.marker(key));
        }
        Self { redis, look, slow: Vec::new() }
    }

    pub(crate) fn look(&mut self) -> Vec<Sample> {
        let t0 = now();
        let seen: Seen = self.look.query(&mut self.redis).expect("looking at the locks");
        let t1 = now();
        if t1 - t0 > SLOW {
            self.slow.push((t0, t1));
        }
        let mut samples = Vec::new();
        for (key, owners, ends) in seen {
            let all = owners.into_iter().zip(ends);
            for ((id, count), pttl) in all.filter(|((id, _), pttl)| !is_grant(id, *pttl)) {
                samples.push(Sample { t0, t1, key, owner: owner(&id), count, pttl });
            }
        }
        samples
    }

    /// Looks until it is told to stop.
    pub(crate) fn watch(&mut self, over: &AtomicBool) -> Vec<Sample> {
        let mut samples = Vec::new();
        while !over.load(Ordering::Relaxed) {
            samples.extend(self.look());
            std::thread::sleep(EVERY);
        }
        samples
    }

    /// What is there after nobody has held a lock for so long that every lease has ended, and
    /// every request has arrived.
    pub(crate) fn left_over(
        &mut self,
        all_arrived: impl Fn() -> bool,
    ) -> (Vec<Sample>, Vec<Sample>) {
        let end = now() + LONGEST_LEASE + SECOND;
        let mut on_the_way = Vec::new();
        loop {
            let arrived = all_arrived();
            let samples = self.look();
            if samples.is_empty() && arrived || now() > end {
                return (on_the_way, samples);
            }
            on_the_way.extend(samples);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a release leaves at a fair lock for the client whose turn it is: no handle's, and for the grace.
pub(crate) fn is_grant(id: &str, pttl: i64) -> bool {
    owner(id).1 >= GRANTED && (0..=GRACE).contains(&pttl)
}

/// The numbers of owners that a release has named, which granted the lock, begin here.
pub(crate) const GRANTED: u32 = 1 << 31;

/// Nobody's, if it is not one of the library's.
pub(crate) fn owner(id: &str) -> Owner {
    let parsed = id.split_once(':').and_then(|(uuid, number)| {
        let mut digits = uuid.chars().filter(|digit| *digit != '-');
        let uuid = digits.try_fold(0, |all, one| Some(all << 4 | u128::from(one.to_digit(16)?)))?;
        // That of a writer of a read-write lock has its mode behind it.
        let number: i64 = number.strip_suffix(":write").unwrap_or(number).parse().ok()?;
        // The last digits of a time tell it from all others.
        let granted = if number < 0 { GRANTED } else { 0 };
        Some((uuid, number.unsigned_abs() as u32 & (GRANTED - 1) | granted))
    });
    parsed.unwrap_or_default()
}
