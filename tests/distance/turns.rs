//! Everybody's turn: rows W4, W5 and W6, between clients at any distance from Redis.
//!
//! A client's *turn* is a row of holds with none of another client among them. What is bounded is
//! how long a client that always waits goes without a turn.
//!
//! The whole table of distances, holds and clients, which takes about four minutes:
//!
//! ```sh
//! cargo test --release --test distance -- --ignored --nocapture the_whole_table
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::LockClient;

use crate::support::{Distance, Network, Server, channel, ms};

const NAME: &str = "turns";

/// How long a client may keep the lock while others wait: the default of `hand_over_time`.
const RUN: Duration = ms(10);

/// One client, or somebody else who wants the lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Player {
    /// A client that far away, with so many tasks.
    Ours { distance: Distance, tasks: usize, hand_overs: u32 },
    /// A listener of another make beside the server, which needs so long to come.
    Foreign { comes_after: Duration },
}

impl Player {
    pub(crate) fn ours(round_trip: Duration, tasks: usize) -> Self {
        let distance = Distance::round_trip(round_trip);
        Self::Ours { distance, tasks, hand_overs: 100 }
    }

    fn without_hand_overs(self) -> Self {
        match self {
            Self::Ours { distance, tasks, .. } => Self::Ours { distance, tasks, hand_overs: 0 },
            foreign => foreign,
        }
    }

    fn reach(&self) -> Duration {
        match self {
            Self::Ours { distance, .. } => 2 * (distance.each_way + distance.jitter),
            Self::Foreign { comes_after } => *comes_after,
        }
    }
}

/// One hold: whose, and from when to when.
#[derive(Debug, Clone, Copy)]
struct Hold {
    player: usize,
    from: Instant,
    to: Instant,
}

/// What a client got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) turns: usize,
    pub(crate) holds: usize,
    /// The longest time without a turn.
    pub(crate) longest_wait: Duration,
}

pub(crate) struct Played {
    pub(crate) shares: Vec<Share>,
    /// How much later than it should a thread of this machine woke up, at the worst.
    pub(crate) late: Duration,
    /// For which part of the time somebody had the lock.
    pub(crate) in_use: f64,
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Share { turns, holds, longest_wait } in &self.shares {
            let wait = longest_wait.as_secs_f64() * 1e3;
            write!(f, "{turns:4} turns {holds:5} holds {wait:6.0} ms | ")?;
        }
        write!(f, "in use {:.2}", self.in_use)
    }
}

/// All `players` want the lock, for so long, again and again.
pub(crate) fn play(players: &[Player], hold: Duration, time: Duration) -> Played {
    play_and(players, hold, time, |_| ())
}

