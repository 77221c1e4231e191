//! The owners of one client, by the numbers under which Redis knows them.
//!
//! 1. **An owner is registered before Redis can learn of it**, by a request of its own or by a
//!    hand-off. So an owner of this client that Redis names and that is not registered has ended: its
//!    handle and guards are dropped, its releases done or given up, and no request is under way.
//! 2. An owner is **idle** if it has no hold, no pending release and no session with Redis. If
//!    Redis counts a hold for an idle owner, a server has missed its release, say in a failover.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::{Owner, Permit};
use crate::host::{HashMap, new_uuid};
use crate::kind::Kind;
use crate::protocol::Names;

/// Below this many entries nothing is swept.
const SWEEP_FROM: usize = 1024;

pub(crate) struct Owners {
    uuid: uuid::Uuid,
    next: AtomicU64,
    registered: Mutex<Registered>,
}

struct Registered {
    owners: HashMap<u64, Weak<Owner>>,
    sweep_at: usize,
}

impl Default for Owners {
    fn default() -> Self {
        let registered = Registered { owners: HashMap::default(), sweep_at: SWEEP_FROM };
        Self { uuid: new_uuid(), next: AtomicU64::new(1), registered: registered.into() }
    }
}

impl Owners {
    /// What a lock of that kind is called.
    pub(crate) fn names(&self, kind: Kind, prefix: &str, name: &str) -> Names {
        let names = Names::new(prefix, name);
        if !kind.has_queue() {
            return names;
        }
        let mut text = uuid::Uuid::encode_buffer();
        names.with_own_channel(self.uuid.as_hyphenated().encode_lower(&mut text))
    }

    /// A new owner, with an id that no other has.
    pub(crate) fn new_owner(self: &Arc<Self>, kind: Kind, names: Names) -> Arc<Owner> {
        let id = format!("{}:{}", self.uuid, self.next.fetch_add(1, Ordering::Relaxed));
        self.made(kind, names, id)
    }

    /// What the ids of all these owners begin with.
    pub(crate) fn id(&self) -> uuid::Uuid {
        self.uuid
    }

    /// How many of them have a hold.
    pub(crate) fn held(&self) -> usize {
        // The last reference to one of them is not dropped under the mutex.
        let owners: Vec<Arc<Owner>> =
            self.registered.lock().owners.values().filter_map(Weak::upgrade).collect();
        owners.iter().filter(|owner| owner.holds.lock().has_holds()).count()
    }

    /// The owner is about to ask for a lock (invariant 1).
    pub(crate) fn register(&self, owner: &Arc<Owner>) {
        if owner.holds.lock().registered {
            return;
        }
        let Some(number) = self.number(&owner.id) else { return };
        self.registered.lock().insert(number, owner);
        // Last: another call of the same handle relies on the entry from here on.
        owner.holds.lock().registered = true;
    }

    /// The owner that Redis named as the holder of that lock, if it is an idle one of this client
    /// (invariant 2). If it is gone, it counts as of `kind`. Its release is then pending, and the permit
    /// to send it comes with it. Redis may have named it before its last release; then the release finds nothing.
    pub(crate) fn claim_idle(
        self: &Arc<Self>,
        holder: &str,
        kind: Kind,
        names: &Names,
    ) -> Option<(Arc<Owner>, Permit)> {
        let number = self.number(holder)?;
        let owner = {
            let mut registered = self.registered.lock();
            registered.owners.get(&number).and_then(Weak::upgrade).unwrap_or_else(|| {
                let owner = self.made(kind, names.clone(), holder.into());
                // So that the next caller finds it during its release.
                registered.insert(number, &owner);
                owner.holds.lock().registered = true;
                owner
            })
        };
        let permit = owner.try_permit()?;
        {
            let mut holds = owner.holds.lock();
            if !holds.can_take() {
                return None;
            }
            holds.counted = 1;
            holds.rare().release_missed = true;
        }
        Some((owner, permit))
    }

    /// The owners that hold a lock now, of those locks whose keys `of` accepts.
    pub(crate) fn holders(&self, of: &dyn Fn(&str) -> bool, now: Instant) -> Vec<Arc<Owner>> {
        let mut owners: Vec<_> =
            self.registered.lock().owners.values().filter_map(Weak::upgrade).collect();
        owners.retain(|owner| of(owner.names.key()) && owner.holds.lock().holding(now));
        owners
    }

    fn made(self: &Arc<Self>, kind: Kind, names: Names, id: String) -> Arc<Owner> {
        let mut owner = Owner::new(kind, names, id);
        owner.owners = Some(self.clone());
        Arc::new(owner)
    }

