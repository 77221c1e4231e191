//! The turns of clients, as one client takes and gives them.

use super::*;

const LIMITS: TurnLimits = TurnLimits { keep: ms(10), yield_time: ms(750) };

/// One lock, as one client has it.
struct Turns {
    turn: Option<Turn>,
    times: TurnTimes,
}

impl Turns {
    fn new() -> Self {
        Self { turn: None, times: TurnTimes::default() }
    }

    fn granted(&mut self, now: Instant) {
        if let Some(turn) = &mut self.turn {
            turn.record_grant(&mut self.times, LIMITS, now);
        }
    }

    fn ends(&mut self, now: Instant) -> Option<Instant> {
        self.turn.as_mut()?.begin_deferral(false, true, &self.times, LIMITS, now)
    }

    /// So many others listen.
    fn freed(&mut self, others: u32, now: Instant) {
        let turn = self.turn.get_or_insert_with(|| Turn::new(&self.times, now));
        turn.record_others(others, now);
    }

    fn message(&mut self, now: Instant) {
        self.turn.as_mut().map(|turn| turn.record_message(LIMITS, now));
    }

    fn deferred_until(&self, now: Instant) -> Option<Instant> {
        self.turn.as_ref()?.deferred_until(now)
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The longest wait of each other client. They take `needs` to come, and `hold` the lock.
fn waits(needs: &[Duration], hold: Duration, rounds: u32) -> Vec<Duration> {
    let (mut turns, mut now) = (Turns::new(), Instant::now());
    let others = needs.len() as u32;
    let mut last = vec![now; needs.len()];
    let mut longest = vec![Duration::ZERO; needs.len()];
    for _ in 0..rounds {
        turns.granted(now);
        now += LIMITS.keep + hold;
        turns.ends(now);
        turns.freed(others, now);
        let mut waiting: Vec<usize> = (0..needs.len()).collect();
        turns.message(now);
        while let Some(until) = turns.deferred_until(now) {
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
            turns.message(now);
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
            let far = *needs.iter().max().expect("a client");
            let bound = 3 * (1 + needs.len() as u32) * (LIMITS.keep + hold + 2 * far);
            for longest in waits(needs, hold, 200) {
                assert!(longest <= bound, "{longest:?} > {bound:?}: {needs:?}, {hold:?}");
            }
        }
    }
}

#[test]
fn who_listens_and_never_comes_costs_a_fifth_of_the_time_at_most() {
    let (mut turns, start) = (Turns::new(), Instant::now());
    let (mut now, mut idle) = (start, Duration::ZERO);
    for _ in 0..2_000 {
        turns.granted(now);
        now += LIMITS.keep;
        if let Some(until) = turns.ends(now) {
            idle += until - now;
            now = until;
        }
        turns.freed(1, now);
    }
    assert!(idle > Duration::ZERO && 5 * idle <= now - start, "{idle:?} of {:?}", now - start);
}

#[test]
fn a_client_that_comes_has_its_turns_beside_one_that_never_does() {
    let (mut turns, mut now) = (Turns::new(), Instant::now());
    let mut turns_of_one = 0;
    for _ in 0..100 {
        turns.granted(now);
        now += LIMITS.keep;
        turns.ends(now);
        turns.freed(2, now);
        turns.message(now);
        if turns.deferred_until(now).is_some_and(|until| now + ms(1) <= until) {
            now += ms(1);
            turns_of_one += 1;
            turns.message(now);
            now = turns.deferred_until(now).unwrap_or(now);
        }
    }
    assert!(turns_of_one >= 95, "{turns_of_one}");
}

#[test]
fn a_request_that_waited_for_a_connection_is_no_measure_of_the_distance() {
    let (mut turns, now) = (Turns::new(), Instant::now());
    (0..50).for_each(|_| turns.times.record_answer(ms(10)));
    turns.times.record_answer(ms(5_000));
    turns.freed(1, now);
    let freed = now + LIMITS.keep;
    let until = turns.ends(freed).expect("another client listens");
    assert!(until - freed <= ms(60), "{:?}", until - freed);
}
