//! What `cargo test` runs: the rules on hand-written histories, and the short form of the hammer.

use clap::Parser;
use libtest_mimic::{Failed, Trial};

use crate::check::{
    count, exclusion, floor, liveness, notice, order, orphans, outcomes, reading, resource,
    several, tokens, turns,
};
use crate::prelude::*;
use crate::run::{Length, Verdict, run};
use crate::{Arguments, calm_times, monitor, nemesis, processes, record};

macro_rules! trials {
    ($($module:ident::$($path:ident)::+,)*) => {
        vec![$(trial(stringify!($module::$($path)::+), $module::$($path)::+),)*]
    };
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials![
        record::a_record_survives_being_written_and_read,
        monitor::acquires_releases_and_writes_are_heard,
        calm_times::windows_are_joined_and_cut,
        nemesis::trials::the_connections_of_a_client_are_killed_and_that_of_the_witness_is_spared,
        processes::trials::a_process_that_is_told_to_stop_while_it_starts_stops,
        exclusion::trials::what_is_not_believed_at_once_is_no_overlap,
        exclusion::trials::two_at_once_are_an_overlap,
        exclusion::trials::a_short_hold_does_not_hide_a_long_one,
        exclusion::trials::readers_share_a_lock_and_nobody_writes_beside_them,
        exclusion::trials::who_has_a_lock_from_one_whose_key_was_deleted_never_had_it,
        exclusion::trials::who_was_handed_a_lock_whose_key_had_been_deleted_never_had_it,
        exclusion::trials::who_was_handed_what_a_call_that_gave_up_had_before_the_deletion_never_had_it,
        exclusion::trials::who_was_handed_less_than_it_asked_for_may_have_it_from_before_the_deletion,
        exclusion::trials::who_deletes_a_key_breaks_exclusion_by_definition,
        tokens::trials::tokens_that_grow_are_in_order,
        tokens::trials::tokens_of_calls_at_the_same_time_may_cross,
        tokens::trials::a_token_that_went_back_is_out_of_order,
        tokens::trials::a_token_that_was_drawn_before_the_key_was_taken_away_may_come_late,
        tokens::trials::a_token_of_two_handles_is_not_unique,
        tokens::trials::a_token_that_two_primaries_draw_is_theirs,
        tokens::trials::a_token_that_comes_again_is_not_unique,
        reading::trials::a_reader_has_the_token_of_the_last_writer,
        reading::trials::without_a_writer_there_is_no_token,
        reading::trials::what_a_client_has_drawn_in_vain_stays_where_it_could_not_say_so,
        reading::trials::who_gave_up_has_drawn_nothing_if_the_server_wrote_nothing,
        reading::trials::a_grant_whose_answer_was_lost_leaves_what_was_drawn_with_it,
        reading::trials::a_counter_that_the_server_has_lost_is_unknown_until_the_next_writer,
        reading::trials::who_joins_readers_that_have_lost_the_lock_has_their_token,
        resource::trials::a_write_between_two_of_a_believed_holder_is_seen,
        resource::trials::a_write_that_came_late_is_nobodys_fault,
        resource::trials::a_token_refused_in_mid_hold_is_seen,
        resource::trials::a_store_that_accepts_a_lower_token_is_seen,
        count::trials::kept_guards_are_counted_at_the_server,
        count::trials::a_count_is_never_more_than_the_calls,
        count::trials::a_sample_is_never_more_than_the_calls,
        count::trials::a_call_for_several_counts_twice_once_its_clock_may_say_that_it_has_waited_long,
        liveness::trials::a_name_does_not_stay_free_while_somebody_waits,
        liveness::trials::who_waits_for_several_waits_while_all_are_free,
        liveness::trials::readers_keep_no_reader_out,
        liveness::trials::a_write_whose_lease_has_ended_keeps_readers_out_beside_a_reader_of_its_handle,
        liveness::trials::what_is_dropped_before_its_clock_is_set_forward_ends_with_its_lease,
        liveness::trials::an_outage_is_no_time_to_judge,
        liveness::trials::a_request_of_the_dead_may_have_been_granted,
        liveness::trials::a_crash_blocks_for_its_lease_and_no_longer,
        notice::trials::a_late_notice_is_found_unless_the_process_stood_still,
        notice::trials::whose_key_is_taken_away_after_a_renewal_is_told_when_that_is_known,
        notice::trials::what_held_up_less_than_one_lease_is_no_reason_for_its_end,
        notice::trials::belief_after_the_deadline_or_a_loss_is_found,
        notice::trials::a_loss_before_the_deadline_needs_a_reason,
        notice::trials::who_joined_after_the_key_was_deleted_is_told_of_a_loss,
        notice::trials::a_release_of_a_nested_hold_may_come_when_the_outer_one_has_ended,
        notice::trials::a_lock_handed_off_by_one_whose_key_was_deleted_is_lost_for_a_reason,
        notice::trials::a_lock_handed_off_by_one_who_waits_for_more_is_lost_for_a_reason,
        notice::trials::who_goes_on_believing_in_a_deleted_key_is_found,
        notice::trials::a_watchdog_that_gives_up_early_is_found,
        orphans::trials::a_lock_after_its_release_is_an_orphan,
        orphans::trials::a_dropped_call_is_undone_promptly,
        orphans::trials::who_has_a_clock_that_jumped_leaves_it_to_the_lease,
        orphans::trials::who_gave_up_just_as_a_release_granted_it_the_lock_gives_it_back_promptly,
        orphans::trials::a_loss_whose_release_is_unknown_is_undone_promptly,
        orphans::trials::what_a_server_forgot_of_a_release_is_released_again_promptly,
        orphans::trials::a_killed_process_blocks_for_its_lease,
        orphans::trials::a_release_grants_to_the_dead_while_they_have_an_entry,
        orphans::trials::nothing_is_left_and_nothing_is_eternal,
        orphans::trials::a_closed_client_has_nothing,
        orphans::trials::what_arrives_after_its_process_died_blocks_for_its_lease,
        notice::trials::a_closed_client_renews_nothing,
        outcomes::trials::a_release_of_a_lost_hold_says_so,
        outcomes::trials::what_was_granted_was_asked_for,
        outcomes::trials::what_was_not_executed_left_nothing,
        outcomes::trials::what_redis_grants_by_itself_to_a_client_that_closes_is_nobodys,
        outcomes::trials::what_a_call_gave_back_in_the_moment_of_its_end_is_undone,
        several::trials::a_guard_has_all_of_its_locks,
        several::trials::a_call_that_waits_has_all_or_none,
        turns::trials::who_frees_a_lock_by_force_gives_the_client_that_had_it_a_turn_once_more,
        turns::trials::who_waits_for_a_few_turns_of_others_has_its_own,
        turns::trials::who_waits_for_a_deleted_key_waits_for_the_end_of_its_lease,
        turns::trials::who_waits_to_write_waits_for_a_reader_whose_release_was_forgotten,
        order::trials::nobody_passes_a_writer_and_readers_pass_each_other,
        order::trials::a_writer_behind_its_own_readers_has_its_entry_a_while_after_them,
        order::trials::who_lost_it_before_it_heard_of_it_was_not_passed,
        order::trials::who_came_first_has_it_first,
        order::trials::who_closes_gives_its_entry_up,
        order::trials::who_waits_behind_a_hold_that_was_taken_away_comes_when_its_client_hears,
        order::trials::who_waited_for_its_own_handle_came_when_that_gave_up,
        order::trials::who_lost_a_connection_has_its_entry_again_a_while_after_that,
        order::trials::who_lost_a_young_connection_has_its_entry_a_while_after_the_pause,
        floor::trials::enough_is_enough,
        floor::trials::a_long_run_needs_late_requests_and_every_kind,
        floor::trials::too_little_of_anything_is_too_little,
    ];
    #[cfg(feature = "test-util")]
    {
        use crate::simulated;
        all.extend(trials![
            simulated::trials::a_seed_plays_again_and_another_does_not,
            simulated::trials::twenty_worlds_break_no_rule,
        ]);
    }
    all.push(Trial::test("the_short_form_passes", || short_form(false)));
    all.push(Trial::test("the_short_form_passes_at_a_distance", || short_form(true)));
    all
}

fn trial(name: &'static str, check: fn()) -> Trial {
    let name = name.replace(' ', "").replace("trials::", "");
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

fn short_form(far: bool) -> Result<(), Failed> {
    // One at a time: each fills the machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = lock(&ALONE);
    let arguments = ["hammer", "--far"].into_iter().take(if far { 2 } else { 1 });
    match run(&Arguments::parse_from(arguments).settings, Length::short()) {
        Verdict::Pass => Ok(()),
        Verdict::Violation(text) | Verdict::Inconclusive(text) => Err(text.into()),
    }
}
