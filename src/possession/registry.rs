//! The possessions of one client, by the numbers under which Redis knows them.
//!
//! 1. **A possession is registered before Redis can learn of it**; one that Redis has made, with a grant to the next client
//!    in a queue, when this client hears of it. So a possession of this client that
//!    Redis names and that is not registered has ended: its guards are dropped, its releases done or given
//!    up, and no request is under way.
//! 2. A possession is **idle** if it has no hold, no pending release and no session with Redis, and if its
//!    key is not to stay. If Redis counts a hold for an idle one, a server has missed its release, say in
//!    a failover.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::gap::Gaps;
use super::{HandleId, Id, Permit, Possession};
use crate::clock;
use crate::host::{HashMap, new_uuid};
use crate::kind::Kind;
use crate::protocol::Names;
use crate::sweep::Sweep;

pub(crate) struct Possessions {
    uuid: uuid::Uuid,
    next: AtomicU64,
    registered: Mutex<Registered>,
    pub(super) gaps: Gaps,
    /// Whether a task waits until they have ended.
    pub(super) end: AtomicBool,
    pub(super) changed: Notify,
    /// How many of such tasks take back what calls get meanwhile, and which have changed since one looked.
    pub(super) takers: AtomicUsize,
    pub(super) changed_ones: Mutex<Vec<Weak<Possession>>>,
}

struct Registered {
    entries: HashMap<u64, Weak<Possession>>,
    /// Until when the keys of those stay with no handle inside, from before Redis can know that. So nothing depends on
    /// the time at which the possession ends.
    retained: HashMap<u64, Instant>,
    sweep: Sweep,
}

impl Default for Possessions {
    fn default() -> Self {
        let (entries, retained, sweep) = Default::default();
        let registered = Registered { entries, retained, sweep };
        Self {
            uuid: new_uuid(),
            next: AtomicU64::new(1),
            registered: registered.into(),
            gaps: Gaps::default(),
            end: AtomicBool::new(false),
            changed: Notify::new(),
            takers: AtomicUsize::new(0),
            changed_ones: Mutex::default(),
        }
    }
}

impl Possessions {
    /// What a lock of that kind is called.
    pub(crate) fn names(&self, kind: Kind, prefix: &str, name: &str) -> Names {
        let mut text = uuid::Uuid::encode_buffer();
        let client = self.uuid.as_hyphenated().encode_lower(&mut text);
        match kind.is_in_order() {
            _ if kind.is_of_read_write() => Names::of_read_write(prefix, name, client),
            true => Names::new(prefix, name).with_own_channel(client),
            false => Names::new(prefix, name),
        }
    }

    /// The number of a new handle.
    pub(crate) fn new_handle(&self) -> HandleId {
        self.draw()
    }

    /// The id of a handle, for logs.
    pub(crate) fn id_of(&self, handle: HandleId) -> Id {
        Id::new(self.uuid, handle, false)
    }

    /// The possession of a grant that Redis has made by itself, under an id of its own: it is registered as soon as this
    /// client hears of it. `None` if the client has it already, or if its key is to stay: then this is no other grant,
    /// however late the client hears of it.
    pub(crate) fn register_grant(
        self: &Arc<Self>,
        names: Arc<Names>,
        id: &str,
    ) -> Option<Arc<Possession>> {
        let (mut number, writes) = Id::parse(self.uuid, id)?;
        let possession = self.made(names, number, writes);
        let known = {
            let registered = self.registered.lock();
            if registered.stays(number, clock::now()) {
                return None;
            }
            registered.entries.get(&number).and_then(Weak::upgrade)
        };
        match known {
            // Two servers have made the same one, for different locks.
            Some(known) if known.names != possession.names => number = self.draw(),
            Some(known) if !known.holds.lock().is_idle() => return None,
            // With an idle one, a server has missed its release.
            _ => {}
        }
        self.registered.lock().insert(number, &possession);
        Some(possession)
    }

