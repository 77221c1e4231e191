//! Row W6: a network that changes while locks are held, renewed and waited for.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::{LockClient, LockGuard};

use super::players::{Field, Played, Player, Wait, bound, play_and, undisturbed};
use crate::support::{Distance, Network, SOON, Server, hold, ms, release, soon};

/// A round trip of 0.1 ms, and jitter of ten times that.
const NEAR: Distance = Distance { each_way: Duration::from_micros(50), jitter: ms(1), ..NONE };
/// A round trip of 50 ms, and some jitter.
const FAR: Distance = Distance { each_way: ms(25), jitter: ms(10), ..NONE };
const NONE: Distance = Distance { each_way: ms(0), jitter: ms(0), bandwidth: None };

/// How far away the two clients are, one change after the other.
const CHANGES: [[Distance; 2]; 5] =
    [[NEAR, NEAR], [NEAR, FAR], [FAR, FAR], [FAR, NEAR], [NEAR, NEAR]];

/// Many more than six round trips, so that a busy machine does not count as a far one.
const WATCHDOG_TIMEOUT: Duration = ms(1_500);

/// How many locks are held on the way of each client.
const HELD: usize = 2;

/// What has to happen before the next change: so many renewals of each lock that is held, and so
/// many turns of each client that waits.
const RENEWALS: u32 = 2;
const TURNS: usize = 4;

/// A lock that is held all the time.
struct Held {
    guard: LockGuard,
    name: String,
    pttl: i64,
    /// How often the server was seen to raise its TTL.
    renewals: u32,
}

impl Held {
    fn look(&mut self, server: &Server) -> Result<(), String> {
        let before = std::mem::replace(&mut self.pttl, server.pttl(&self.name));
        self.renewals += u32::from(before < self.pttl);
        if self.guard.is_lost() { Err(format!("{} was lost", self.name)) } else { Ok(()) }
    }
}

/// A client on that network that keeps some locks.
async fn held_on(network: &Network, number: usize, server: &Server) -> (LockClient, Vec<Held>) {
    let options = LockClient::builder().url(network.url(server));
    let connecting = options.watchdog_timeout(WATCHDOG_TIMEOUT).connect();
    let client = soon("connecting", connecting).await.expect("connecting");
    let names = (0..HELD).map(|lock| format!("held {number}.{lock}"));
    let holds = names.map(async |name| {
        let guard = hold(&client.lock(&name)).await;
        Held { guard, pttl: server.pttl(&name), name, renewals: 0 }
    });
    let held = join_all(holds).await;
    (client, held)
}

/// From when on the clients have been so far away.
struct Phase {
    from: Instant,
    round_trip: Duration,
}

/// Moves the clients, and waits until every lock has been renewed, and everybody has had turns.
async fn change(
    field: &Field,
    distances: [Distance; 2],
    held: &mut [Held],
) -> Result<Phase, String> {
    for (network, distance) in field.networks.iter().flatten().zip(distances) {
        network.set(distance);
    }
    let from = Instant::now();
    let turns: Vec<usize> = field.turns().iter().map(|turns| turns + TURNS).collect();
    let renewals: Vec<u32> = held.iter().map(|held| held.renewals + RENEWALS).collect();
    loop {
        held.iter_mut().try_for_each(|held| held.look(&field.server))?;
        let (had, renewed) = (field.turns(), || held.iter().map(|held| held.renewals));
        let all_renewed = renewed().zip(&renewals).all(|(renewed, due)| renewed >= *due);
        if all_renewed && had.iter().zip(&turns).all(|(had, due)| had >= due) {
            break;
        }
        if from.elapsed() > SOON {
            let renewed: Vec<u32> = renewed().collect();
            return Err(format!(
                "not within {SOON:?}: {turns:?} turns and {renewals:?} renewals, \
                 but {had:?} and {renewed:?}, with {distances:?}"
            ));
        }
        tokio::time::sleep(ms(2)).await;
    }
    let round_trip = distances.iter().map(Distance::longest_round_trip).max().expect("two");
    Ok(Phase { from, round_trip })
}

/// Holds locks on all networks of the field while they change.
async fn hold_through_changes(field: &Field) -> Result<Vec<Phase>, String> {
    let networks = field.networks.iter().flatten().enumerate();
    let holders = networks.map(|(number, network)| held_on(network, number, &field.server));
    let (clients, held): (Vec<_>, Vec<_>) = join_all(holders).await.into_iter().unzip();
    let mut held: Vec<Held> = held.into_iter().flatten().collect();
    let mut phases = Vec::new();
    for distances in CHANGES {
        phases.push(change(field, distances, &mut held).await?);
    }
    for held in held {
        release(held.guard).await;
    }
    join_all(clients.iter().map(LockClient::close)).await;
    Ok(phases)
}

/// The longest round trip in force during a wait. What was under way at a change arrives as it
/// would have, so each is in force for a round trip longer.
fn longest_round_trip(phases: &[Phase], wait: &Wait) -> Duration {
    let ends = phases.iter().skip(1).map(|next| Some(next.from)).chain([None]);
    let in_force = phases.iter().zip(ends).filter(|(phase, end)| {
        phase.from <= wait.to && end.is_none_or(|end| wait.from <= end + phase.round_trip)
    });
    let first = phases[0].round_trip;
    in_force.map(|(phase, _)| phase.round_trip).max().unwrap_or(first)
}

/// Whether nobody waited for longer than W4 allows at that distance.
fn check(played: &Played, phases: &[Phase], hold: Duration) -> Result<(), String> {
    for wait in &played.waits {
        let round_trip = longest_round_trip(phases, wait);
        let bound = bound(played.shares.len(), hold, round_trip, played.late);
        let waited = wait.to - wait.from;
        if waited > bound {
            return Err(format!("client {} waited {waited:?}, longer than {bound:?}", wait.player));
        }
    }
    Ok(())
}

#[test]
fn w6_locks_are_held_renewed_and_waited_for_while_the_network_changes_and_jitters() {
    let (players, hold) = ([Player::ours_at(NEAR, 4), Player::ours_at(NEAR, 1)], ms(5));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    undisturbed(|| {
        let (played, phases) = play_and(&players, hold, Duration::ZERO, |field| {
            runtime.block_on(hold_through_changes(field))
        });
        println!("0.1 to 50 ms and back: {played}");
        let checked = phases.and_then(|phases| check(&played, &phases, hold));
        (played, checked)
    });
}
