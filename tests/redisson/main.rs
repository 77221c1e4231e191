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
mod owners;
mod parties;
mod reading;
mod setup;
mod sharing;
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

type Cases = Vec<(&'static str, Case)>;

/// With a server alone and in a cluster.
fn everywhere() -> Cases {
    cases![
        "a rust waiter gets a lock that java unlocks" => hand_offs::from_java_to_rust,
        "a rust waiter of a fair lock gets a lock that java unlocks" => hand_offs::from_java_to_a_fair_lock,
        "a java waiter gets a lock that rust unlocks" => hand_offs::from_rust_to_java,
        "a java waiter gets the lock of a dropped guard" => hand_offs::from_a_dropped_guard_to_java,
        "names of all kinds are the same key and channel" => hand_offs::of_all_kinds_of_names,
        "hand-offs are quick in every direction" => hand_offs::are_quick_in_every_direction,
        "two holds of java keep rust out until the second unlock" => nested::java_keeps_rust_out,
        "two holds of rust keep java out until the second unlock" => nested::rust_keeps_java_out,
        "who waits in vain is told" => nested::who_waits_in_vain_is_told,
        "an unlock by force wakes waiters of both kinds and tells the holder" =>
            forced::wakes_waiters_of_both_kinds,
        "java reads a lock of rust" => reading::java_reads_a_lock_of_ours,
        "rust reads a lock of java" => reading::rust_reads_a_lock_of_theirs,
        "both write one hash with one field and a lease" => reading::both_write_the_same,
        "rust leaves nothing behind" => reading::rust_leaves_nothing_at_all,
        "an explicit lease of java ends for a rust waiter" => leases::of_java_end_for_rust,
        "an explicit lease of rust ends for a java waiter" => leases::of_rust_end_for_java,
        "tokens grow whoever takes them" => tokens::grow_whoever_takes_them,
        "tokens grow from hand to hand" => tokens::grow_from_hand_to_hand,
        "watchdogs keep the other side out" => watchdogs::keep_the_other_side_out,
        "read-write: java and rust read at the same time" => sharing::readers_are_there_together,
        "read-write: a writer of either is alone" => sharing::a_writer_is_alone,
        "read-write: who waits gets it from the other side" => sharing::waiters_get_it_from_the_other_side,
        "read-write: leases end for the other side" => sharing::leases_end_for_the_other_side,
        "several locks: who has them all keeps the other side out" => together::keep_the_other_side_out,
        "several locks: who waits for all gets them from the other side" => together::wait_for_the_other_side,
    ]
}

fn alone() -> Cases {
    cases![
        "a mixed exclusion loses no addition" => exclusion::loses_no_addition,
        "the lock of a killed java process is free when its lease ends" =>
            watchdogs::of_a_killed_java_process_end,
        "the lock of a killed rust process is free when its lease ends" =>
            watchdogs::of_a_killed_rust_process_end,
        "read-write: the cases of redisson with both sides as each party" => differential::cases_of_redisson,
        "read-write: random steps of both sides do what the model does" => differential::steps_beside_a_model,
        "read-write: watchdogs keep the other side out" => sharing::watched::keep_the_other_side_out,
        "read-write: a killed java reader is out of a writer's way" =>
            sharing::watched::a_killed_java_reader_is_out_of_the_way,
        "read-write: the lock of a killed java writer ends" => sharing::watched::a_killed_java_writer_ends,
        "several locks: sets of both that cross each other all have their turns" => together::crossing_sets_have_their_turns,
        "java gets turns in a crowd of rust" => turns::java_gets_turns_in_a_crowd_of_rust,
        "rust gets turns in a crowd of java" => turns::rust_gets_turns_in_a_crowd_of_java,
    ]
}

fn far() -> Cases {
    cases![
        "java has its share beside tasks of rust that are near" => turns::w30_java_has_its_share_beside_a_near_crowd,
        "java has its share beside tasks of rust that are far" => turns::w30_java_has_its_share_beside_a_far_crowd,
    ]
}

fn in_a_cluster() -> Cases {
    cases![
        "both tell a release on the same kind of channel" =>
            hand_offs::are_told_on_the_same_kind_of_channel,
    ]
}

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        be(&role);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // The cases of one setup come one after the other, and most of the time they wait.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let folder = std::env::var(FOLDER).map_err(|_| format!("{FOLDER} is not set"));
    if let Err(why) = &folder {
        eprintln!("the suite with Redisson is left out: {why}; tests/run does it");
    }
    libtest_mimic::run(&arguments, trials(&folder)).exit_code()
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
    for (topologies, cases) in [
        (&[Topology::Alone, Topology::Far, Topology::Cluster][..], everywhere()),
        (&[Topology::Far], far()),
        (&[Topology::Alone], alone()),
        (&[Topology::Cluster], in_a_cluster()),
    ] {
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
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match words.split_first() {
            Some((&"work", words)) => exclusion::work(words).await,
            Some((&"hold", words)) => watchdogs::hold_on(words).await,
            _ => panic!("no such role: {role}"),
        }
    });
}
