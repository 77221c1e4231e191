//! H12: what a call says of itself is true.

use crate::check::Violation;
use crate::check::exclusion::who;
use crate::history::History;
use crate::record::Outcome;

/// A release of a hold that had been lost before says so.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for hold in history.grants() {
        let (Some(loss), Some(release)) = (hold.loss, hold.release) else { continue };
        if loss.t < release.inv && release.outcome == Outcome::Done {
            let what = format!(
                "name {}: {} released what it had lost, and heard nothing",
                hold.key,
                who(hold)
            );
            found.push(Violation::new("H12", what, (loss.t, release.ret)).of(&[hold]));
        }
    }
    found
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{held, history};

    pub(crate) fn a_release_of_a_lost_hold_says_so() {
        let lost = || held(0, 10).lost_at(500).until(600, 601);
        assert_eq!(check(&history(vec![lost()]))[0].rule, "H12");
        let mut told = lost();
        told.release.as_mut().expect("a release").outcome = Outcome::Lost;
        assert_eq!(check(&history(vec![told])), []);
    }
}
