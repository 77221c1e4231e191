//! Clients and others who want one lock again and again, and what each of them got.
//!
//! A player's *turn* is a row of holds with none of another player among them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redlatch::LockClient;
use tokio::runtime::Runtime;

use crate::support::{Distance, Network, Server, channel, machine, ms};

const NAME: &str = "turns";

/// How long a client may keep the lock while others wait: the default of `max_handoff_time`.
const RUN: Duration = ms(10);

/// One client, or somebody else who wants the lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Player {
    /// A client that far away, with so many tasks.
    Ours { distance: Distance, tasks: usize, max_handoffs: u32, fair: bool },
    /// A listener of another make beside the server, which needs so long to come.
    Foreign { comes_after: Duration },
}

impl Player {
    pub(crate) fn ours(round_trip: Duration, tasks: usize) -> Self {
        Self::ours_at(Distance::round_trip(round_trip), tasks)
    }

    pub(crate) fn ours_at(distance: Distance, tasks: usize) -> Self {
        Self::Ours { distance, tasks, max_handoffs: 100, fair: false }
    }

    pub(crate) fn without_hand_offs(mut self) -> Self {
        if let Self::Ours { max_handoffs, .. } = &mut self {
            *max_handoffs = 0;
        }
        self
    }

    /// With the fair lock of that name.
    pub(crate) fn fair(mut self) -> Self {
        if let Self::Ours { fair, .. } = &mut self {
            *fair = true;
        }
        self
    }

    fn reach(&self) -> Duration {
        match self {
            Self::Ours { distance, .. } => distance.longest_round_trip(),
            Self::Foreign { comes_after } => *comes_after,
        }
    }
}

/// What W4 allows a client to go without a turn, on a machine whose threads wake up so late.
pub(crate) fn longest(players: &[Player], hold: Duration, late: Duration) -> Duration {
    let far = players.iter().map(Player::reach).max().expect("players");
    bound(players.len(), hold, far, late)
}

/// The same for so many players, the farthest of whom is so far away.
pub(crate) fn bound(players: usize, hold: Duration, far: Duration, late: Duration) -> Duration {
    3 * players as u32 * (RUN + hold + 2 * far + late)
}

/// So late a thread of this machine may wake up before it says nothing that a game went wrong: twice
/// the time for which a client keeps the lock.
const LATE: Duration = ms(20);

/// So often they play again on a machine that was late.
const TRIES: usize = 8;

/// Plays until it is right, or is wrong although the machine was not late. One at a time: what is
/// measured here is time.
pub(crate) fn undisturbed(mut game: impl FnMut() -> (Played, Result<(), String>)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _quiet = machine::quiet();
    for _ in 0..TRIES {
        let (played, result) = game();
        let Err(wrong) = result else { return };
        assert!(played.late > LATE, "{wrong}: {played}");
        println!("{wrong}: {played}; again");
    }
    panic!("the machine is too busy for this test, in each of {TRIES} tries");
}

/// One hold: whose, and from when to when.
#[derive(Debug, Clone, Copy)]
struct Hold {
    player: usize,
    from: Instant,
    to: Instant,
}

/// From a player's hold to its next turn, or to the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) player: usize,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// What a player got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) turns: usize,
    pub(crate) holds: usize,
    /// The longest time without a turn.
    pub(crate) longest_wait: Duration,
}

pub(crate) struct Played {
    pub(crate) shares: Vec<Share>,
    pub(crate) waits: Vec<Wait>,
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
        write!(f, "in use {:.2}, late by {:?}", self.in_use, self.late)
    }
}

/// Where they play. Dropping it ends the game.
pub(crate) struct Field {
    pub(crate) server: Server,
    /// The way of each player to the server, but of those who are beside it.
    pub(crate) networks: Vec<Option<Network>>,
    game: Arc<Game>,
}

/// What the threads of the players share.
struct Game {
    hold: Duration,
    holds: Mutex<Vec<Hold>>,
    over: AtomicBool,
}

impl Game {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn held(&self, player: usize, from: Instant) {
        let hold = Hold { player, from, to: Instant::now() };
        self.holds.lock().expect("no panic").push(hold);
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        self.game.over.store(true, Ordering::SeqCst);
    }
}

impl Field {
    fn new(hold: Duration) -> Self {
        let game = Game { hold, holds: Mutex::default(), over: AtomicBool::new(false) };
        Self { server: Server::start(), networks: Vec::new(), game: game.into() }
    }

    /// How many turns each player has had.
    pub(crate) fn turns(&self) -> Vec<usize> {
        let mut turns = vec![0; self.networks.len()];
        let mut last = None;
        for hold in &*self.game.holds.lock().expect("no panic") {
            turns[hold.player] += usize::from(last != Some(hold.player));
            last = Some(hold.player);
        }
        turns
    }