    fn number(&self, id: &str) -> Option<u64> {
        let (uuid, number) = id.rsplit_once(':')?;
        let mut text = uuid::Uuid::encode_buffer();
        (*uuid == *self.uuid.as_hyphenated().encode_lower(&mut text))
            .then(|| number.parse().ok())?
    }
}

impl Registered {
    fn insert(&mut self, number: u64, owner: &Arc<Owner>) {
        if self.owners.len() >= self.sweep_at {
            self.owners.retain(|_, owner| owner.strong_count() > 0);
            self.sweep_at = SWEEP_FROM.max(2 * self.owners.len());
        }
        self.owners.insert(number, Arc::downgrade(owner));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(owners) = &self.owners
            && self.holds.get_mut().registered
            && let Some(number) = owners.number(&self.id)
            // A registry in use is swept later. In a forked child it may be in use forever.
            && let Some(mut registered) = owners.registered.try_lock()
        {
            registered.owners.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::lease::{Lease, Validity, valid_until};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn owner(owners: &Arc<Owners>) -> Arc<Owner> {
        let owner = owners.new_owner(Kind::Reentrant, Names::new("", "lock"));
        owners.register(&owner);
        owner
    }

    fn is_idle(owners: &Arc<Owners>, id: &str) -> bool {
        owners.claim_idle(id, Kind::Reentrant, &Names::new("", "lock")).is_some()
    }

    #[test]
    fn w26_only_an_owner_of_this_client_with_no_hold_and_no_pending_release_is_idle() {
        let (owners, now) = (Arc::new(Owners::default()), clock::now());
        let owner = owner(&owners);
        let foreign =
            Arc::new(Owners::default()).new_owner(Kind::Reentrant, Names::new("", "lock"));
        assert!(!is_idle(&owners, "somebody:1") && !is_idle(&owners, &foreign.id));

        let permit = owner.try_permit();
        assert!(!is_idle(&owners, &owner.id), "a request of it is under way");
        drop(permit);
        let ask = owner.holds.lock().ask(now);
        assert!(!is_idle(&owners, &owner.id), "a request may have been executed");
        let validity = Arc::new(Validity::new(valid_until(now, SECOND)));
        let hold = owner.holds.lock().granted(ask, Lease::Watchdog, validity, now);
        assert!(!is_idle(&owners, &owner.id), "it holds the lock");
        owner.holds.lock().give_back(hold);
        assert!(!is_idle(&owners, &owner.id), "its release is pending");
        let pending = owner.holds.lock().pending(now, SECOND).expect("a release");
        owner.holds.lock().release_confirmed(pending);

        let (found, _permit) =
            owners.claim_idle(&owner.id, owner.kind, &owner.names).expect("an idle owner");
        assert!(Arc::ptr_eq(&found, &owner));
        assert_eq!(owner.holds.lock().pending(now, SECOND).map(|pending| pending.count), Some(0));
        assert!(!is_idle(&owners, &owner.id), "somebody sees to it already");
    }

    #[test]
    fn w26_an_owner_counts_as_registered_only_when_others_find_it() {
        let owners = Arc::new(Owners::default());
        let owner = owners.new_owner(Kind::Reentrant, Names::new("", "lock"));
        let in_use = owners.registered.lock();
        let late = std::thread::spawn({
            let (owners, owner) = (owners.clone(), owner.clone());
            move || owners.register(&owner)
        });
        // Whether it waits by now or has yet to begin: it must not seem to be done.
        for _ in 0..50 {
            assert!(!owner.holds.lock().registered);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(in_use);
        late.join().expect("no panic");
        assert!(owner.holds.lock().registered);
    }

    #[test]
    fn w26_an_owner_that_has_ended_is_idle_and_entries_of_such_do_not_pile_up() {
        let owners = Arc::new(Owners::default());
        let kept = owner(&owners);
        let ended = owner(&owners).id.to_string();
        assert!(is_idle(&owners, &ended));
        assert_eq!(owners.registered.lock().owners.len(), 1);
        for _ in 0..10 * SWEEP_FROM {
            // Dropped while the registry is in use.
            let ended = owner(&owners);
            let _registered = owners.registered.lock();
            drop(ended);
        }
        assert!(owners.registered.lock().owners.len() <= SWEEP_FROM);
        kept.holds.lock().ask(clock::now());
        assert!(!is_idle(&owners, &kept.id), "swept out although it is there");
    }
}
