//! Everybody's turn: rows W4, W5 and W6, between clients at any distance from Redis.
//!
//! What is bounded is how long a client that always waits goes without a turn. Time is virtual, so the
//! bounds are those of the protocol, and where the network jitters, several seeds are played.

use std::sync::Mutex;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::prelude::*;

const NAME: &str = "turns";

/// How long a client may keep the lock while others wait: the default of `max_handoff_time`.
const RUN: Duration = ms(10);

/// How long a game is, and one in which the network changes.
const GAME: Duration = ms(in_short(1_250, 2_500));
const LONG_GAME: Duration = Duration::from_secs(5);

const SEEDS: u64 = in_short(3, 10);

/// One client, or somebody else who wants the lock.
#[derive(Debug, Clone, Copy)]
enum Player {
    /// A client that far away, with so many tasks.
    Ours { distance: Distance, tasks: usize, max_handoffs: u32 },
    /// A listener of another make beside the server, which needs so long to come.
    Foreign { comes_after: Duration },
}

impl Player {
    fn ours(away: Duration, tasks: usize) -> Self {
        Self::at(round_trip(away), tasks)
    }

    fn at(distance: Distance, tasks: usize) -> Self {
        Self::Ours { distance, tasks, max_handoffs: 100 }
    }

    fn without_hand_offs(mut self) -> Self {
        if let Self::Ours { max_handoffs, .. } = &mut self {
            *max_handoffs = 0;
        }
        self
    }

    /// The longest round trip.
    fn reach(&self) -> Duration {
        match self {
            Self::Ours { distance, .. } => 2 * (distance.each_way + distance.jitter),
            Self::Foreign { comes_after } => *comes_after,
        }
    }
}

/// What W4 allows a client to go without a turn: so many players, the farthest so far away.
fn bound(players: usize, hold: Duration, far: Duration) -> Duration {
    3 * players as u32 * (RUN + hold + 2 * far)
}

/// One hold: whose, and from when to when.
#[derive(Debug, Clone, Copy)]
struct Hold {
    player: usize,
    from: Instant,
    to: Instant,
}

/// What a player got. A *turn* is a row of holds with none of another player among them.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    turns: usize,
    holds: usize,
    /// The longest time without a turn.
    longest_wait: Duration,
}

#[derive(Debug)]
struct Played {
    shares: Vec<Share>,
    /// For which part of the time somebody had the lock.
    in_use: f64,
}

type Holds = Arc<Mutex<Vec<Hold>>>;

/// All `players` want the lock, for so long, again and again; `meanwhile` may do something to them.
fn game(
    seed: u64,
    players: &[Player],
    hold: Duration,
    time: Duration,
    meanwhile: impl AsyncFnOnce(&Scene, &[Machine]),
) -> Played {
    play(seed, async |scene| {
        let holds = Holds::default();
        let (mut machines, mut clients) = (Vec::new(), Vec::new());
        for player in players {
            let (distance, max_handoffs) = match *player {
                Player::Ours { distance, max_handoffs, .. } => (distance, max_handoffs),
                Player::Foreign { .. } => (Distance::default(), 0),
            };
            let machine = scene.machine(distance);
            let options = LockClient::builder().max_handoffs(max_handoffs);
            clients.push(scene.connect(&machine, options).await);
            machines.push(machine);
        }
        let (begun, mut tasks) = (Instant::now(), Vec::<JoinHandle<()>>::new());
        for (number, player) in players.iter().enumerate() {
            let (machine, end) = (&machines[number], begun + time);
            match *player {
                Player::Ours { tasks: many, .. } => {
                    for _ in 0..many {
                        let (client, holds) = (clients[number].clone(), holds.clone());
                        tasks.push(machine.spawn(take_part(client, number, hold, holds, end)));
                    }
                }
                Player::Foreign { comes_after } => {
                    let foreign = Foreign::new(machine, comes_after).await;
                    let holds = holds.clone();
                    tasks.push(tokio::spawn(foreign.take_part(number, hold, holds, end)));
                }
            }
        }
        meanwhile(scene, &machines).await;
        for task in tasks {
            task.await.expect("a player that did not panic");
        }
        let holds = holds.lock().expect("no panic");
        evaluate(players.len(), &holds, begun, begun + time)
    })
}

async fn take_part(client: LockClient, number: usize, hold: Duration, holds: Holds, end: Instant) {
    let lock = client.lock(NAME);
    while Instant::now() < end {
        let guard = lock.lock().await.expect("the lock");
        let from = Instant::now();
        sleep(hold).await;
        holds.lock().expect("no panic").push(Hold { player: number, from, to: Instant::now() });
        guard.unlock().await.expect("nothing lost it");
    }
}

