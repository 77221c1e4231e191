//! What a client has, counted over all its possessions.

use std::time::Instant;

use super::{Hold, Possession, Possessions};
use crate::metrics::OfKinds;

#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// How many locks the client has.
    pub(crate) held: usize,
    pub(crate) held_of: OfKinds,
    pub(crate) pending_releases: usize,
    /// How many guards are lost and not given back, and since when the first of them is.
    pub(crate) lost_guards: usize,
    pub(crate) lost_since: Option<Instant>,
    /// When the first of the guards is lost, if nothing is renewed.
    pub(crate) valid_until: Option<Instant>,
}

impl Possessions {
    pub(crate) fn overview(&self, now: Instant) -> Overview {
        let mut overview = Overview::default();
        self.all().iter().for_each(|possession| overview.add(possession, now));
        overview
    }
}

impl Overview {
    fn add(&mut self, possession: &Possession, now: Instant) {
        let holds = possession.holds.lock();
        if holds.holding(now) {
            self.held += 1;
            self.held_of.count(&possession.names.series, possession.writes());
        }
        let has_begun = holds.release_has_begun(possession.is_permit_taken());
        if has_begun && holds.awaits_release() && holds.counts_too_many(now) {
            self.pending_releases += 1;
        }
        let has_guard = |hold: &&Hold| !holds.has_no_guard(hold);
        let live = holds.live.iter().filter(has_guard).map(|hold| (hold.number, &hold.validity));
        let lost = holds.rare.iter().flat_map(|rare| &rare.lost);
        for (hold, validity) in live.chain(lost.map(|(hold, validity)| (*hold, validity))) {
            match validity.check(now) {
                Some(until) => {
                    let first = self.valid_until.map_or(until, |first| first.min(until));
                    self.valid_until = Some(first);
                }
                None => {
                    self.lost_guards += holds.guards_of(hold);
                    let since = validity.lost_since(now);
                    self.lost_since = self.lost_since.into_iter().chain(since).min();
                }
            }
        }
    }
}