/// The same; `meanwhile` may change the networks.
fn play_and(
    players: &[Player],
    hold: Duration,
    time: Duration,
    meanwhile: impl FnOnce(&[Option<Arc<Network>>]),
) -> Played {
    let server = Server::start();
    let holds: Arc<Mutex<Vec<Hold>>> = Arc::default();
    let over = Arc::new(AtomicBool::new(false));
    let mut networks = Vec::new();
    let mut threads = Vec::new();
    let (ready, all_ready) = std::sync::mpsc::channel();
    let start = Arc::new(std::sync::Barrier::new(players.len() + 1));
    for (number, player) in players.iter().enumerate() {
        let (holds, over, start) = (holds.clone(), over.clone(), start.clone());
        let ready = ready.clone();
        match *player {
            Player::Ours { distance, tasks, hand_overs } => {
                let network = Arc::new(Network::new(&server, distance));
                let url = network.url(&server);
                networks.push(Some(network));
                threads.push(thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_multi_thread()
                        .worker_threads(1)
                        .enable_all()
                        .build()
                        .expect("a runtime");
                    let builder = LockClient::builder().url(url).hand_overs(hand_overs);
                    let client = runtime.block_on(builder.connect()).expect("connecting");
                    ready.send(()).expect("the test waits");
                    start.wait();
                    let tasks: Vec<_> = (0..tasks)
                        .map(|_| {
                            let (client, holds, over) =
                                (client.clone(), holds.clone(), over.clone());
                            runtime.spawn(async move {
                                let lock = client.lock(NAME);
                                while !over.load(Ordering::Relaxed) {
                                    let guard = lock.lock().await.expect("the lock");
                                    let from = Instant::now();
                                    tokio::time::sleep(hold).await;
                                    let to = Instant::now();
                                    holds.lock().unwrap().push(Hold { player: number, from, to });
                                    guard.unlock().await.expect("nothing lost it");
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        runtime.block_on(task).expect("no panic");
                    }
                    runtime.block_on(client.close());
                }));
            }
            Player::Foreign { comes_after } => {
                networks.push(None);
                let mut foreign = Foreign::new(&server, comes_after);
                threads.push(thread::spawn(move || {
                    ready.send(()).expect("the test waits");
                    start.wait();
                    while !over.load(Ordering::Relaxed) {
                        if !foreign.acquire(&over) {
                            return;
                        }
                        let from = Instant::now();
                        thread::sleep(hold);
                        let to = Instant::now();
                        holds.lock().unwrap().push(Hold { player: number, from, to });
                        foreign.release();
                    }
                }));
            }
        }
    }
    for _ in players {
        all_ready.recv().expect("a player that is ready");
    }
    start.wait();
    let begun = Instant::now();
    let lateness = {
        let over = over.clone();
        thread::spawn(move || {
            let mut late = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let due = Instant::now() + ms(1);
                thread::sleep(ms(1));
                late = late.max(due.elapsed());
            }
            late
        })
    };
    meanwhile(&networks);
    thread::sleep(time.saturating_sub(begun.elapsed()));
    over.store(true, Ordering::SeqCst);
    let ended = Instant::now();
    for thread in threads {
        thread.join().expect("a player that did not panic");
    }
    let late = lateness.join().expect("a thread that did not panic");
    let holds = holds.lock().unwrap();
    let (shares, in_use) = evaluate(players.len(), holds.clone(), begun, ended);
    Played { shares, late, in_use }
}

fn evaluate(
    players: usize,
    mut holds: Vec<Hold>,
    begun: Instant,
    ended: Instant,
) -> (Vec<Share>, f64) {
    holds.sort_by_key(|hold| hold.from);
    for pair in holds.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two hold the lock");
    }
    holds.retain(|hold| hold.from < ended);
    let mut shares = vec![Share::default(); players];
    let mut last_end = vec![begun; players];
    let mut last = None;
    let mut used = Duration::ZERO;
    for hold in &holds {
        let share = &mut shares[hold.player];
        if last != Some(hold.player) {
            share.turns += 1;
            share.longest_wait = share.longest_wait.max(hold.from - last_end[hold.player]);
        }
        share.holds += 1;
        last = Some(hold.player);
        last_end[hold.player] = hold.to;
        used += hold.to.min(ended) - hold.from;
    }
    for (share, end) in shares.iter_mut().zip(last_end) {
        share.longest_wait = share.longest_wait.max(ended.saturating_duration_since(end));
    }
    (shares, used.as_secs_f64() / (ended - begun).as_secs_f64())
}

/// Somebody who takes the lock as Redisson does: tries, listens, tries, and waits for a message.
struct Foreign {
    commands: redis::Connection,
    messages: redis::Connection,
    comes_after: Duration,
}

impl Foreign {
    fn new(server: &Server, comes_after: Duration) -> Self {
        let [commands, messages] = [(); 2].map(|()| server.connection().expect("a connection"));
        messages.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        Self { commands, messages, comes_after }
    }

    /// False if it was over first.
    fn acquire(&mut self, over: &AtomicBool) -> bool {
        // It takes as long for whatever it does.
        thread::sleep(self.comes_after);
        if tries(&mut self.commands) {
            return true;
        }
        let mut messages = self.messages.as_pubsub();
        messages.subscribe(channel(NAME)).expect("a subscription");
        loop {
            if tries(&mut self.commands) {
                messages.unsubscribe(channel(NAME)).expect("no subscription");
                return true;
            }
            if over.load(Ordering::Relaxed) {
                return false;
            }
            if messages.get_message().is_ok() {
                thread::sleep(self.comes_after);
            }
        }
    }

    fn release(&mut self) {
        let script = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[1], '0')";
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(NAME).arg(channel(NAME));
        command.exec(&mut self.commands).expect("an answer");
    }
}

fn tries(commands: &mut redis::Connection) -> bool {
    let script = "if redis.call('EXISTS', KEYS[1]) == 0 then \
                    redis.call('HSET', KEYS[1], ARGV[1], 1) \
                    redis.call('PEXPIRE', KEYS[1], 30000) return 1 end return 0";
    redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg(NAME)
        .arg("foreign:1")
        .query(commands)
        .expect("an answer")
}

const DISTANCES: [Duration; 4] = [Duration::from_micros(500), ms(2), ms(6), ms(20)];
const HOLDS: [Duration; 4] = [ms(1), ms(5), ms(10), ms(20)];

/// What W4 allows a client to go without a turn, on a machine whose threads wake up so late.
fn longest(players: &[Player], hold: Duration, late: Duration) -> Duration {
    let far = players.iter().map(Player::reach).max().expect("players");
    3 * players.len() as u32 * (RUN + hold + 2 * far + late)
}