fn evaluate(players: usize, holds: &[Hold], begun: Instant, ended: Instant) -> Played {
    for pair in holds.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two hold the lock");
    }
    let mut shares = vec![Share::default(); players];
    let mut last_end = vec![begun; players];
    let (mut last, mut used) = (None, Duration::ZERO);
    for &Hold { player, from, to } in holds.iter().filter(|hold| hold.from < ended) {
        let share = &mut shares[player];
        if last != Some(player) {
            share.turns += 1;
            share.longest_wait = share.longest_wait.max(from - last_end[player]);
        }
        share.holds += 1;
        (last, last_end[player]) = (Some(player), to);
        used += to.min(ended) - from;
    }
    for (share, end) in shares.iter_mut().zip(last_end) {
        share.longest_wait = share.longest_wait.max(ended.saturating_duration_since(end));
    }
    Played { shares, in_use: used.as_secs_f64() / (ended - begun).as_secs_f64() }
}

/// How much less the lock may be in use with hand-offs than without: W4.
const IN_USE: f64 = 0.8;

/// Checks the three things that W4 says.
fn everybody_has_turns(players: &[Player], hold: Duration, in_use: f64) {
    let none: Vec<Player> = players.iter().map(|player| player.without_hand_offs()).collect();
    let far = players.iter().map(Player::reach).max().expect("players");
    let played = game(0, players, hold, GAME, async |_, _| ());
    let without = game(0, &none, hold, GAME, async |_, _| ());
    let what = format!("{players:?}, {hold:?}: {played:?}; without hand-offs: {without:?}");
    let bound = bound(players.len(), hold, far);
    for share in &played.shares {
        assert!(share.longest_wait <= bound, "longer than {bound:?}: {what}");
    }
    let turns = || played.shares.iter().map(|share| share.turns);
    let (least, most) = (turns().min().expect("players"), turns().max().expect("players"));
    assert!(most <= 3 * least, "{most} turns to {least}: {what}");
    assert!(played.in_use >= in_use * without.in_use, "{what}");
}

/// At each distance: beside one with many tasks, far from one that is near, one task each, and three.
fn at_any_distance(hold: Duration) {
    for distance in [0, 2, 6, 20].map(ms) {
        let ours = Player::ours;
        everybody_has_turns(&[ours(ms(0), 8), ours(distance, 1)], hold, IN_USE);
        if !distance.is_zero() {
            everybody_has_turns(&[ours(distance, 8), ours(distance, 1)], hold, IN_USE);
        }
        everybody_has_turns(&[ours(ms(0), 1), ours(distance, 1)], hold, IN_USE);
        let three = [ours(ms(0), 8), ours(distance, 4), ours(2 * distance, 1)];
        // The client that is 40 ms away has as many turns as the others (29, 31, 33; without hand-offs
        // 51, 36, 71), and each of its turns leaves the lock idle for 40 holds of 1 ms: 0.669.
        let in_use = if hold == ms(1) && distance == ms(20) { 0.66 } else { IN_USE };
        everybody_has_turns(&three, hold, in_use);
    }
}

#[test]
fn w4_everybody_has_turns_at_any_distance_with_holds_of_1_ms() {
    at_any_distance(ms(1));
}

#[test]
fn w4_everybody_has_turns_at_any_distance_with_holds_of_5_ms() {
    at_any_distance(ms(5));
}

#[test]
fn w4_everybody_has_turns_at_any_distance_with_holds_of_20_ms() {
    at_any_distance(ms(20));
}

#[test]
fn w5_a_listener_that_takes_long_to_come_has_its_turns() {
    for comes_after in [1, 4, 8, 20].map(ms) {
        let players = [Player::ours(ms(0), 8), Player::Foreign { comes_after }];
        everybody_has_turns(&players, ms(5), IN_USE);
    }
}

/// From a round trip of nothing to one of 50 ms and back, one client after the other, with jitter on
/// both and 1 Mbit/s.
#[test]
fn w6_turns_are_shared_over_a_network_that_changes_jitters_and_is_narrow() {
    let near = Distance { each_way: ms(0), jitter: ms(1), bandwidth: None };
    let far = Distance { each_way: ms(25), jitter: ms(10), bandwidth: Some(125_000) };
    let (players, hold) = ([Player::at(near, 4), Player::at(near, 1)], ms(5));
    for seed in 0..SEEDS {
        let played = game(seed, &players, hold, LONG_GAME, async |scene, machines| {
            let changes = [[near, far], [far, far], [far, near], [near, near]];
            for distances in changes {
                sleep(SECOND).await;
                for (machine, distance) in machines.iter().zip(distances) {
                    scene.network.set_distance_of(machine, scene.server, distance);
                }
            }
        });
        let longest = bound(2, hold, Player::at(far, 1).reach());
        for share in &played.shares {
            assert!(share.longest_wait <= longest, "longer than {longest:?}: {played:?}");
            assert!(share.turns >= 15, "seed {seed}: {played:?}");
        }
    }
}

