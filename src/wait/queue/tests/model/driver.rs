//! The model's side of the subscriptions: what the driver would send to Redis, and the answers.

use super::*;

impl Model {
    /// The subscriptions without a waiter, and until when they are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&String, u64)> {
        let unwanted = self.subscribed.iter().filter(|channel| !self.is_wanted(channel));
        unwanted.map(|channel| (channel, self.kept_until[channel]))
    }

    pub(super) fn missing(&self) -> BTreeSet<String> {
        let wanted = self.entries.iter().map(|entry| self.channel(entry.lock).to_owned());
        wanted.filter(|channel| !self.subscribed.contains(channel)).collect()
    }

    pub(super) fn look(&mut self) {
        let sleeps = self.asleep.is_some_and(|look| look.is_none_or(|look| look > self.now));
        if self.sent.is_some() || (sleeps && !self.notified) {
            return;
        }
        let (dirty, look) = self.queues.is_dirty(self.clock(), self.connection, |_| true);
        let plan = if dirty {
            self.queues.plan(self.clock(), self.connection, |_| true)
        } else {
            Plan::default()
        };
        let set = |names: &[Arc<str>]| names.iter().map(|name| (**name).to_owned()).collect();
        assert_eq!(self.missing(), set(&plan.subscribe), "to subscribe");
        let over = self.kept().filter(|(_, until)| *until <= self.now);
        let over: BTreeSet<String> = over.map(|(channel, _)| channel.clone()).collect();
        assert_eq!(over, set(&plan.unsubscribe), "to unsubscribe");
        let next = self.kept().map(|(_, until)| until).filter(|until| *until > self.now).min();
        assert_eq!(look, next.map(|next| self.at(next)));
        let used = self.subscribed.len() + self.missing().len() - over.len();
        assert_eq!(self.queues.channels.len(), used, "a channel that nobody needs");

        self.hears_no_more(&over);
        let kept: BTreeSet<String> = self.subscribed.difference(&over).cloned().collect();
        let names = &self.names;
        let entries = &self.entries;
        self.expected.retain(|lock, _| {
            let channel = names[*lock].channel();
            kept.contains(channel) || entries.iter().any(|w| names[w.lock].channel() == channel)
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
        let wakes = self.queues.subscribed(&plan.subscribe, self.connection, self.clock());
        self.woken(wakes);
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
            let now = self.clock();
            assert!(self.queues.not_subscribed(&plan.subscribe, self.connection, now).is_empty());
            if !dead {
                let denied = plan.subscribe.iter().map(|channel| (**channel).to_owned());
                self.hears_no_more(&denied.collect());
            }
            self.unsubscribe(&plan, dead);
        }
    }

    pub(super) fn cut(&mut self) {
        self.subscribed.clear();
        self.sent.iter_mut().for_each(|sent| sent.dead = true);
        let wakes = self.queues.cut(self.connection, self.clock());
        let there = |w: &&Entry| self.asked_for.contains(self.channel(w.lock));
        let there = self.entries.iter().filter(there).count();
        assert_eq!(wakes.len(), there, "everybody there looks up");
        self.woken(wakes);
        self.notified = true;
        let asked_for = std::mem::take(&mut self.asked_for);
        self.hears_no_more(&asked_for);
        self.connection += 1;
    }

    fn hears_no_more(&mut self, channels: &BTreeSet<String>) {
        for lock in self.expected.keys() {
            if channels.contains(self.names[*lock].channel()) {
                self.turns.hears_no_more(self.names[*lock].key());
            }
        }
    }
}