/// One at a time: what is measured here is time.
static ALONE: Mutex<()> = Mutex::new(());

/// Checks the three things that W4 says.
fn everybody_has_turns(players: &[Player], hold: Duration) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let played = play(players, hold, ms(2_500));
    println!("{players:?}, {hold:?} held: {played}, late by {:?}", played.late);
    check(&played, players, hold);
    let none: Vec<Player> = players.iter().map(|player| player.without_hand_overs()).collect();
    let without = play(&none, hold, ms(1_500));
    // 0.8 in the whole table. Here both have to share the machine with other tests.
    assert!(played.in_use >= 0.5 * without.in_use, "{played}; without hand-offs {without}");
}

fn check(played: &Played, players: &[Player], hold: Duration) {
    let bound = longest(players, hold, played.late);
    for share in &played.shares {
        assert!(share.longest_wait <= bound, "longer than {bound:?}: {played}");
    }
    let turns = || played.shares.iter().map(|share| share.turns);
    let (least, most) = (turns().min().expect("players"), turns().max().expect("players"));
    assert!(most <= 3 * least, "{played}");
}

#[test]
fn w4_a_client_with_one_task_has_its_turns_beside_one_with_many() {
    everybody_has_turns(&[Player::ours(ms(2), 8), Player::ours(ms(2), 1)], ms(10));
}

#[test]
fn w4_a_client_that_is_far_away_has_its_turns() {
    everybody_has_turns(&[Player::ours(ms(0), 8), Player::ours(ms(6), 1)], ms(5));
}

#[test]
fn w4_two_clients_with_one_task_each_take_turns_at_any_distance() {
    everybody_has_turns(&[Player::ours(ms(0), 1), Player::ours(ms(20), 1)], ms(10));
}

#[test]
fn w4_three_clients_at_different_distances_have_their_turns() {
    let three = [Player::ours(ms(0), 8), Player::ours(ms(6), 4), Player::ours(ms(12), 1)];
    everybody_has_turns(&three, ms(5));
}

#[test]
fn w5_a_listener_that_takes_long_to_come_has_its_turns() {
    for comes_after in [ms(4), ms(20)] {
        let comes = Player::Foreign { comes_after };
        everybody_has_turns(&[Player::ours(ms(0), 8), comes], ms(5));
    }
}

#[test]
fn w6_turns_are_shared_over_a_network_that_changes_jitters_and_is_narrow() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let players = [Player::ours(ms(1), 4), Player::ours(ms(1), 1)];
    let hold = ms(5);
    let worst = Distance { each_way: ms(25), jitter: ms(10), bandwidth: Some(125_000) };
    let played = play_and(&players, hold, ms(4_000), |networks| {
        thread::sleep(ms(1_000));
        for network in networks.iter().flatten() {
            network.set(worst);
        }
    });
    println!("1 ms, then {worst:?}: {played}");
    let far = Player::Ours { distance: worst, tasks: 1, hand_overs: 100 };
    check(&played, &[far, far], hold);
    assert!(played.shares.iter().all(|share| share.turns >= 15), "{played}");
}

fn row(what: &str, players: &[Player], hold: Duration, time: Duration) -> Played {
    let played = play(players, hold, time);
    let bound = longest(players, hold, Duration::ZERO);
    println!("{what:28} hold {hold:5.1?} bound {bound:6.1?}: {played}");
    played
}

#[test]
#[ignore = "takes minutes"]
fn the_whole_table() {
    let time = Duration::from_secs(3);
    for hold in HOLDS {
        for distance in DISTANCES {
            let both = [Player::ours(distance, 8), Player::ours(distance, 1)];
            row(&format!("8 and 1, {distance:?}"), &both, hold, time);
            let none = both.map(Player::without_hand_overs);
            row("  without hand-overs", &none, hold, time);
            let far = [Player::ours(ms(0), 8), Player::ours(distance, 1)];
            row(&format!("8 at 0, 1 at {distance:?}"), &far, hold, time);
            let alone = [Player::ours(ms(0), 1), Player::ours(distance, 1)];
            row(&format!("1 at 0, 1 at {distance:?}"), &alone, hold, time);
            let three =
                [Player::ours(ms(0), 8), Player::ours(distance, 4), Player::ours(2 * distance, 1)];
            row(&format!("8 at 0, 4, 1 at twice {distance:?}"), &three, hold, time);
        }
    }
    for comes_after in [ms(1), ms(4), ms(8), ms(20)] {
        let foreign = [Player::ours(ms(0), 8), Player::Foreign { comes_after }];
        row(&format!("8, foreign after {comes_after:?}"), &foreign, ms(5), time);
    }
}
