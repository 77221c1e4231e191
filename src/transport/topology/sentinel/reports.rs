//! What the Sentinels have said of the primary, and which of that counts: pure state.
//!
//! 1. **The newest configuration counts**, by its epoch, whichever Sentinel names it: one that was cut off from the
//!    others names a primary of the past. So that of a Sentinel that is silent counts, too.
//! 2. **A configuration that began anew has a lower epoch.** The report of a silent Sentinel counts no more once it has
//!    been silent for long, and more than half of all Sentinels name an older configuration, which is not rejected.
//!    All are those of which the client has the addresses, or more if a Sentinel knows of more.
//! 3. What turned out to be wrong is rejected: the server is a replica.

use std::time::{Duration, Instant};

/// How long a Sentinel is silent before others may contradict its last report. Far longer than they take to tell each
/// other of a failover.
const LONG_SILENCE: Duration = Duration::from_secs(30);

/// Which server is the primary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Report {
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The last report of a Sentinel.
#[derive(Debug, Clone, Default)]
struct Last {
    report: Option<Report>,
    /// How many Sentinels this one knows of, itself included.
    known: usize,
    silent_since: Option<Instant>,
}

/// For how long no Sentinel answers before the log says so: connections that break and are made again are no silence.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Reports {
    last: Vec<Last>,
    rejected: Vec<Report>,
    /// Since when all are silent, and whether that was said.
    all_silent: Option<(Instant, bool)>,
}

impl Reports {
    pub(super) fn of(sentinels: usize) -> Self {
        Self { last: vec![Last::default(); sentinels], rejected: Vec::new(), all_silent: None }
    }

    /// That Sentinel was asked at `asked`, has named the primary, and knows of `known` Sentinels. Returns whether it was
    /// said that none does.
    pub(super) fn record(
        &mut self,
        number: usize,
        report: Report,
        known: usize,
        asked: Instant,
    ) -> bool {
        self.last[number] = Last { report: Some(report), known, silent_since: None };
        self.forget_outlived(asked);
        let Self { last, rejected, .. } = self;
        rejected.retain(|rejected| named(last).any(|report| report == rejected));
        self.all_silent.take().is_some_and(|(_, said)| said)
    }

    /// That Sentinel cannot be reached, or does not know the name any more. Returns whether it is to be said now that none
    /// names the primary: once in a silence.
    pub(super) fn record_silence(&mut self, number: usize, now: Instant) -> bool {
        self.last[number].silent_since.get_or_insert(now);
        if self.last.iter().any(|last| last.silent_since.is_none()) {
            return false;
        }
        let (since, said) = self.all_silent.get_or_insert((now, false));
        now >= *since + GRACE && !std::mem::replace(said, true)
    }

    /// Whether a Sentinel answers that has named the primary.
    pub(super) fn hears_any(&self) -> bool {
        self.last.iter().any(|last| last.report.is_some() && last.silent_since.is_none())
    }

    /// Rejects the reports that `names` the server. Returns whether one of them was not.
    pub(super) fn reject(&mut self, names: impl Fn(&Report) -> bool) -> bool {
        let Self { last, rejected, .. } = self;
        let before = rejected.len();
        for report in named(last).filter(|report| names(report)) {
            if !rejected.contains(report) {
                rejected.push(report.clone());
            }
        }
        rejected.len() > before
    }

    /// The server that `names` the reports is the primary.
    pub(super) fn accept(&mut self, names: impl Fn(&Report) -> bool) {
        self.rejected.retain(|rejected| !names(rejected));
    }

    /// Whether the last report of that Sentinel is rejected.
    pub(super) fn is_rejected(&self, number: usize) -> bool {
        self.last[number].report.as_ref().is_some_and(|report| self.rejected.contains(report))
    }

    /// The newest report that is not rejected; the newest one, if all are: it may come true without an event.
    pub(super) fn newest(&self) -> Option<&Report> {
        let counts = |report: &&Report| !self.rejected.contains(report);
        named(&self.last).filter(counts).max().or_else(|| named(&self.last).max())
    }

    fn forget_outlived(&mut self, now: Instant) {
        let Self { last, rejected, .. } = self;
        // One that watches another server since a moment ago has yet to meet the others.
        let many = last.iter().map(|last| last.known).max().max(Some(last.len()));
        let there = last.iter().filter(|last| last.silent_since.is_none());
        let heard = there.filter_map(|last| last.report.clone());
        let heard: Vec<_> = heard.filter(|report| !rejected.contains(report)).collect();
        for last in last {
            let long = last.silent_since.is_some_and(|since| now >= since + LONG_SILENCE);
            last.report.take_if(|report| {
                long && Some(2 * heard.iter().filter(|other| *other < report).count()) > many
            });
        }
    }
}

