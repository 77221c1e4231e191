//! The same lock on the wire: what this library holds, Redisson waits for, and the other way round.
//!
//! Each case is played with several versions of Redisson, in a Java process that does what it is
//! told (`tests/redisson/src/main/java/interop/Peer.java`), with one server and most of them in a cluster too, and
//! with the newest version 2 ms from the server.
//! `build` builds the program, and `tests/run` does that where it can and says in
//! `REDLATCH_REDISSON` where it is; without it, every case is ignored.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod differential;
mod exclusion;
mod forced;
mod hand_offs;
mod java;
mod leases;
mod nested;
mod parties;
mod reading;
mod setup;
mod sides;
mod together;
mod tokens;
mod turns;
mod watchdogs;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Trial};
use support::child;

use setup::{Case, Redisson, Topology};

/// The newest, which is the one that most of the time is spent on; the last line before the next
/// major one, which has a latch at every unlock and renews in batches; and one that has neither.
const VERSIONS: [&str; 3] = ["4.7.0", "3.52.0", "3.23.5"];

/// Where `build` has put it.
const FOLDER: &str = "REDLATCH_REDISSON";

macro_rules! cases {
    ($($name:literal => $($case:ident)::+,)*) => {
        vec![$(($name, (|setup| Box::pin($($case)::+(setup))) as Case),)*]
    };
}

/// Where they are played, and the cases with their names.
type Played = (&'static [Topology], Vec<(&'static str, Case)>);

fn cases() -> [Played; 4] {
    use Topology::{Alone, Cluster, Far};
    let everywhere = cases![
        "a waiter of either gets a lock that the other unlocks" => hand_offs::go_to_the_other_side,
        "a rust waiter of a fair lock gets a lock that java unlocks" => hand_offs::from_java_to_a_fair_lock,
        "a java waiter gets the lock of a dropped guard" => hand_offs::from_a_dropped_guard_to_java,
        "names of all kinds are the same key and channel" => hand_offs::of_all_kinds_of_names,
        "hand-offs are quick in every direction" => hand_offs::are_quick_in_every_direction,
        "two holds of either, plain, to read or to write, keep the other out until the second unlock" =>
            nested::keeps_the_other_side_out_until_the_second_unlock,
        "who waits in vain is told" => nested::who_waits_in_vain_is_told,
        "an unlock by force wakes waiters of both kinds and tells the holder" =>
            forced::wakes_waiters_of_both_kinds,
        "java reads a lock of rust" => reading::java_reads_a_lock_of_ours,
        "rust reads a lock of java" => reading::rust_reads_a_lock_of_theirs,
        "both write one hash with one field and a lease" => reading::both_write_the_same,
        "an explicit lease of either ends for a waiter of the other" => leases::end_for_the_other_side,
        "all threads of java hear of a lock that stays for less than its lease" =>
            leases::that_get_shorter_are_told_to_all_threads,
        "tokens grow whoever takes them" => tokens::grow_whoever_takes_them,
        "tokens grow from hand to hand" => tokens::grow_from_hand_to_hand,
        "watchdogs keep the other side out" => watchdogs::keep_the_other_side_out,
        "read-write: random steps of both sides do what the model does" => differential::steps_beside_a_model,
        "several locks: who has them all keeps the other side out" => together::keep_the_other_side_out,
        "several locks: who waits for all gets them from the other side" => together::wait_for_the_other_side,
    ];
    let far = cases![
        "java has its share beside tasks of rust that are near" => turns::w30_java_has_its_share_beside_a_near_crowd,
        "java has its share beside tasks of rust that are far" => turns::w30_java_has_its_share_beside_a_far_crowd,
    ];
    let alone = cases![
        "a mixed exclusion loses no addition" => exclusion::loses_no_addition,
        "the locks of killed processes are free when their leases end" => watchdogs::end_with_their_process,
        "read-write: the cases of redisson with both sides as each party" => differential::cases_of_redisson,
        "several locks: sets of both that cross each other all have their turns" => together::crossing_sets_have_their_turns,
        "java gets turns in a crowd of rust" => turns::java_gets_turns_in_a_crowd_of_rust,
        "rust gets turns in a crowd of java" => turns::rust_gets_turns_in_a_crowd_of_java,
    ];
    let in_a_cluster = cases![
        "both tell a release on the same kind of channel" =>
            hand_offs::are_told_on_the_same_kind_of_channel,
    ];
    [
        (&[Alone, Far, Cluster], everywhere),
        (&[Far], far),
        (&[Alone], alone),
        (&[Cluster], in_a_cluster),
    ]
}

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        be(&role);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    let folder = std::env::var(FOLDER).map_err(|_| format!("{FOLDER} is not set"));
    if let Err(why) = &folder {
        eprintln!("the suite with Redisson is left out: {why}; tests/run does it");
    }
    let trials = trials(&folder);
    // Each waits until nobody is at its setup, and few are at any (`setup::AT_ONCE`).
    arguments.test_threads = arguments.test_threads.or(Some(trials.len()));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(folder: &Result<String, String>) -> Vec<Trial> {
    let mut places = Vec::new();
    for topology in [Topology::Alone, Topology::Far, Topology::Cluster] {
        let far = topology == Topology::Far;
        for version in VERSIONS.into_iter().take(if far { 1 } else { VERSIONS.len() }) {
            let redisson = |folder: &String| Arc::new(Redisson::new(version, topology, folder));
            places.push((version, topology, folder.as_ref().map(redisson).map_err(String::clone)));
        }
    }
    let mut trials = Vec::new();
    for (topologies, cases) in cases() {
        for (case, play) in cases {
            let here = places.iter().filter(|(_, topology, _)| topologies.contains(topology));
            for (version, topology, redisson) in here {
                let name = format!("redisson {version}{}: {case}", topology.suffix());
                let redisson = redisson.clone();
                trials.push(Trial::ignorable_test(name, move || match redisson {
                    Ok(redisson) => {
                        redisson.play(play);
                        Ok(Completion::Completed)
                    }
                    Err(why) => Ok(Completion::ignored_with(why)),
                }));
            }
        }
    }
    trials
}

/// A process of a case's own.
fn be(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    support::workers().block_on(async {
        match words.split_first() {
            Some((&"work", words)) => exclusion::work(words).await,
            Some((&"hold", words)) => watchdogs::hold_on(words).await,
            _ => panic!("no such role: {role}"),
        }
    });
}
