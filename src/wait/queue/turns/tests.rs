//! The turns between clients, as one client takes and gives them.

use super::*;

const NAME: &str = "name";
const LIMITS: Limits = Limits { run: ms(10), room: ms(750), grace: ms(1_000) };

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The longest wait of each other client. They take `needs` to come, and `hold` the lock.
fn waits(needs: &[Duration], hold: Duration, rounds: u32) -> Vec<Duration> {
    let (mut turns, mut now) = (Turns::default(), Instant::now());
    let others = needs.len() as u32;
    let mut last = vec![now; needs.len()];
    let mut longest = vec![Duration::ZERO; needs.len()];
    for _ in 0..rounds {
        turns.granted(NAME, LIMITS, now);
        now += LIMITS.run + hold;
        turns.ends(NAME, None, true, LIMITS, now);
        turns.freed(NAME, others, now);
        let mut waiting: Vec<usize> = (0..needs.len()).collect();
        turns.message(NAME, LIMITS, now);
        while let Some(until) = turns.deferred_until(NAME, now) {
            let next = waiting.iter().copied().min_by_key(|at| needs[*at]);
            let Some(next) = next.filter(|at| now + needs[*at] <= until) else {
                now = until;
                break;
            };
            waiting.retain(|at| *at != next);
            now += needs[next];
            longest[next] = longest[next].max(now - last[next]);
            now += hold;
            last[next] = now;
            turns.message(NAME, LIMITS, now);
        }
    }
    for (longest, last) in longest.iter_mut().zip(last) {
        *longest = (*longest).max(now - last);
    }
    longest
}

#[test]
fn w4_everybody_has_a_turn_at_whichever_distance() {
    for needs in [&[ms(1)][..], &[ms(20)], &[ms(120)], &[ms(350)], &[ms(1), ms(40)]] {
        for hold in [ms(0), ms(1), ms(20)] {
            let far = *needs.iter().max().expect("somebody");
            let bound = 3 * (1 + needs.len() as u32) * (LIMITS.run + hold + 2 * far);
            for longest in waits(needs, hold, 200) {
                assert!(longest <= bound, "{longest:?} > {bound:?}: {needs:?}, {hold:?}");
            }
        }
    }
}

#[test]
fn who_listens_and_never_comes_costs_a_fifth_of_the_time_at_most() {
    let (mut turns, start) = (Turns::default(), Instant::now());
    let (mut now, mut idle) = (start, Duration::ZERO);
    for _ in 0..2_000 {
        turns.granted(NAME, LIMITS, now);
        now += LIMITS.run;
        if let Some(until) = turns.ends(NAME, None, true, LIMITS, now) {
            idle += until - now;
            now = until;
        }
        turns.freed(NAME, 1, now);
    }
    assert!(idle > Duration::ZERO && 5 * idle <= now - start, "{idle:?} of {:?}", now - start);
}

#[test]
fn a_client_that_comes_has_its_turns_beside_one_that_never_does() {
    let (mut turns, mut now) = (Turns::default(), Instant::now());
    let mut turns_of_one = 0;
    for _ in 0..100 {
        turns.granted(NAME, LIMITS, now);
        now += LIMITS.run;
        turns.ends(NAME, None, true, LIMITS, now);
        turns.freed(NAME, 2, now);
        turns.message(NAME, LIMITS, now);
        if turns.deferred_until(NAME, now).is_some_and(|until| now + ms(1) <= until) {
            now += ms(1);
            turns_of_one += 1;
            turns.message(NAME, LIMITS, now);
            now = turns.deferred_until(NAME, now).unwrap_or(now);
        }
    }
    assert!(turns_of_one >= 95, "{turns_of_one}");
}

#[test]
fn a_lock_for_which_no_other_client_waits_is_never_left() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    assert_eq!(turns.ends(NAME, None, true, LIMITS, now), None);
    assert!(!turns.freed(NAME, 1, now));
    let later = now + LIMITS.run;
    assert!(turns.ends(NAME, None, true, LIMITS, later).is_some());
    assert!(turns.freed(NAME, 0, later), "no other client is left");
    assert_eq!(turns.deferred_until(NAME, later), None);
}

#[test]
fn a_request_that_waited_for_a_connection_is_no_measure_of_the_distance() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    (0..50).for_each(|_| turns.answered(ms(10)));
    turns.answered(ms(5_000));
    turns.freed(NAME, 1, now);
    let freed = now + LIMITS.run;
    let until = turns.ends(NAME, None, true, LIMITS, freed).expect("another client listens");
    assert!(until - freed <= ms(60), "{:?}", until - freed);
}

#[test]
fn locks_of_long_ago_are_forgotten() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    for number in 0..1_000 {
        turns.freed(&number.to_string(), 1, now + number * FORGOTTEN / 10);
    }
    assert!(turns.locks.len() <= 64, "{}", turns.locks.len());
}
