//! The end of a client: waits until its possessions are given back, and takes back those that are not.
//!
//! 1. **The wait ends when the last valid guard does.** It ignores a possession whose guards are all lost, however long
//!    they live on.
//! 2. **Guards are lost before their release is sent**: their holders know it before another owner can get the lock.
//! 3. **The wait misses no change.** A call changes the holds under their mutex, and wakes the wait after that, if `end`
//!    is set. The wait sets `end` before it looks at the holds for the first time.
//! 4. **The wait for one possession keeps no other waiting**: what a call is granted meanwhile is among the changed ones.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::Loss;

use super::{HoldState, Possession, Possessions};

impl Possessions {
    /// Waits until no guard has a valid hold, and no request or release is under way. The caller sees to it that none
    /// begins.
    pub(crate) async fn all_given_back(&self) {
        self.end.store(true, Ordering::Relaxed);
        self.end_of_all(None::<fn(&Arc<Possession>)>).await;
    }

    /// The same, but `each` takes back those that have guards, now and meanwhile.
    pub(crate) async fn all_taken_back(&self, mut each: impl FnMut(&Arc<Possession>)) {
        self.end.store(true, Ordering::Relaxed);
        let _taker = Taker::begin(self);
        self.with_guards().iter().for_each(&mut each);
        self.end_of_all(Some(each)).await;
    }

    async fn end_of_all(&self, mut each: Option<impl FnMut(&Arc<Possession>)>) {
        loop {
            let mut left = self.all();
            left.retain(|one| one.holds.lock().is_in_use(clock::now()));
            if left.is_empty() {
                return;
            }
            for possession in left {
                possession.given_back(self, &mut each).await;
            }
        }
    }

    /// The possessions whose guards are alive.
    pub(crate) fn with_guards(&self) -> Vec<Arc<Possession>> {
        let mut all = self.all();
        all.retain(|one| one.holds.lock().has_holds());
        all
    }

    /// The possessions of which Redis may have a hold.
    pub(crate) fn unreleased(&self) -> Vec<Arc<Possession>> {
        let mut all = self.all();
        all.retain(|one| one.holds.lock().awaits_release());
        all
    }
}

impl Possession {
    async fn given_back(
        self: &Arc<Self>,
        all: &Possessions,
        each: &mut Option<impl FnMut(&Arc<Self>)>,
    ) {
        loop {
            let changed = all.changed.notified();
            if let Some(each) = each {
                let others = std::mem::take(&mut *all.changed_ones.lock());
                let others: Vec<_> = others.iter().filter_map(Weak::upgrade).collect();
                for one in std::iter::once(self).chain(&others) {
                    if one.holds.lock().has_holds() {
                        each(one);
                    }
                }
            }
            let until = {
                let (holds, now) = (self.holds.lock(), clock::now());
                if !holds.is_in_use(now) {
                    return;
                }
                holds.valid_until(now)
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = clock::until(until) => {}
            }
        }
    }

    /// Wakes the wait for the end of the client, if there is one: a call may have got a hold, and the permit is free.
    pub(super) fn changed(self: &Arc<Self>) {
        if self.registry.end.load(Ordering::Relaxed) {
            if self.registry.takers.load(Ordering::Relaxed) > 0 {
                self.registry.changed_ones.lock().push(Arc::downgrade(self));
            }
            self.registry.changed.notify_waiters();
        }
    }

    /// The same, where the holds have become fewer.
    pub(super) fn has_lost_holds(&self) {
        self.registry.changed.notify_waiters();
    }

    /// Its lease is over, and Redis has not answered the last request: a release, if one is `pending`. The next call of
    /// the handle may send that once more.
    pub(crate) fn gives_up(&self, pending: bool) {
        let gap = {
            let mut holds = self.holds.lock();
            if pending && !holds.has_holds() {
                holds.rare().given_up = true;
            }
            holds.take_gap()
        };
        self.announce_end(gap);
        self.has_lost_holds();
    }

    /// Sets its guards to lost, and returns whether one of them was valid. From here on its release is pending, which
    /// the caller must send.
    pub(crate) fn take_back(&self, now: Instant) -> bool {
        let (lost, valid) = {
            let mut holds = self.holds.lock();
            let lost = holds.lose_live();
            // Inside the mutex, as every loss.
            let valid = lost.iter().filter(|lost| lost.lose(Loss::Closed, now)).count();
            holds.undoes();
            (lost, valid)
        };
        lost.iter().for_each(|validity| validity.wake());
        valid > 0
    }
}

/// A task that takes back what calls get. It is one before it looks at the holds for the first time (invariant 3).
struct Taker<'a>(&'a Possessions);

impl<'a> Taker<'a> {
    fn begin(all: &'a Possessions) -> Self {
        all.takers.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        if self.0.takers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.changed_ones.lock().clear();
        }
    }
}

impl HoldState {
    /// Whether a guard is valid, or Redis may have a hold of which no guard is left.
    fn is_in_use(&self, now: Instant) -> bool {
        self.holding(now) || self.awaits_release() && !self.has_holds()
    }

    /// For how long Redis may keep the lock from now on, as it was asked: for a lease that was longer, too, unless it
    /// has confirmed the shorter one.
    pub(crate) fn longest_lease(&self, now: Instant) -> Duration {
        let kept = self.rare.as_ref().and_then(|rare| rare.kept_until);
        let kept = kept.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        // Its deadline has a margin.
        let kept = kept + kept / 99 + Duration::from_millis(1);
        kept.max(Duration::from_millis(self.lease))
    }
}
