//! One task: takes locks at random, works under them, and gives them back in every way there is.

use redlatch::{ErrorKind, Lease};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::handle::{Ask, Wish};
use crate::prelude::*;
use crate::resource::work;
use crate::shared::Member;
use crate::support::ms;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    task: u16,
    rng: Rng,
    /// Unique in the run: high bits of what this worker writes to the resource.
    me: u64,
    writes: u64,
    /// Its own handle for each name, made when it is needed.
    own: Vec<Option<Arc<Handle>>>,
    /// Whom it gives guards to, if its runtime may end before it does.
    heir: Option<UnboundedSender<Hold>>,
}

/// Explicit leases: some run out in mid-hold, some are so long that a lock which nobody gave back
/// shows.
const LEASES: [Duration; 7] = [ms(40), ms(40), ms(150), ms(400), ms(1000), ms(5000), ms(5000)];

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, task: u16, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ (u64::from(task) << 32));
        let me = u64::from(rng.u32(..)) << 32;
        let own = shared.names.all().map(|_| None).collect();
        Self { shared, task, rng, me, writes: 0, own, heir: None }
    }

    /// One whose runtime ends under it.
    pub(crate) fn with_heir(self, heir: UnboundedSender<Hold>) -> Self {
        Self { heir: Some(heir), ..self }
    }

    /// Works until it is told to stop. Returns what it holds then.
    pub(crate) async fn run(mut self) -> Vec<Hold> {
        // One task in each process is.
        let patient = self.task == 1;
        loop {
            let held = if patient {
                self.patient_session().await
            } else if self.one_in(8) {
                self.session_of_several().await
            } else {
                self.session().await
            };
            if self.shared.stop.is_told() {
                return held;
            }
            self.give_all_back(held).await;
            let rest = self.shared.platform.rest(&mut self.rng);
            if !rest.is_zero() {
                sleep(rest).await;
            }
        }
    }

    fn next_call(&self) -> (u16, u32) {
        (self.task, self.shared.next_call())
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn pick_handle(&mut self) -> Arc<Handle> {
        let names = self.shared.names;
        let brisk = self.task.is_multiple_of(3) && !self.one_in(20);
        let key = if brisk { names.pick_brisk(&mut self.rng) } else { names.pick(&mut self.rng) };
        let member = self.shared.pick_member(&mut self.rng);
        // What a runtime leaves behind shows when another uses the same handle.
        if self.heir.is_some() && self.rng.bool() {
            return member.shared[usize::from(key)].clone();
        }
        match self.rng.u32(..20) {
            0 | 1 => member.shared[usize::from(key)].clone(),
            // A fenced name can be locked with a plain handle too, and they exclude each other. Waiters
            // of a fair one hear late of a plain release.
            2 if Names::kind(key) == Kind::Fenced => {
                Arc::new(self.shared.handle(&member, key, Kind::Plain))
            }
            3 => {
                self.own[usize::from(key)] = None;
                self.pick_handle()
            }
            _ => {
                let kind = Names::kind(key);
                let fresh = || Arc::new(self.shared.handle(&member, key, kind));
                self.own[usize::from(key)].get_or_insert_with(fresh).clone()
            }
        }
    }

    fn pick_lease(&mut self) -> Lease {
        if self.rng.bool() { Lease::Watchdog } else { Lease::Fixed(self.pick_fixed()) }
    }

    fn pick_fixed(&mut self) -> Duration {
        LEASES[self.rng.usize(..LEASES.len())].max(self.shared.platform.shortest_lease())
    }

    fn pick_ask(&mut self) -> Ask {
        match self.rng.u32(..10) {
            0..=2 => Ask::Lock,
            3 => Ask::WithLease(self.pick_fixed()),
            4..=6 => Ask::Try(ms(self.rng.u64(1..400)), self.pick_lease()),
            7 => Ask::Try(Duration::ZERO, self.pick_lease()),
            _ => Ask::Now,
        }
    }

    /// Of one that holds something else.
    fn pick_short_ask(&mut self) -> Ask {
        match self.rng.u32(..4) {
            0 => Ask::Now,
            _ => Ask::Try(ms(self.rng.u64(1..100)), self.pick_lease()),
        }
    }

    /// Whether to read, and not to write.
    fn pick_reads(&mut self, key: u16) -> bool {
        Names::kind(key) == Kind::ReadWrite && self.rng.u32(..5) < 3
    }

    /// Takes a lock, perhaps nested, and works under it.
    async fn session(&mut self) -> Vec<Hold> {
        let handle = self.pick_handle();
        let is_read_write = Names::kind(handle.base.key) == Kind::ReadWrite;
        let reads = self.pick_reads(handle.base.key);
        let depth = [1, 1, 1, 1, 1, 2, 2, 3][self.rng.usize(..8)];
        let mut held: Vec<Hold> = Vec::new();
        for _ in 0..depth {
            let ask = self.pick_ask();
            let asked = tokio::time::Instant::now();
            let nested = !held.is_empty();
            // The other side of a handle that has the lock is not to be had.
            let reads = reads != (nested && is_read_write && self.one_in(8));
            match self.acquire(&handle, Wish { ask, reads, nested }).await {
                Ok(Some(hold)) => held.push(hold),
                Ok(None) => break,
                Err(trouble) => {
                    if trouble == Some(ErrorKind::Closed) {
                        self.own[usize::from(handle.base.key)] = None;
                    }
                    if matches!(trouble, Some(ErrorKind::Unavailable | ErrorKind::Closed)) {
                        sleep(ms(self.rng.u64(5..30))).await;
                    }
                    break;
                }
            }
            if self.shared.stop.is_told() {
                return held;
            }
            // It may have been sent twice: did it count twice?
            if asked.elapsed() > ms(2) && self.one_in(4) {
                handle.hold_count(&self.shared.log, self.next_call()).await;
            }
        }
        if is_read_write && self.one_in(5) {
            held = self.change_one(held).await;
        }
        if held.is_empty() {
            // Without an answer the name would count as freed for ever.
            let stays = self.heir.is_none();
            if stays && self.shared.names.is_tampered(handle.base.key) && self.one_in(20) {
                handle.force_unlock(&self.shared.log, self.next_call()).await;
            }
            yield_now().await;
        } else {
            self.work_under(&mut held, &handle).await;
        }
        held
    }

    /// Lets one of them read instead of writing, or write instead of reading.
    async fn change_one(&mut self, mut held: Vec<Hold>) -> Vec<Hold> {
        if !held.is_empty() && !self.shared.stop.is_told() {
            let hold = held.swap_remove(self.rng.usize(..held.len()));
            let call = self.next_call();
            held.extend(hold.change_sides(call).await);
        }
        held
    }

    /// Takes several locks together, perhaps with single ones in its hand.
    async fn session_of_several(&mut self) -> Vec<Hold> {
        let member = self.shared.pick_member(&mut self.rng);
        let mut held: Vec<Hold> = Vec::new();
        if self.one_in(4) {
            held.extend(self.one_of_several(&member).await);
        }
        let set = self.shared.names.pick_several(&mut self.rng);
        let handle = self.shared.several(&member, set);
        for nested in [false, true] {
            if nested && !self.one_in(6) || self.shared.stop.is_told() {
                break;
            }
            let ask = if held.is_empty() { self.pick_ask() } else { self.pick_short_ask() };
            let Ok(Some(hold)) = self.acquire(&handle, Wish { ask, reads: false, nested }).await
            else {
                break;
            };
            held.push(hold);
        }
        if !held.is_empty() && self.one_in(6) {
            held.extend(self.one_of_several(&member).await);
        }
        if held.is_empty() {
            yield_now().await;
        } else if !self.shared.stop.is_told() {
            self.work_under(&mut held, &handle).await;
        }
        held
    }

    /// Takes one of the locks that others take together. It may wait with others in its hand, so it does not for
    /// long.
    async fn one_of_several(&mut self, member: &Member) -> Option<Hold> {
        if self.shared.stop.is_told() {
            return None;
        }
        let key = self.shared.names.pick_of_several(&mut self.rng);
        let handle = self.shared.handle(member, key, Names::kind(key));
        let wish = Wish { ask: self.pick_short_ask(), reads: false, nested: false };
        self.acquire(&handle, wish).await.ok().flatten()
    }

    /// Waits for a name that few ask for, holds it for a while, and stays away for longer. Sometimes it reads on when
    /// it has written: no later call lets those in that wait to read, if that does not.
    async fn patient_session(&mut self) -> Vec<Hold> {
        let pause = ms(self.rng.u64(50..900));
        let stop = self.shared.stop.clone();
        let _ = tokio::time::timeout(pause, stop.told()).await;
        let key = self.shared.names.pick_still(&mut self.rng);
        let member = self.shared.pick_steady(&mut self.rng);
        let handle = self.shared.handle(&member, key, Names::kind(key));
        let ask = if self.rng.bool() { Ask::Lock } else { Ask::WithLease(ms(5000)) };
        let call = self.next_call();
        let giving_up = stop.told();
        let reads = self.pick_reads(key);
        let wish = Wish { ask, reads, nested: false };
        let granted = handle.acquire(&self.shared.log, call, wish, giving_up).await;
        let Ok(Some(mut hold)) = granted else { return Vec::new() };
        let time = ms(self.rng.u64(20..300));
        self.idle(&mut hold, time).await;
        if Names::kind(key) != Kind::ReadWrite || reads || stop.is_told() || self.rng.bool() {
            return vec![hold];
        }
        let call = self.next_call();
        let mut held = Vec::from_iter(hold.change_sides(call).await);
        for hold in &mut held {
            let time = ms(self.rng.u64(200..600));
            self.idle(hold, time).await;
        }
        held
    }

    async fn acquire(
        &mut self,
        handle: &Handle,
        wish: Wish,
    ) -> Result<Option<Hold>, Option<ErrorKind>> {
        let stop = self.shared.stop.clone();
        let patience = self.pick_patience();
        let giving_up = async {
            tokio::select! {
                biased;
                () = stop.told() => {}
                () = patience.over() => {}
            }
        };
        let call = self.next_call();
        handle.acquire(&self.shared.log, call, wish, giving_up).await
    }

    fn pick_patience(&mut self) -> Patience {
        match self.rng.u32(..40) {
            0..=2 => Patience::Turns(self.rng.u32(..40)),
            3 => Patience::Time(Duration::from_micros(self.rng.u64(..5000))),
            4 => Patience::Time(ms(self.rng.u64(..500))),
            _ => Patience::Endless,
        }
    }

    async fn work_under(&mut self, held: &mut [Hold], handle: &Handle) {
        let at = self.rng.usize(..held.len());
        let names = self.shared.names;
        let slow = names.is_slow(handle.base.key);
        let tampered = names.is_tampered(handle.base.key);
        let short = !held[at].is_watched() && held[at].lease() <= ms(40);
        match self.rng.u32(..100) {
            0..=9 => self.write(&mut held[at], Duration::ZERO).await,
            // Late writes: the lease ends while the holder thinks.
            26..=45 if short => {
                let think = ms(self.rng.u64(20..60));
                self.write(&mut held[at], think).await;
            }
            46..=60 if tampered && held[at].is_watched() => {
                self.idle(&mut held[at], ms(1500)).await
            }
            10..=13 => {
                let short = ms(self.rng.u64(1..6));
                self.idle(&mut held[at], short).await;
            }
            14..=18 if slow || self.one_in(20) => {
                // Long enough for renewals; an explicit lease may run out under it.
                let limit = if held[at].is_watched() {
                    ms(self.rng.u64(200..2500))
                } else {
                    (held[at].lease() * 13 / 10).min(ms(600))
                };
                self.idle(&mut held[at], limit).await;
            }
            19..=20 => handle.hold_count(&self.shared.log, self.next_call()).await,
            21 if short => {
                // Beyond the deadline of some. Two of a runtime, one after the other, keep a third from hearing of its
                // loss for no longer than that may be `late`.
                let before = ms(self.rng.u64(20..35));
                self.idle(&mut held[at], before).await;
                let blocking = self.shared.platform.block(ms(self.rng.u64(5..20)));
                held[at].run_blocking(blocking).await;
            }
            _ => {}
        }
        for _ in 0..self.rng.u32(2..9) {
            for hold in held.iter_mut() {
                hold.is_believed();
            }
        }
    }

    /// Writes to the resource, one thing each time.
    async fn write(&mut self, hold: &mut Hold, think: Duration) {
        self.writes += 1;
        let what = (hold.pick_key(&mut self.rng), self.me | self.writes);
        work(&*self.shared.resource, hold, what, think).await;
    }

    /// Does nothing for a while but look, until that is over or the lock is lost.
    async fn idle(&mut self, hold: &mut Hold, time: Duration) {
        let stop = self.shared.stop.clone();
        let end = tokio::time::Instant::now() + time;
        // Often enough that no renewal goes unseen before the deadline that it moved.
        let step = (hold.lease() / 12).clamp(ms(2), ms(50));
        // A loss before anybody listened is no late notice.
        let mut believed = hold.is_believed();
        while believed && tokio::time::Instant::now() < end && !stop.is_told() {
            let lost = tokio::select! {
                biased;
                () = hold.lost() => true,
                () = sleep(step) => false,
                () = stop.told() => false,
            };
            believed = hold.is_believed() && !lost;
        }
    }

    async fn give_all_back(&mut self, mut held: Vec<Hold>) {
        while !held.is_empty() {
            // In any order.
            let at = self.rng.usize(..held.len());
            let hold = held.swap_remove(at);
            self.give_back(hold).await;
        }
    }

    async fn give_back(&mut self, hold: Hold) {
        if let Some(heir) = self.heir.clone()
            && self.one_in(4)
        {
            // It is there until all of those are gone who give it something.
            let _ = heir.send(hold);
            return;
        }
        let platform = &self.shared.platform;
        match self.rng.u32(..20) {
            0..=2 => hold.drop_guard(How::Drop, drop),
            3 => hold.drop_guard(How::DropOutside, |guard| platform.drop_outside(guard)),
            4 => hold.unlock(Patience::Turns(self.rng.u32(..10)).over()).await,
            _ => hold.unlock(std::future::pending()).await,
        }
    }
}

/// When a call is given up.
enum Patience {
    Turns(u32),
    Time(Duration),
    Endless,
}

impl Patience {
    async fn over(self) {
        match self {
            Self::Turns(turns) => {
                for _ in 0..turns {
                    yield_now().await;
                }
            }
            Self::Time(time) => sleep(time).await,
            Self::Endless => std::future::pending().await,
        }
    }
}
