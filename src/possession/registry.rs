//! The possessions of one client, by the numbers under which Redis knows them.
//!
//! 1. **A possession is registered before Redis can learn of it.** So a possession of this client that
//!    Redis names and that is not registered has ended: its guards are dropped, its releases done or given
//!    up, and no request is under way.
//! 2. A possession is **idle** if it has no hold, no pending release and no session with Redis, and if its
//!    key is not to stay. If Redis counts a hold for an idle one, a server has missed its release, say in
//!    a failover.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::id::without_writer;
use super::{HandleId, Id, Permit, Possession};
use crate::clock;
use crate::host::{HashMap, new_uuid};
use crate::kind::Kind;
use crate::protocol::Names;

/// Below this many entries nothing is swept.
const SWEEP_FROM: usize = 1024;

pub(crate) struct Possessions {
    uuid: uuid::Uuid,
    next: AtomicU64,
    registered: Mutex<Registered>,
    /// Whether a task waits until they have ended.
    pub(super) end: AtomicBool,
    pub(super) changed: Notify,
}

struct Registered {
    entries: HashMap<u64, Weak<Possession>>,
    /// Until when the keys of those stay with no handle inside, from before Redis can know that. So nothing depends on
    /// the time at which the possession ends.
    retained: HashMap<u64, Instant>,
    sweep_at: usize,
}

impl Default for Possessions {
    fn default() -> Self {
        let (entries, retained) = Default::default();
        let registered = Registered { entries, retained, sweep_at: SWEEP_FROM };
        Self {
            uuid: new_uuid(),
            next: AtomicU64::new(1),
            registered: registered.into(),
            end: AtomicBool::new(false),
            changed: Notify::new(),
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
        Id::new(self.uuid, handle)
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
        let id = Id::of(self.uuid, number, kind);
        let mut registered = self.registered.lock();
        let again = spare.and_then(|spare| registered.begin_again(spare, id));
        let possession = again.unwrap_or_else(|| self.made(names.clone(), id));
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
    /// With `missed`, the server may have missed for how long the key is to stay, too.
    pub(crate) fn claim_idle(
        self: &Arc<Self>,
        holder: &str,
        names: &Arc<Names>,
        missed: bool,
    ) -> Option<(Arc<Possession>, Permit)> {
        let number = self.number(holder)?;
        let possession = {
            let mut registered = self.registered.lock();
            if !missed && registered.stays(number, clock::now()) {
                return None;
            }
            let known = registered.entries.get(&number).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let possession = self.made(names.clone(), holder.into());
                // So that the next caller finds it during its release.
                registered.insert(number, &possession);
                possession
            })
        };
        let permit = possession.try_permit()?;
        {
            let mut holds = possession.holds.lock();
            if !holds.is_idle() {
                return None;
            }
            holds.counted = 1;
            holds.rare().release_missed = true;
        }
        Some((possession, permit))
    }

    /// The possessions that hold a lock now, of those locks whose keys `of` accepts.
    pub(crate) fn holders(&self, of: &dyn Fn(&str) -> bool, now: Instant) -> Vec<Arc<Possession>> {
        let mut all = self.all();
        all.retain(|one| of(one.names.key()) && one.holds.lock().holding(now));
        all
    }

    /// The last reference to one of them is not dropped under the mutex.
    pub(super) fn all(&self) -> Vec<Arc<Possession>> {
        let registered = self.registered.lock();
        registered.entries.values().filter_map(Weak::upgrade).collect()
    }

    fn made(self: &Arc<Self>, names: Arc<Names>, id: Id) -> Arc<Possession> {
        let mut possession = Possession::new(names, id);
        possession.registry = Some(self.clone());
        Arc::new(possession)
    }

    fn number(&self, id: &str) -> Option<u64> {
        let mut text = uuid::Uuid::encode_buffer();
        let number = id.strip_prefix(&*self.uuid.as_hyphenated().encode_lower(&mut text))?;
        without_writer(number.strip_prefix(':')?).parse().ok()
    }
}

/// The number at the end of an id of this client.
fn number_of(id: &Id) -> Option<u64> {
    without_writer(id).rsplit_once(':')?.1.parse().ok()
}