fn named(last: &[Last]) -> impl Iterator<Item = &Report> {
    last.iter().filter_map(|last| last.report.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn report(epoch: u64, host: &str) -> Report {
        Report { epoch, host: host.into(), port: 6379 }
    }

    #[test]
    fn a_silent_sentinel_is_contradicted_by_most_of_the_others_and_after_a_while() {
        // How many of five name the older configuration, and for how long another one is silent.
        for (others, after, forgotten) in
            [(2, LONG_SILENCE, false), (3, LONG_SILENCE / 2, false), (3, LONG_SILENCE, true)]
        {
            let (mut reports, now) = (Reports::of(5), clock::now());
            reports.record(0, report(10, "old"), 5, now);
            reports.record_silence(0, now);
            reports.record_silence(0, now + LONG_SILENCE);
            for number in 1..=others {
                reports.record(number, report(0, "new"), 5, now + after);
            }
            let newest = if forgotten { "new" } else { "old" };
            assert_eq!(reports.newest().expect("a report").host, newest, "{others}, {after:?}");
            reports.record(0, report(10, "old"), 5, now + 2 * LONG_SILENCE);
            assert_eq!(reports.newest().expect("a report").host, "old", "it is there again");
        }
    }

    /// Whether two of three listed Sentinels contradict the third one, when that one knew of `knew` Sentinels, and they
    /// know of `known`.
    fn contradicted(knew: usize, known: usize, rejects: bool) -> bool {
        let (mut reports, now) = (Reports::of(3), clock::now());
        reports.record(0, report(10, "newer"), knew, now);
        reports.record_silence(0, now);
        for number in [1, 2, 1] {
            reports.record(number, report(9, "older"), known, now + LONG_SILENCE);
            reports.reject(|report| rejects && report.host == "older");
        }
        reports.newest().expect("a report").host == "older"
    }

    #[test]
    fn a_silent_sentinel_is_not_contradicted_by_a_few_that_are_listed_or_by_a_report_that_is_rejected()
     {
        assert!(contradicted(3, 3, false));
        for (knew, known) in [(5, 5), (5, 1), (1, 5)] {
            assert!(!contradicted(knew, known, false), "the others are with the newer primary");
        }
        assert!(!contradicted(3, 3, true), "it answers as a replica");
    }

    #[test]
    fn a_sentinel_that_is_there_counts_whatever_most_others_say() {
        let (mut reports, now) = (Reports::of(3), clock::now());
        reports.record(0, report(10, "newer"), 3, now);
        for number in [1, 2] {
            reports.record(number, report(9, "older"), 3, now + 2 * LONG_SILENCE);
        }
        assert_eq!(reports.newest().expect("a report").host, "newer");
    }

    #[test]
    fn the_newest_report_counts_unless_it_is_rejected() {
        let (mut reports, now) = (Reports::of(3), clock::now());
        let newest = |reports: &Reports| reports.newest().map(|report| report.host.clone());
        assert_eq!(newest(&reports), None);
        reports.record(0, report(9, "new"), 3, now);
        reports.record(1, report(10, "newest"), 3, now);
        // A Sentinel that was away reports an earlier primary.
        reports.record(2, report(2, "old"), 3, now);
        assert_eq!(newest(&reports).as_deref(), Some("newest"));
        reports.reject(|report| report.host == "newest");
        assert!(reports.is_rejected(1) && !reports.is_rejected(0));
        assert_eq!(newest(&reports).as_deref(), Some("new"));
        // A later report of the same server is another one.
        reports.record(2, report(11, "newest"), 3, now);
        assert_eq!(newest(&reports).as_deref(), Some("newest"));
    }

    #[test]
    fn when_every_report_is_rejected_the_newest_counts_until_one_is_accepted() {
        let (mut reports, now) = (Reports::of(2), clock::now());
        reports.record(0, report(1, "one"), 2, now);
        reports.record(1, report(2, "two"), 2, now);
        reports.reject(|_| true);
        assert_eq!(reports.newest().expect("a report").host, "two");
        reports.accept(|report| report.host == "one");
        assert!(!reports.is_rejected(0) && reports.is_rejected(1));
        assert_eq!(reports.newest().expect("a report").host, "one");
    }

    #[test]
    fn that_no_sentinel_answers_is_said_once_and_after_a_moment() {
        let now = clock::now();
        let mut reports = Reports::of(2);
        assert!(!reports.record_silence(0, now) && !reports.record_silence(0, now + GRACE));
        assert!(!reports.record_silence(1, now + GRACE), "it may come back at once");
        assert!(!reports.record(1, report(1, "a"), 2, now + GRACE), "nothing was said");
        assert!(!reports.record_silence(1, now + GRACE));
        assert!(reports.record_silence(0, now + 2 * GRACE));
        assert!(!reports.record_silence(1, now + 9 * GRACE), "it was said");
        assert!(reports.record(0, report(1, "a"), 2, now + 9 * GRACE));
        assert!(!reports.record(1, report(1, "a"), 2, now + 9 * GRACE));
    }
}
