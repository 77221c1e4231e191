//! Everybody's turn: rows W4, W5 and W6, between clients at any distance from Redis.
//!
//! What is bounded is how long a client that always waits goes without a turn. So these tests run one
//! at a time, and no busy test beside them. (And late: tests begin in the order of their names.)
//!
//! The whole table of distances, holds and clients, with the fair lock beside it, which takes about seven minutes:
//!
//! ```sh
//! cargo test --release --test it -- --ignored --nocapture the_whole_table
//! ```

mod changes;
mod players;

use std::thread;
use std::time::Duration;

use crate::support::{Distance, ms};
use players::{Played, Player, longest, play, play_and, undisturbed};

const DISTANCES: [Duration; 4] = [Duration::from_micros(500), ms(2), ms(6), ms(20)];
const HOLDS: [Duration; 4] = [ms(1), ms(5), ms(10), ms(20)];

/// Checks the three things that W4 says.
fn everybody_has_turns(players: &[Player], hold: Duration) {
    undisturbed(|| {
        let played = play(players, hold, ms(2_500));
        println!("{players:?}, {hold:?} held: {played}");
        let none: Vec<Player> = players.iter().map(|player| player.without_hand_offs()).collect();
        let without = play(&none, hold, ms(1_500));
        let checked = check(&played, players, hold).and_then(|()| {
            // 0.8 in the whole table. Here both have to share the machine with other tests.
            ensure(played.in_use >= 0.5 * without.in_use, || format!("without hand-offs {without}"))
        });
        (played, checked)
    });
}

fn check(played: &Played, players: &[Player], hold: Duration) -> Result<(), String> {
    let bound = longest(players, hold, played.late);
    for share in &played.shares {
        ensure(share.longest_wait <= bound, || format!("longer than {bound:?}"))?;
    }
    let turns = || played.shares.iter().map(|share| share.turns);
    let (least, most) = (turns().min().expect("players"), turns().max().expect("players"));
    ensure(most <= 3 * least, || format!("{most} turns to {least}"))
}

fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wrong()) }
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
    let players = [Player::ours(ms(1), 4), Player::ours(ms(1), 1)];
    let hold = ms(5);
    let worst = Distance { each_way: ms(25), jitter: ms(10), bandwidth: Some(125_000) };
    let far = Player::ours_at(worst, 1);
    undisturbed(|| {
        let (played, ()) = play_and(&players, hold, ms(4_000), |field| {
            thread::sleep(ms(1_000));
            for network in field.networks.iter().flatten() {
                network.set(worst);
            }
        });
        println!("1 ms, then {worst:?}: {played}");
        let checked = check(&played, &[far, far], hold).and_then(|()| {
            let few = played.shares.iter().any(|share| share.turns < 15);
            ensure(!few, || "fewer than 15 turns".into())
        });
        (played, checked)
    });
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
            let none = both.map(Player::without_hand_offs);
            row("  without hand-offs", &none, hold, time);
            row("  fair", &both.map(Player::fair), hold, time);
            let far = [Player::ours(ms(0), 8), Player::ours(distance, 1)];
            row(&format!("8 at 0, 1 at {distance:?}"), &far, hold, time);
            row("  fair", &far.map(Player::fair), hold, time);
            let alone = [Player::ours(ms(0), 1), Player::ours(distance, 1)];
            row(&format!("1 at 0, 1 at {distance:?}"), &alone, hold, time);
            let three =
                [Player::ours(ms(0), 8), Player::ours(distance, 4), Player::ours(2 * distance, 1)];
            row(&format!("8 at 0, 4, 1 at twice {distance:?}"), &three, hold, time);
            row("  fair", &three.map(Player::fair), hold, time);
        }
    }
    for comes_after in [ms(1), ms(4), ms(8), ms(20)] {
        let foreign = [Player::ours(ms(0), 8), Player::Foreign { comes_after }];
        row(&format!("8, foreign after {comes_after:?}"), &foreign, ms(5), time);
    }
}
