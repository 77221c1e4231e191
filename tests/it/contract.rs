//! What a lock does, wherever Redis is: every case here runs on one server, on one that is 2 ms
//! away, on a server with a replica that has to have each grant, on the master that Sentinels name,
//! and in a cluster; with the feature `test-util` on a simulated Redis, too, in real and in paused time.
//!
//! This is the one list of them. Each case is in the module of its topic, beside what is about one
//! server's commands, or about a fault, and runs on one server only.

/// Runs a case in a runtime with so many threads; in one if its time is paused.
fn run(topology: &str, threads: usize, case: impl AsyncFnOnce()) {
    let is_paused = topology == "paused";
    let mut runtime = match threads {
        2.. if !is_paused => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.worker_threads(threads).enable_all().start_paused(is_paused).build();
    // The place is made in the runtime, whose time it may take.
    runtime.expect("a runtime").block_on(async { case().await });
}

/// The one list of cases, once for each topology. A case runs on one thread, or on so many.
macro_rules! cases {
    ($($topology:ident)+) => {
        $(cases! { @list $topology
            holding:
                everybody_sees_that_a_lock_is_locked_and_its_handle_how_often,
                guards_of_one_handle_may_go_in_any_order,
                clones_handles_and_clients_all_exclude_each_other,
                names_do_not_get_in_each_others_way,
                a_forced_unlock_frees_the_lock_for_everybody,
                a_lease_that_ends_lets_the_next_one_in_and_makes_unlock_say_lost,
                a_try_with_a_wait_gives_up_when_the_wait_is_over,
                c4_a_lock_is_not_kept_alive_for_a_task_that_was_aborted on 2,
                tasks_that_share_a_handle_nest_in_any_interleaving on 2;
            leases:
                a_default_lease_is_renewed_for_as_long_as_it_is_held,
                mixed_nesting_never_shortens_what_a_live_guard_was_promised,
                a_renewal_does_not_shorten_an_explicit_lease,
                an_explicit_lease_outlives_the_watchdogs_hold_and_is_not_renewed_by_it,
                a_short_nested_lease_is_lost_alone;
            waiting:
                a_dropped_waiter_leaves_no_subscription_and_its_name_can_be_waited_for_again,
                waiters_of_one_client_get_the_lock_in_the_order_in_which_they_came,
                when_one_task_of_a_handle_gets_the_lock_its_siblings_get_it_too,
                waiters_for_many_names_do_not_get_in_each_others_way;
            wake_ups:
                a_lease_that_ends_without_a_message_is_met_by_a_timer,
                when_the_first_in_line_goes_the_next_one_watches_the_lease,
                waiters_that_give_up_all_the_time_leave_no_wake_up_unused,
                several_clients_that_pass_a_lock_around_never_stall on 2;
            giving_back:
                a_dropped_guard_frees_the_lock_within_a_round_trip,
                a_handle_can_lock_again_right_after_it_dropped_its_guard,
                a_guard_outlives_its_handle_and_its_client,
                guards_dropped_in_many_threads_at_once_all_free_their_locks on 2,
                a_dropped_guard_wakes_a_parked_waiter_of_another_client,
                w26_a_hold_that_was_given_back_and_is_still_counted_is_released_again;
            closing:
                closing_sends_parked_waiters_home,
                a_guard_that_is_alive_when_its_client_closes_is_not_renewed_but_can_be_given_back,
                shutting_down_ends_the_holders_that_are_not_done;
            wire:
                an_owner_is_the_uuid_of_the_client_and_a_number,
                a_holder_of_another_make_is_respected_and_waited_for;
            who_holds:
                everybody_sees_who_holds_a_lock;
            fenced:
                a_token_grows_with_every_hold_whoever_holds,
                a_fenced_lock_and_a_plain_one_of_that_name_exclude_each_other,
                a_fenced_guard_knows_what_every_guard_knows;
            executing:
                commands_are_executed_for_whoever_holds_the_lock_and_no_one_else;
            fair:
                a_fair_lock_is_a_lock,
                a_fenced_fair_lock_is_a_fenced_lock,
                waiters_of_three_clients_are_served_in_the_order_in_which_they_came,
                many_waiters_that_come_and_give_up_all_have_their_turns;
            multi:
                a_multi_lock_has_all_of_its_locks_or_none,
                calls_on_a_multi_lock_nest_and_a_clone_is_another_owner,
                a_multi_lock_waits_with_empty_hands,
                an_explicit_lease_of_a_multi_lock_ends_for_all_its_locks,
                a_multi_guard_says_which_lock_is_gone_and_gives_the_others_back,
                a_forced_unlock_frees_all_locks_of_a_multi_lock;
            sharing:
                readers_share_a_lock_and_a_writer_has_it_alone,
                calls_of_one_handle_nest_or_say_that_they_would_deadlock,
                who_waits_to_read_or_to_write_has_it_in_the_order_of_coming,
                an_explicit_lease_to_read_or_to_write_ends_by_itself,
                a_default_lease_to_read_or_to_write_is_renewed,
                a_read_write_lock_that_is_gone_is_told_lost_to_all_who_have_it,
                what_is_dropped_that_reads_or_writes_or_waits_leaves_nothing,
                closing_sends_home_who_waits_to_read_or_to_write,
                a_forced_unlock_frees_readers_and_writers;
            fenced_sharing:
                a_writer_has_a_token_of_its_own_and_a_reader_that_of_the_last_writer,
                writers_of_a_client_have_tokens_that_grow_and_readers_the_last,
                a_guard_that_changes_sides_keeps_its_token_or_has_a_new_one;
        })+
    };
    (@list $topology:ident $($file:ident: $($case:ident $(on $threads:literal)?),+;)+) => {
        mod $topology {
            $(mod $file {
                use super::super::run;
                use crate::setup::Setup;
                $(
                    #[test]
                    fn $case() {
                        let threads = 1 $(* $threads)?;
                        run(stringify!($topology), threads, async || {
                            crate::$file::$case(Setup::$topology()).await;
                        });
                    }
                )+
            })+
        }
    };
}

cases! { alone far replicas sentinel cluster }

#[cfg(feature = "test-util")]
cases! { memory paused }