impl Registered {
    /// That possession with another id, if it has ended and nothing else refers to it.
    fn begin_again(&mut self, mut spare: Arc<Possession>, id: Id) -> Option<Arc<Possession>> {
        let number = number_of(&spare.id)?;
        // Nothing else can refer to it again: that takes the entry, under the mutex.
        if Arc::strong_count(&spare) > 1 {
            return None;
        }
        self.entries.remove(&number);
        let possession = Arc::get_mut(&mut spare)?;
        possession.id = id;
        possession.holds.get_mut().begin_again();
        Some(spare)
    }

    fn insert(&mut self, number: u64, possession: &Arc<Possession>) {
        if self.entries.len() + self.retained.len() >= self.sweep_at {
            let now = clock::now();
            self.entries.retain(|_, possession| possession.strong_count() > 0);
            self.retained.retain(|_, until| now < *until);
            self.sweep_at = SWEEP_FROM.max(2 * (self.entries.len() + self.retained.len()));
        }
        self.entries.insert(number, Arc::downgrade(possession));
    }

    /// Whether the key of that possession stays with no handle inside.
    fn stays(&self, number: u64, now: Instant) -> bool {
        self.retained.get(&number).is_some_and(|until| now < *until)
    }
}

impl Possession {
    /// Redis is about to hear that the key stays until then, with no handle inside.
    pub(crate) fn stays_until(&self, until: Instant) {
        let (Some(registry), Some(number)) = (&self.registry, number_of(&self.id)) else { return };
        let mut registered = registry.registered.lock();
        let noted = registered.retained.entry(number).or_insert(until);
        *noted = until.max(*noted);
    }
}

