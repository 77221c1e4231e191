//! What is registered, and what of that is idle.

use super::*;
use crate::clock;
use crate::lease::Lease;
use crate::sweep::SWEEP_FROM;
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
    possessions.claim_idle(id, &names(), None).is_some()
}

/// One that was granted the lock and has released it, as Redis confirmed.
fn released(possessions: &Arc<Possessions>) -> Arc<Possession> {
    let (possession, now) = (begin(possessions), clock::now());
    let mut holds = possession.holds.lock();
    let ask = holds.ask_first(1);
    let (hold, ..) = holds.record_grant(ask, SECOND.into(), SECOND, TokenBlock::default(), now);
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
    assert!(!is_idle(&possessions, "somebody:1") && !is_idle(&possessions, &foreign.id()));

    let permit = possession.try_permit();
    assert!(!is_idle(&possessions, &possession.id()), "a request of it is under way");
    drop(permit);
    let ask = possession.holds.lock().ask_first(1);
    assert!(!is_idle(&possessions, &possession.id()), "a request may have been executed");
    let (hold, ..) = possession.holds.lock().record_grant(
        ask,
        Lease::Watchdog,
        SECOND,
        TokenBlock::default(),
        now,
    );
    assert!(!is_idle(&possessions, &possession.id()), "it holds the lock");
    possession.holds.lock().give_back(hold);
    assert!(!is_idle(&possessions, &possession.id()), "its release is pending");
    let pending = possession.holds.lock().pending(now, SECOND).expect("a release");
    possession.holds.lock().release_sent(pending, now);
    possession.holds.lock().release_confirmed(pending);

    let (found, _permit) = possessions
        .claim_idle(&possession.id(), &possession.names, None)
        .expect("an idle possession");
    assert!(Arc::ptr_eq(&found, &possession));
    // Redis may have named it before its release came.
    assert!(possession.holds.lock().hands_off_until(now).is_none());
    let pending = possession.holds.lock().pending(now, SECOND);
    assert_eq!(pending.map(|pending| pending.count), Some(0));
    assert!(!is_idle(&possessions, &possession.id()), "a release is under way already");
}

#[test]
fn w26_a_possession_that_has_ended_is_claimed_by_one_caller_until_it_is_released_again() {
    let possessions = Arc::new(Possessions::default());
    let id = released(&possessions).id();
    let claimed = possessions.claim_idle(&id, &names(), None).expect("it is idle");
    assert_eq!(&*claimed.0.id(), &*id);
    assert!(!is_idle(&possessions, &id), "a release of it is under way");
    drop(claimed);
    assert!(is_idle(&possessions, &id));
}

#[test]
fn w26_one_that_redis_has_made_is_idle_if_it_was_heard_of_and_has_ended() {
    let possessions = Arc::new(Possessions::default());
    let id = |at: u64| format!("{}:-{at}", possessions.id());
    let claims = |at, missed| possessions.claim_idle(&id(at), &names(), missed).is_some();
    assert!(!claims(7, None) && !claims(7, Some(6)), "its message may have yet to come");
    assert!(claims(7, Some(7)) && claims(6, Some(7)));
    let granted =
        possessions.register_grant(Arc::new(Names::new("", "other")), &id(5)).expect("a grant");
    assert!(!claims(5, Some(7)), "that is another lock");
    let same = possessions.register_grant(names(), &id(5)).expect("a grant, by another server");
    drop(granted);
    assert!(!claims(5, Some(7)), "this client has it, under another number");
    drop(same);
    let granted = possessions.register_grant(names(), &id(5)).expect("a grant");
    granted.holds.lock().granted_by_message(SECOND, clock::now() + SECOND, TokenBlock::default());
    assert!(!claims(5, Some(7)), "this client has it");
}

#[test]
fn w26_a_possession_is_found_from_before_its_first_request() {
    let possessions = Arc::new(Possessions::default());
    let possession = begin(&possessions);
    let (found, _permit) =
        possessions.claim_idle(&possession.id(), &names(), None).expect("it is idle");
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
        assert!(ids.insert(begin(&possessions).id().to_string()));
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
            holds.record_grant(ask, SECOND.into(), SECOND, TokenBlock::default(), clock::now());
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
        assert_eq!(is_idle(&possessions, &possession.id()), until <= clock::now());
        possession.id()
    };
    assert!(!is_idle(&possessions, &retained(clock::now() + 100 * SECOND)));
    assert!(is_idle(&possessions, &retained(clock::now())));
    // So it is where the possession ends while another task uses the registry.
    let possession = begin(&possessions);
    let id = possession.id();
    possession.stays_until(clock::now() + 100 * SECOND);
    let registered = possessions.registered.lock();
    drop(possession);
    drop(registered);
    assert!(!is_idle(&possessions, &id));
    // A server that has missed that hears it again, whatever was released of that name since.
    let (again, _) = possessions.claim_idle(&id, &names(), Some(0)).expect("it is idle");
    assert!(again.holds.lock().retention(clock::now()).is_some_and(|left| left > 90 * SECOND));
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
    let ended = begin(&possessions).id().to_string();
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
    assert!(!is_idle(&possessions, &kept.id()), "swept out although it is there");
}
