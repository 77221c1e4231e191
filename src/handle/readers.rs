//! The handles that all readers of a client share, one for each read-write lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::kind::Kind;
use crate::possession::Possessions;
use crate::protocol::Names;
use crate::sweep::Sweep;

use super::Handle;

/// How many handles for readers a client has for one name. The readers of a fenced lock know the token of its last
/// writer: they have a handle of their own.
const KINDS: usize = 2;

#[derive(Default)]
pub(crate) struct Readers([Mutex<State>; KINDS]);

#[derive(Default)]
struct State {
    by_key: BTreeMap<Box<str>, Weak<Handle>>,
    sweep: Sweep,
}

impl Readers {
    /// The handle of that kind of all that read that lock. It lives as long as one of them, or a guard or call of it.
    pub(crate) fn of(
        &self,
        kind: Kind,
        names: &Arc<Names>,
        possessions: &Possessions,
    ) -> Arc<Handle> {
        let mut state = self.0[usize::from(kind.reads_token())].lock();
        if let Some(handle) = state.by_key.get(names.key()).and_then(Weak::upgrade) {
            return handle;
        }
        if state.sweep.is_due(state.by_key.len()) {
            state.by_key.retain(|_, handle| handle.strong_count() > 0);
            let left = state.by_key.len();
            state.sweep.swept(left);
        }
        let handle = Arc::new(Handle::new(kind, names.clone(), possessions));
        state.by_key.insert(names.key().into(), Arc::downgrade(&handle));
        handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::SWEEP_FROM;

    #[test]
    fn readers_of_a_name_share_a_handle_for_as_long_as_one_of_them_has_it() {
        let (readers, possessions) = (Readers::default(), Possessions::default());
        let names = |name: &str| Arc::new(possessions.names(Kind::Read, "", name));
        let of = |name: &str| readers.of(Kind::Read, &names(name), &possessions);
        let one = of("a");
        assert!(Arc::ptr_eq(&one, &of("a")));
        assert_ne!(one.number, of("b").number);
        let fenced = readers.of(Kind::FencedRead, &names("a"), &possessions);
        assert_ne!(one.number, fenced.number, "it knows a token");
        assert!(fenced.kind.is_shared() && fenced.kind.reads_token());
        let number = one.number;
        drop(one);
        assert_ne!(number, of("a").number);
        for number in 0..3 * SWEEP_FROM {
            of(&number.to_string());
        }
        assert!(readers.0[0].lock().by_key.len() <= SWEEP_FROM, "names do not pile up");
    }
}
