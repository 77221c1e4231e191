//! With the feature `metrics`: the groups into which a user's function puts the names, of which there are few.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::series::Group;
use crate::host::HashMap;

/// The most groups that a client has. One more is for all other names.
const MAX_GROUPS: usize = 32;

/// The group of a name that has no place in another.
const OTHER: &str = "other";

type Function = dyn Fn(&str) -> Cow<'static, str> + Send + Sync;

/// What the user's function makes of names.
#[derive(Clone, Default)]
pub(crate) struct Grouping(Option<Arc<Function>>);

/// The groups of one client.
pub(super) struct Groups {
    of: Arc<Function>,
    known: Mutex<HashMap<Cow<'static, str>, Arc<Group>>>,
    has_warned: AtomicBool,
}

impl Grouping {
    pub(crate) fn new(of: impl Fn(&str) -> Cow<'static, str> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    pub(super) fn groups(&self) -> Option<Groups> {
        let of = self.0.clone()?;
        Some(Groups { of, known: Mutex::default(), has_warned: AtomicBool::new(false) })
    }
}

impl fmt::Debug for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grouping").field(&self.0.is_some()).finish()
    }
}

impl Groups {
    /// The group of a name, and what is wrong with the user's function. That runs under no mutex, and a panic of it
    /// ends here.
    pub(super) fn of(
        &self,
        name: &str,
        make: impl FnOnce(&str) -> Group,
    ) -> (Arc<Group>, Option<&'static str>) {
        let mut trouble = None;
        let group = catch_unwind(AssertUnwindSafe(|| (self.of)(name))).unwrap_or_else(|_| {
            trouble = Some("the function of metrics_group panicked");
            Cow::Borrowed(OTHER)
        });
        let mut known = self.known.lock();
        if let Some(group) = known.get(&group) {
            return (group.clone(), self.first(trouble));
        }
        let others = usize::from(known.contains_key(OTHER));
        let is_full = known.len() - others >= MAX_GROUPS && group != OTHER;
        let group = if is_full { Cow::Borrowed(OTHER) } else { group };
        let of_name = known.entry(group).or_insert_with_key(|group| make(group).into()).clone();
        if is_full {
            trouble = Some("the function of metrics_group makes too many groups");
        }
        (of_name, self.first(trouble))
    }

    /// The first trouble is worth a warning.
    fn first(&self, trouble: Option<&'static str>) -> Option<&'static str> {
        trouble.filter(|_| !self.has_warned.swap(true, Ordering::Relaxed))
    }
}