impl Drop for Possession {
    fn drop(&mut self) {
        let Some(registry) = self.registry.take() else { return };
        let Some(number) = number_of(&self.id) else { return };
        // An entry that is left is swept later. In a forked child the registry may be in use forever.
        if let Some(mut registered) = registry.registered.try_lock() {
            registered.entries.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::lease::Lease;
    use crate::token::TokenBlock;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn names() -> Arc<Names> {
        Arc::new(Names::new("", "lock"))
    }

    fn begin(possessions: &Arc<Possessions>) -> Arc<Possession> {
        possessions.begin(Kind::Reentrant, &names(), None)
    }

    fn is_idle(possessions: &Arc<Possessions>, id: &str) -> bool {
        possessions.claim_idle(id, &names(), false).is_some()
    }

    /// One that was granted the lock and has released it, as Redis confirmed.
    fn released(possessions: &Arc<Possessions>) -> Arc<Possession> {
        let (possession, now) = (begin(possessions), clock::now());
        let mut holds = possession.holds.lock();
        let ask = holds.ask_first(1);
        let (hold, ..) = holds.granted(ask, SECOND.into(), SECOND, TokenBlock::default(), now);
        holds.give_back(hold);
        let pending = holds.pending(now, SECOND).expect("a release");
        holds.release_sent(pending, now);
        holds.release_confirmed(pending);
        drop(holds);
        possession
    }

    #[test]
    fn w26_only_a_possession_of_this_client_with_no_hold_and_no_pending_release_is_idle() {
        let (possessions, now) = (Arc::new(Possessions::default()), clock::now());
        let possession = begin(&possessions);
        let foreign = begin(&Arc::default());
        assert!(!is_idle(&possessions, "somebody:1") && !is_idle(&possessions, &foreign.id));

        let permit = possession.try_permit();
        assert!(!is_idle(&possessions, &possession.id), "a request of it is under way");
        drop(permit);
        let ask = possession.holds.lock().ask_first(1);
        assert!(!is_idle(&possessions, &possession.id), "a request may have been executed");
        let (hold, ..) = possession.holds.lock().granted(
            ask,
            Lease::Watchdog,
            SECOND,
            TokenBlock::default(),
            now,
        );
        assert!(!is_idle(&possessions, &possession.id), "it holds the lock");
        possession.holds.lock().give_back(hold);
        assert!(!is_idle(&possessions, &possession.id), "its release is pending");
        let pending = possession.holds.lock().pending(now, SECOND).expect("a release");
        possession.holds.lock().release_sent(pending, now);
        possession.holds.lock().release_confirmed(pending);

        let (found, _permit) = possessions
            .claim_idle(&possession.id, &possession.names, false)
            .expect("an idle possession");
        assert!(Arc::ptr_eq(&found, &possession));
        // Redis may have named it before its release came.
        assert!(possession.holds.lock().can_hand_off(now).is_none());
        let pending = possession.holds.lock().pending(now, SECOND);
        assert_eq!(pending.map(|pending| pending.count), Some(0));
        assert!(!is_idle(&possessions, &possession.id), "somebody sees to it already");
    }

    #[test]
    fn w26_a_possession_that_has_ended_is_claimed_by_one_caller_until_it_is_released_again() {
        let possessions = Arc::new(Possessions::default());
        let id = released(&possessions).id;
        let claimed = possessions.claim_idle(&id, &names(), false).expect("it is idle");
        assert_eq!(&*claimed.0.id, &*id);
        assert!(!is_idle(&possessions, &id), "a release of it is under way");
        drop(claimed);
        assert!(is_idle(&possessions, &id));
    }

    #[test]
    fn w26_a_possession_is_found_from_before_its_first_request() {
        let possessions = Arc::new(Possessions::default());
        let possession = begin(&possessions);
        let (found, _permit) =
            possessions.claim_idle(&possession.id, &names(), false).expect("it is idle");
        assert!(Arc::ptr_eq(&found, &possession), "a second one would release what it acquires");
    }

    #[test]
    fn no_two_possessions_or_handles_of_a_client_have_one_number() {
        let possessions = Arc::new(Possessions::default());
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let number = possessions.new_handle();
            let id = possessions.id_of(number);
            assert!(id.ends_with(&format!(":{number}")));
            assert!(ids.insert(id.to_string()));
            assert!(ids.insert(begin(&possessions).id.to_string()));
        }
        assert!(ids.iter().all(|id| id.starts_with(&possessions.id().to_string())));
    }

    #[test]
    fn a_key_that_is_to_stay_is_nobodys_to_release_until_its_time() {
        let possessions = Arc::new(Possessions::default());
        let retained = |until| {
            let possession = begin(&possessions);
            let mut holds = possession.holds.lock();
            let ask = holds.ask_first(1);
            let (hold, ..) =
                holds.granted(ask, SECOND.into(), SECOND, TokenBlock::default(), clock::now());
            holds.hold_until(hold, until);
            holds.give_back(hold);
            let pending = holds.pending(clock::now(), SECOND).expect("a release");
            assert!(pending.retains || until <= clock::now());
            holds.release_sent(pending, clock::now());
            if pending.retains {
                possession.stays_until(until);
            }
            holds.release_confirmed(pending);
            drop(holds);
            assert_eq!(is_idle(&possessions, &possession.id), until <= clock::now());
            possession.id
        };
        assert!(!is_idle(&possessions, &retained(clock::now() + 100 * SECOND)));
        assert!(is_idle(&possessions, &retained(clock::now())));
        // So it is where the possession ends while another task uses the registry.
        let possession = begin(&possessions);
        let id = possession.id;
        possession.stays_until(clock::now() + 100 * SECOND);
        let registered = possessions.registered.lock();
        drop(possession);
        drop(registered);
        assert!(!is_idle(&possessions, &id));
        // The key of one that has ended is remembered for as long as it stays.
        for _ in 0..2 * SWEEP_FROM {
            retained(clock::now());
        }
        let registered = possessions.registered.lock();
        assert!(registered.entries.len() + registered.retained.len() <= SWEEP_FROM + 2);
    }

    #[test]
    fn w26_entries_of_what_has_ended_do_not_pile_up() {
        let possessions = Arc::new(Possessions::default());
        let kept = begin(&possessions);
        let ended = begin(&possessions).id.to_string();
        assert!(is_idle(&possessions, &ended));
        assert_eq!(possessions.registered.lock().entries.len(), 1);
        for _ in 0..10 * SWEEP_FROM {
            // Dropped while the registry is in use.
            let ended = begin(&possessions);
            let _registered = possessions.registered.lock();
            drop(ended);
        }
        assert!(possessions.registered.lock().entries.len() <= SWEEP_FROM);
        kept.holds.lock().ask_first(1);
        assert!(!is_idle(&possessions, &kept.id), "swept out although it is there");
    }
}
