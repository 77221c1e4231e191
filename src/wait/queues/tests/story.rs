//! Wait queues as a test changes them, one step after the other.

use super::*;

/// Wait queues to which everything happens at one moment, unless a test says otherwise.
pub(super) struct Story {
    pub(super) queues: Queues<Notify>,
    pub(super) names: Arc<Names>,
    pub(super) now: Instant,
}

/// The number of the connection.
pub(super) const ON: u64 = 1;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) type Wakes = Vec<Arc<Notify>>;

impl Story {
    pub(super) fn new() -> Self {
        let names = Names::new("", "key").into();
        Self { queues: Queues::default(), names, now: Instant::now() }
    }

    pub(super) fn at(&mut self) -> &mut Queues<Notify> {
        self.queues.at(self.now)
    }

    /// A waiter joins the queue. If it is the head, Redis refuses it for an hour.
    pub(super) fn join(&mut self) -> (Ticket, Arc<Notify>) {
        let joined = self.join_only();
        if self.step(joined.0) == WaitStep::Ask {
            self.refused(joined.0);
            self.step(joined.0);
        }
        self.wakes();
        joined
    }

    pub(super) fn join_only(&mut self) -> (Ticket, Arc<Notify>) {
        let (wake, names) = (Arc::new(Notify::new()), self.names.clone());
        let stay = Stay { since: self.now, until: None };
        (self.at().join(&names, Some(wake.clone()), stay), wake)
    }

    pub(super) fn step(&mut self, ticket: Ticket) -> WaitStep {
        let names = self.names.clone();
        self.at().step(&names, ticket)
    }

    pub(super) fn refused(&mut self, ticket: Ticket) {
        self.refused_for(ticket, Some(3600 * SECOND));
    }

    pub(super) fn refused_for(&mut self, ticket: Ticket, remaining: Option<Duration>) {
        let names = self.names.clone();
        self.at().record_refusal(&names, ticket, remaining, ("other".into(), None));
    }

    pub(super) fn unanswered(&mut self, ticket: Ticket, since: Instant) -> bool {
        let names = self.names.clone();
        let failure = |queue: &mut WaitQueue<Notify>, cx: &mut Context<Notify>| {
            queue.record_failure(ticket, since, SECOND, cx)
        };
        self.at().change(&names, failure).expect("a queue")
    }

    pub(super) fn granted(&mut self, ticket: Ticket) -> Effects<Notify> {
        let names = self.names.clone();
        self.at().record_grant(&names, ticket, SECOND);
        self.queues.take_effects()
    }

    pub(super) fn handed(&mut self, ticket: Ticket) -> Wakes {
        self.handed_effects(ticket).wake
    }

    pub(super) fn handed_effects(&mut self, ticket: Ticket) -> Effects<Notify> {
        self.handed_for(ticket, 3600 * SECOND)
    }

    /// Redis keeps the lock for so long, as far as it has heard.
    pub(super) fn handed_for(&mut self, ticket: Ticket, left: Duration) -> Effects<Notify> {
        let names = self.names.clone();
        self.at().record_hand_off(&names, ticket, left);
        self.queues.take_effects()
    }

    pub(super) fn heard_hand_off(&mut self, lease: Option<Duration>) -> Wakes {
        let names = self.names.clone();
        self.at().change(&names, |queue, cx| queue.record_heard_hand_off(lease, cx));
        self.wakes()
    }

    pub(super) fn message(&mut self) -> Wakes {
        let names = self.names.clone();
        self.at().record_message(names.channel(), Duration::ZERO);
        self.wakes()
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> Effects<Notify> {
        let names = self.names.clone();
        self.at().leave(&names, ticket);
        self.queues.take_effects()
    }

    pub(super) fn wakes(&mut self) -> Wakes {
        self.queues.take_effects().wake
    }

    pub(super) fn plan(&mut self) -> Plan {
        self.at().plan(ON, |_| true)
    }

    /// Whether the driver has something to do, and when it checks without a notification.
    pub(super) fn dirty(&mut self) -> (bool, Option<Instant>) {
        self.at().is_dirty(ON, |_| true)
    }

    pub(super) fn cut(&mut self) -> Wakes {
        self.at().record_cut(ON);
        self.wakes()
    }

    pub(super) fn answered(&mut self, asked_at: Instant) {
        let names = self.names.clone();
        self.at().record_answer_on(names.channel(), asked_at);
    }

    /// Until when this client defers.
    pub(super) fn deferral(&self) -> Option<Instant> {
        self.queues.get(&self.names)?.order.deferred_until(self.now)
    }

    /// The first request of the head takes too long, so the waiter behind it is the head, and asks.
    pub(super) fn passes(&mut self, first: Ticket, second: Ticket) {
        assert_eq!(self.step(first), WaitStep::Ask);
        let passed_at = self.now + 3 * SECOND;
        assert_eq!(self.step(second), WaitStep::Park(Some(passed_at)));
        self.now = passed_at;
        assert_eq!(self.step(second), WaitStep::Ask);
    }

    pub(super) fn outage(&self) -> Option<Instant> {
        self.queues.get(&self.names)?.reach.outage(self.now)
    }

    /// The driver does its work.
    pub(super) fn drive(&mut self) -> Wakes {
        let plan = self.plan();
        self.at().record_subscribed(&plan.subscribe, ON);
        self.wakes()
    }

    /// Two waiters in the queue, subscribed, the first refused once more.
    pub(super) fn parked() -> (Self, [(Ticket, Arc<Notify>); 2]) {
        let mut story = Self::new();
        let pair = [story.join(), story.join()];
        story.drive();
        assert_eq!(story.step(pair[0].0), WaitStep::Ask);
        story.refused(pair[0].0);
        (story, pair)
    }

    /// Whether what is kept of the locks is only memory to use again.
    pub(super) fn knows_nothing(&self) -> bool {
        self.queues.by_lock.values().all(|queue| queue.is_unused(self.now))
    }

    pub(super) fn longest_park(&self) -> WaitStep {
        WaitStep::Park(Some(self.now + LONGEST_PARK))
    }
}

pub(super) fn are(wakes: &Wakes, whom: &[&Arc<Notify>]) -> bool {
    wakes.len() == whom.len() && wakes.iter().zip(whom).all(|(a, b)| Arc::ptr_eq(a, b))
}

#[test]
fn locks_of_long_ago_are_forgotten() {
    let mut story = Story::new();
    for number in 0..1_000 {
        let names = Names::new("", &number.to_string()).into();
        story.at().record_release(&names, Some(1));
        story.now += 6 * SECOND;
    }
    assert!(story.queues.by_lock.len() <= 64, "{}", story.queues.by_lock.len());
}

#[test]
fn a_crowd_of_locks_is_forgotten_though_no_larger_one_comes() {
    let mut story = Story::new();
    let join = |story: &mut Story, name: String| {
        story.names = Arc::new(Names::new("", &name));
        let (ticket, _) = story.join();
        story.drive();
        (story.names.clone(), ticket)
    };
    let crowd: Vec<_> = (0..10_000).map(|number| join(&mut story, number.to_string())).collect();
    for (names, ticket) in crowd {
        story.names = names;
        story.leave(ticket);
    }
    for number in 0..100 {
        let (_, ticket) = join(&mut story, format!("later:{number}"));
        story.leave(ticket);
        story.plan();
        story.now += SECOND;
    }
    let (kept, room) = (story.queues.by_lock.len(), story.queues.by_lock.capacity());
    assert!(kept <= 64 && room < 1_000, "{kept} with room for {room}");
}
