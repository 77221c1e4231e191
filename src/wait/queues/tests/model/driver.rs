//! The model's side of the subscriptions: what the driver would send to Redis, and the answers.

use super::*;

impl Model {
    /// The subscriptions without a waiter, and until when they are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&String, u64)> {
        let unwanted = self.subscribed.iter().filter(|channel| !self.is_needed(channel));
        unwanted.map(|channel| (channel, self.kept_until[channel]))
    }

    /// A waiter has left. With the last one a subscription ends of which no server knows.
    pub(super) fn forget(&mut self, channel: &str) {
        if self.wanted.contains(channel) && self.lines_on(channel).is_empty() {
            let is_in = |all: &[Arc<str>]| all.iter().any(|one| **one == *channel);
            let sent = self.sent.as_ref().filter(|sent| !sent.dead);
            let asks = sent.is_some_and(|sent| is_in(&sent.plan.subscribe));
            let leaves = sent.is_some_and(|sent| is_in(&sent.plan.unsubscribe));
            let stays = self.subscribed.contains(channel) && !leaves;
            assert!(!asks && !stays, "a server knows of {channel}");
            let waits = |entry: &Entry| self.names[entry.lock].channel() == channel;
            assert!(!self.entries.iter().any(|entry| waits(entry) && entry.parked.is_some()));
            self.wanted.remove(channel);
            self.asked_for.remove(channel);
        }
    }

    pub(super) fn missing(&self) -> BTreeSet<String> {
        let wanted = self.wanted.iter().filter(|channel| self.is_needed(channel));
        wanted.filter(|channel| !self.subscribed.contains(*channel)).cloned().collect()
    }

    pub(super) fn look(&mut self) {
        let sleeps = self.asleep.is_some_and(|look| look.is_none_or(|look| look > self.now));
        if self.sent.is_some() || (sleeps && !self.notified) {
            return;
        }
        let on = self.connection;
        let (dirty, look) = self.queues().is_dirty(on, |_| true);
        let locks = self.wanted.iter().map(|channel| (channel.clone(), self.lines_on(channel)));
        let locks: BTreeMap<String, Vec<usize>> = locks.collect();
        let plan = if dirty { self.queues().plan(on, |_| true) } else { Plan::default() };
        let set = |names: &[Arc<str>]| names.iter().map(|name| (**name).to_owned()).collect();
        assert_eq!(self.missing(), set(&plan.subscribe), "to subscribe");
        let over = self.kept().filter(|(_, until)| *until <= self.now);
        let over: BTreeSet<String> = over.map(|(channel, _)| channel.clone()).collect();
        assert_eq!(over, set(&plan.unsubscribe), "to unsubscribe");
        let next = self.kept().map(|(_, until)| until).filter(|until| *until > self.now).min();
        assert_eq!(look, next.map(|next| self.at(next)));

        self.hears_no_more(over.iter().flat_map(|channel| locks[channel].clone()).collect());
        let kept: BTreeSet<String> = self.subscribed.difference(&over).cloned().collect();
        let needed: BTreeSet<String> =
            self.wanted.iter().filter(|channel| self.is_needed(channel)).cloned().collect();
        self.wanted.retain(|channel| kept.contains(channel) || needed.contains(channel));
        let (names, entries) = (&self.names, &self.entries);
        self.expected.retain(|lock, _| {
            let channel = names[*lock].channel();
            let waits = entries.iter().any(|entry| entry.lock == *lock);
            waits || kept.contains(channel) || needed.contains(channel)
        });

        let missing = self.missing();
        self.asked_for.retain(|channel| kept.contains(channel) || missing.contains(channel));
        self.asked_for.extend(plan.subscribe.iter().map(|channel| (**channel).to_owned()));
        self.notified = false;
        self.asleep = None;
        if plan.subscribe.is_empty() && plan.unsubscribe.is_empty() {
            self.asleep = Some(next);
        } else {
            self.sent = Some(Sent { plan, dead: false });
        }
    }

    pub(super) fn confirm(&mut self) {
        let Some(Sent { plan, dead }) = self.sent.take() else {
            return;
        };
        let on = if dead { self.connection - 1 } else { self.connection };
        self.queues().record_subscribed(&plan.subscribe, on);
        self.effects();
        if !dead {
            for channel in &plan.subscribe {
                self.subscribed.insert((**channel).to_owned());
                self.reason_on(channel);
            }
        }
        self.unsubscribe(&plan, dead);
    }

    pub(super) fn unsubscribe(&mut self, plan: &Plan, dead: bool) {
        for channel in plan.unsubscribe.iter().filter(|_| !dead) {
            self.subscribed.remove(&**channel);
        }
    }

    pub(super) fn deny(&mut self) {
        if let Some(Sent { plan, dead }) = self.sent.take() {
            let on = self.connection;
            self.queues().record_unsubscribed(&plan.subscribe, on);
            assert!(self.queues.take_effects().wake.is_empty());
            if !dead {
                let denied = plan.subscribe.iter().flat_map(|channel| self.lines_on(channel));
                self.hears_no_more(denied.collect());
            }
            self.unsubscribe(&plan, dead);
        }
    }

    pub(super) fn cut(&mut self) {
        self.subscribed.clear();
        self.sent.iter_mut().for_each(|sent| sent.dead = true);
        let on = self.connection;
        self.queues().record_cut(on);
        let there = |w: &&Entry| self.asked_for.contains(self.channel(w.lock));
        let there = self.entries.iter().filter(there).filter(|w| self.is_on_channel(w)).count();
        let Effects { wake, drivers } = self.queues.take_effects();
        assert_eq!(wake.len(), there, "each waiter there looks up");
        assert!(drivers);
        self.woken(wake);
        self.notified = true;
        let asked_for = std::mem::take(&mut self.asked_for);
        let there = asked_for.iter().flat_map(|channel| self.lines_on(channel)).collect();
        self.hears_no_more(there);
        self.connection += 1;
    }

    /// Whether a waiter of its lock has parked: else the subscription is that of another lock.
    fn is_on_channel(&self, entry: &Entry) -> bool {
        let locks = self.queues.subscriptions.locks(self.channel(entry.lock));
        locks.contains(&self.names[entry.lock])
    }

    fn hears_no_more(&mut self, locks: Vec<usize>) {
        for lock in locks {
            self.orders[lock].record_unsubscribed(false);
        }
    }
}