    /// A possession that begins with the next request, under an id that no other has (invariant 1). Uses the
    /// memory of `spare`, if nothing else refers to that.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: Kind,
        names: &Arc<Names>,
        spare: Option<Arc<Possession>>,
    ) -> Arc<Possession> {
        let number = self.draw();
        let mut registered = self.registered.lock();
        let again =
            spare.and_then(|spare| registered.begin_again(spare, names, (number, kind.writes())));
        let possession = again.unwrap_or_else(|| self.made(names.clone(), number, kind.writes()));
        registered.insert(number, &possession);
        possession
    }

    fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What the ids of all these begin with.
    pub(crate) fn id(&self) -> uuid::Uuid {
        self.uuid
    }

    /// How many of them have a hold.
    pub(crate) fn held(&self) -> usize {
        self.all().iter().filter(|possession| possession.holds.lock().has_holds()).count()
    }

    /// The possession that Redis named as the holder of that lock, if it is an idle one of this client
    /// (invariant 2). Its release is then pending, and the permit
    /// to send it comes with it. Redis may have named it before its last release; then the release finds nothing.
    /// With `missed`, the server may have missed for how long the key is to stay, too, which the release tells it again,
    /// and this client has heard of each grant that Redis made by itself up to that time.
    pub(crate) fn claim_idle(
        self: &Arc<Self>,
        holder: &str,
        names: &Arc<Names>,
        missed: Option<u64>,
    ) -> Option<(Arc<Possession>, Permit)> {
        let (number, writes) = self.number(holder, missed.unwrap_or_default())?;
        let (possession, retained_until) = {
            let mut registered = self.registered.lock();
            if missed.is_none() && registered.stays(number, clock::now()) {
                return None;
            }
            let is_it =
                |one: &Arc<Possession>| one.is(number, writes) && one.names.key() == names.key();
            let known = registered.entries.get(&number).and_then(Weak::upgrade);
            // Two servers may have made the same one, for different locks.
            let is_known = known.as_ref().is_some_and(is_it);
            let is_grant = number.cast_signed() < 0;
            if is_grant && !is_known && (known.is_some() || registered.all().any(|one| is_it(&one)))
            {
                return None;
            }
            let possession = known.unwrap_or_else(|| {
                let possession = self.made(names.clone(), number, writes);
                // So that the next caller finds it during its release.
                registered.insert(number, &possession);
                possession
            });
            (possession, registered.retained.get(&number).copied())
        };
        let permit = possession.try_permit()?;
        {
            let mut holds = possession.holds.lock();
            if !holds.is_idle() {
                return None;
            }
            holds.counted = 1;
            holds.releases_again(retained_until);
        }
        Some((possession, permit))
    }

    /// The possession of this client that has that lock in a gap.
    pub(crate) fn in_gap(&self, names: &Names) -> Option<Arc<Possession>> {
        self.gaps.find(names)
    }

    /// Whether that is a possession of this client that is not idle.
    pub(crate) fn has(&self, holder: &str) -> bool {
        let Some((number, writes)) = self.number(holder, u64::MAX) else { return false };
        let known = self.registered.lock().entries.get(&number).and_then(Weak::upgrade);
        known.is_some_and(|known| known.is(number, writes) && !known.holds.lock().is_idle())
    }

    /// Until when Redis may keep the lock for that possession of this client, if that is there.
    pub(crate) fn kept_until(&self, holder: &str) -> Option<Instant> {
        let (number, writes) = self.number(holder, u64::MAX)?;
        let known = self.registered.lock().entries.get(&number).and_then(Weak::upgrade)?;
        if known.is(number, writes) { known.holds.lock().kept_until() } else { None }
    }

    /// The possessions that hold a lock now, of those locks whose keys `of` accepts.
    pub(crate) fn holders(&self, of: &dyn Fn(&str) -> bool, now: Instant) -> Vec<Arc<Possession>> {
        let mut all = self.all();
        all.retain(|one| of(one.names.key()) && one.holds.lock().holding(now));
        all
    }

    /// The last reference to one of them is not dropped under the mutex.
    pub(super) fn all(&self) -> Vec<Arc<Possession>> {
        self.registered.lock().all().collect()
    }

    fn made(self: &Arc<Self>, names: Arc<Names>, number: u64, writes: bool) -> Arc<Possession> {
        Arc::new(Possession {
            names,
            number,
            writes,
            registry: self.clone(),
            permit_is_taken: AtomicBool::new(false),
            seldom: OnceLock::new(),
            first_task: AtomicU32::new(0),
            holds: Mutex::default(),
        })
    }

    /// `None` if another client has it, or if Redis has made it after the time `heard`: of such a one this client may not
    /// have heard, and then it is not idle.
    fn number(&self, id: &str, heard: u64) -> Option<(u64, bool)> {
        let (number, writes) = Id::parse(self.uuid, id)?;
        let made = number.cast_signed();
        (made >= 0 || made.unsigned_abs() <= heard).then_some((number, writes))
    }
}