/// The same while locks are held: the watchdog keeps them, whatever the network does.
#[test]
fn w6_locks_are_renewed_over_a_network_that_changes_and_jitters() {
    let far = Distance { each_way: ms(25), jitter: ms(10), bandwidth: Some(125_000) };
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let machine = scene.machine(Distance { jitter: ms(1), ..Distance::default() });
            let options = LockClient::builder().watchdog_timeout(ms(500));
            let client = scene.connect(&machine, options).await;
            let mut guards = Vec::new();
            for number in 0..8 {
                let lock = client.lock(format!("held {number}"));
                guards.push(machine.run(lock.lock()).await.expect("a guard"));
            }
            for change in 0..10 {
                let distance = if change % 2 == 0 { far } else { Distance::default() };
                scene.network.set_distance_of(&machine, scene.server, distance);
                sleep(SECOND).await;
            }
            for guard in guards {
                assert!(!guard.is_lost(), "seed {seed}");
                guard.unlock().await.expect("a release");
            }
        });
    }
}

/// Its client defers to a listener for longer than the call can wait, and no client wants the lock.
#[test]
fn a_try_with_a_short_wait_gets_the_lock_that_others_do_not_take() {
    for listens in [true, false] {
        for wait in [ms(2), ms(4)] {
            play(0, async |scene| {
                let (machine, client) = scene.client(ms(0), LockClient::builder()).await;
                let (near, other) = scene.client(ms(0), LockClient::builder()).await;
                let _listens = Foreign::new(&near, SECOND).await;
                let before = other.lock(NAME).lock().await.expect("the lock");
                let waiter = waiting_for(&machine, client.lock(NAME));
                sleep(ms(100)).await;
                before.unlock().await.expect("a release");
                let mut guard = waiter.await.expect("no panic").0;
                let lock = client.lock(NAME);
                // The listener never comes: from turn to turn it has more time.
                for _ in 0..8 {
                    sleep(2 * RUN).await;
                    guard.unlock().await.expect("a release");
                    guard = lock.lock().await.expect("the lock");
                }
                // Its own subscription outlives a turn for a moment only.
                sleep(if listens { 2 * RUN } else { SECOND }).await;
                assert_eq!(scene.subscribers(NAME), 1 + u64::from(listens));
                guard.unlock().await.expect("a release");
                let tried = lock.try_lock(wait, redlatch::Lease::Watchdog).await;
                let guard = tried.expect("an answer");
                assert!(guard.is_some(), "{wait:?}, {listens}");
            });
        }
    }
}

/// Somebody who takes the lock as Redisson does: tries, listens, tries, and waits for a message.
struct Foreign {
    commands: MultiplexedConnection,
    messages: UnboundedReceiver<redis::PushInfo>,
    comes_after: Duration,
}

impl Foreign {
    async fn new(machine: &Machine, comes_after: Duration) -> Self {
        let (heard, messages) = unbounded_channel();
        let config = redis::AsyncConnectionConfig::new().set_push_sender(heard);
        let settings =
            redis::RedisConnectionInfo::default().set_protocol(redis::ProtocolVersion::RESP3);
        let stream = machine.connect(ADDRESS).await.expect("a connection");
        let made = MultiplexedConnection::new_with_config(&settings, stream, config).await;
        let (mut commands, driver) = made.expect("a connection");
        tokio::spawn(driver);
        commands.subscribe(channel(NAME)).await.expect("a subscription");
        Self { commands, messages, comes_after }
    }

    async fn take_part(mut self, number: usize, hold: Duration, holds: Holds, end: Instant) {
        while Instant::now() < end {
            // It takes as long for whatever it does.
            sleep(self.comes_after).await;
            let mut has_it = self.tries().await;
            if !has_it {
                while self.messages.try_recv().is_ok() {}
                has_it = self.tries().await;
            }
            if has_it {
                self.holds(number, hold, &holds).await;
            } else {
                let _ = timeout(SECOND, self.messages.recv()).await;
            }
        }
    }

    async fn holds(&mut self, number: usize, hold: Duration, holds: &Holds) {
        let from = Instant::now();
        sleep(hold).await;
        holds.lock().expect("no panic").push(Hold { player: number, from, to: Instant::now() });
        let script = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[1], '0')";
        let mut free = redis::cmd("EVAL");
        free.arg(script).arg(1).arg(NAME).arg(channel(NAME));
        free.exec_async(&mut self.commands).await.expect("an answer");
    }

    async fn tries(&mut self) -> bool {
        let script = "if redis.call('EXISTS', KEYS[1]) == 0 then \
                        redis.call('HSET', KEYS[1], ARGV[1], 1) \
                        redis.call('PEXPIRE', KEYS[1], 30000) return 1 end return 0";
        let mut take = redis::cmd("EVAL");
        take.arg(script).arg(1).arg(NAME).arg("foreign:1");
        take.query_async(&mut self.commands).await.expect("an answer")
    }
}