    /// Lets a player take its place, and connect.
    fn seat(&mut self, player: &Player) -> Seated {
        let Player::Ours { distance, tasks, max_handoffs, fair } = *player else {
            let Player::Foreign { comes_after } = *player else { unreachable!() };
            self.networks.push(None);
            return Seated::Foreign(Foreign::new(&self.server, comes_after));
        };
        let network = Network::new(&self.server, distance);
        let options =
            LockClient::builder().url(network.url(&self.server)).max_handoffs(max_handoffs);
        self.networks.push(Some(network));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let client = runtime.block_on(options.connect()).expect("connecting");
        Seated::Ours { runtime, client, tasks, fair }
    }

    /// How much later than it should a thread of this machine wakes up, until it is over.
    fn lateness(&self) -> JoinHandle<Duration> {
        let game = self.game.clone();
        thread::spawn(move || {
            let mut late = Duration::ZERO;
            while !game.is_over() {
                let due = Instant::now() + ms(1);
                thread::sleep(ms(1));
                late = late.max(due.elapsed());
            }
            late
        })
    }
}

/// All `players` want the lock, for so long, again and again.
pub(crate) fn play(players: &[Player], hold: Duration, time: Duration) -> Played {
    play_and(players, hold, time, |_| ()).0
}

/// The same; `meanwhile` may change the networks. It goes on until that has ended, too.
pub(crate) fn play_and<R>(
    players: &[Player],
    hold: Duration,
    time: Duration,
    meanwhile: impl FnOnce(&Field) -> R,
) -> (Played, R) {
    let mut field = Field::new(hold);
    let seated: Vec<Seated> = players.iter().map(|player| field.seat(player)).collect();
    let begun = Instant::now();
    let lateness = field.lateness();
    let plays = |(number, player): (usize, Seated)| {
        let game = field.game.clone();
        thread::spawn(move || player.plays(number, &game))
    };
    let threads: Vec<_> = seated.into_iter().enumerate().map(plays).collect();
    let result = meanwhile(&field);
    thread::sleep(time.saturating_sub(begun.elapsed()));
    field.game.over.store(true, Ordering::SeqCst);
    let ended = Instant::now();
    for thread in threads {
        thread.join().expect("a player that did not panic");
    }
    let late = lateness.join().expect("a thread that did not panic");
    let holds = std::mem::take(&mut *field.game.holds.lock().expect("no panic"));
    let (shares, waits, in_use) = evaluate(players.len(), holds, begun, ended);
    (Played { shares, waits, late, in_use }, result)
}

fn evaluate(
    players: usize,
    mut holds: Vec<Hold>,
    begun: Instant,
    ended: Instant,
) -> (Vec<Share>, Vec<Wait>, f64) {
    holds.sort_by_key(|hold| hold.from);
    for pair in holds.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two hold the lock");
    }
    holds.retain(|hold| hold.from < ended);
    let mut shares = vec![Share::default(); players];
    let mut waits = Vec::new();
    let mut last_end = vec![begun; players];
    let mut last = None;
    let mut used = Duration::ZERO;
    for &Hold { player, from, to } in &holds {
        if last != Some(player) {
            shares[player].turns += 1;
            waits.push(Wait { player, from: last_end[player], to: from });
        }
        shares[player].holds += 1;
        last = Some(player);
        last_end[player] = to;
        used += to.min(ended) - from;
    }
    let unended = last_end.into_iter().enumerate().filter(|(_, end)| *end < ended);
    waits.extend(unended.map(|(player, from)| Wait { player, from, to: ended }));
    for Wait { player, from, to } in &waits {
        let longest = &mut shares[*player].longest_wait;
        *longest = (*longest).max(*to - *from);
    }
    (shares, waits, used.as_secs_f64() / (ended - begun).as_secs_f64())
}

/// A player that is connected.
enum Seated {
    Ours { runtime: Runtime, client: LockClient, tasks: usize, fair: bool },
    Foreign(Foreign),
}

impl Seated {
    /// Until the game is over.
    fn plays(self, number: usize, game: &Arc<Game>) {
        match self {
            Self::Ours { runtime, client, tasks, fair } => {
                let takes_part =
                    |_| runtime.spawn(take_part(client.clone(), fair, number, game.clone()));
                let tasks: Vec<_> = (0..tasks).map(takes_part).collect();
                for task in tasks {
                    runtime.block_on(task).expect("no panic");
                }
                runtime.block_on(client.close());
            }
            Self::Foreign(mut foreign) => {
                while !game.is_over() && foreign.acquire(&game.over) {
                    let from = Instant::now();
                    thread::sleep(game.hold);
                    game.held(number, from);
                    foreign.release();
                }
            }
        }
    }
}

/// One task of a client.
async fn take_part(client: LockClient, fair: bool, number: usize, game: Arc<Game>) {
    let (plain, in_order) = (client.lock(NAME), client.fair_lock(NAME));
    while !game.is_over() {
        let guard = if fair { in_order.lock().await } else { plain.lock().await };
        let guard = guard.expect("the lock");
        let from = Instant::now();
        tokio::time::sleep(game.hold).await;
        game.held(number, from);
        guard.unlock().await.expect("nothing lost it");
    }
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