impl Registered {
    fn all(&self) -> impl Iterator<Item = Arc<Possession>> {
        self.entries.values().filter_map(Weak::upgrade)
    }

    /// Gives that possession another number, if it has ended and nothing else refers to it.
    fn begin_again(
        &mut self,
        mut spare: Arc<Possession>,
        names: &Arc<Names>,
        (number, writes): (u64, bool),
    ) -> Option<Arc<Possession>> {
        // Nothing else can refer to it again: that takes the entry, under the mutex.
        if Arc::strong_count(&spare) > 1 {
            return None;
        }
        self.remove(spare.number, Arc::as_ptr(&spare));
        let possession = Arc::get_mut(&mut spare)?;
        (possession.number, possession.writes) = (number, writes);
        if possession.seldom.get().is_some() {
            let id = possession.id();
            possession.seldom.get_mut().into_iter().for_each(|seldom| seldom.id = id);
        }
        if !Arc::ptr_eq(&possession.names, names) {
            possession.names = names.clone();
        }
        possession.holds.get_mut().begin_again();
        Some(spare)
    }

    fn insert(&mut self, number: u64, possession: &Arc<Possession>) {
        if self.sweep.is_due(self.entries.len() + self.retained.len()) {
            let now = clock::now();
            self.sweep.sweep(&mut self.entries, |_, possession| possession.strong_count() > 0);
            self.retained.retain(|_, until| now < *until);
            self.sweep.swept(self.entries.len() + self.retained.len());
        }
        self.entries.insert(number, Arc::downgrade(possession));
    }

    /// Removes the entry of that possession, and no other's.
    fn remove(&mut self, number: u64, possession: *const Possession) {
        if self.entries.get(&number).is_some_and(|one| std::ptr::eq(one.as_ptr(), possession)) {
            self.entries.remove(&number);
        }
    }

    /// Whether the key of that possession stays with no handle inside.
    fn stays(&self, number: u64, now: Instant) -> bool {
        self.retained.get(&number).is_some_and(|until| now < *until)
    }
}

impl Possession {
    fn is(&self, number: u64, writes: bool) -> bool {
        (self.number, self.writes) == (number, writes)
    }

    /// The server's time at which Redis granted it by itself, if it did.
    pub(crate) fn granted_at(&self) -> Option<u64> {
        let number = self.number.cast_signed();
        (number < 0).then_some(number.unsigned_abs())
    }

    /// Redis is about to hear that the key stays until then, with no handle inside.
    pub(crate) fn stays_until(&self, until: Instant) {
        let mut registered = self.registry.registered.lock();
        let noted = registered.retained.entry(self.number).or_insert(until);
        *noted = until.max(*noted);
    }
}

impl Drop for Possession {
    fn drop(&mut self) {
        // An entry that is left is swept later. In a forked child the registry may be in use forever.
        if let Some(mut registered) = self.registry.registered.try_lock() {
            registered.remove(self.number, self);
        }
    }
}

#[cfg(test)]
mod tests;
