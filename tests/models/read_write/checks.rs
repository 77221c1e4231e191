//! The spaces that are visited, and the bugs that are seen.

use super::properties::*;
use super::*;
use crate::{assert_violates, check, check_all, is_full};
use Kind::{Read, Write};

type Plans = [&'static [Kind]; HANDLES];

const NEVER: Plans = [&[], &[]];
const READS: Plans = [&[Read], &[]];
const WRITES: Plans = [&[Write], &[]];
const BOTH_READ: Plans = [&[Read], &[Read]];
const READS_AND_WRITES: Plans = [&[Read], &[Write]];
const BOTH_WRITE: Plans = [&[Write], &[Write]];
const UPGRADES: Plans = [&[Read, Write], &[]];
const DOWNGRADES: Plans = [&[Write, Read], &[]];
const RECURS: Plans = [&[Read, Read], &[]];

fn read_write(plans: [Plans; 3], faults: u8) -> ReadWrite {
    ReadWrite { plans, faults, delays: false, bug: None, every_step: false }
}

fn delayed(plans: [Plans; 3], faults: u8) -> ReadWrite {
    ReadWrite { delays: true, ..read_write(plans, faults) }
}

fn every_step(plans: [Plans; 3], faults: u8) -> ReadWrite {
    ReadWrite { every_step: true, ..read_write(plans, faults) }
}

#[test]
fn readers_and_writers_of_three_clients_come_in_order() {
    check_all("2 readers and a writer", read_write([READS, READS, WRITES], 0), 9_014, 25);
    check_all("2 writers and a reader", read_write([READS, WRITES, WRITES], 0), 9_275, 26);
}

#[test]
fn a_fault_breaks_nothing() {
    check_all("a reader and a writer, 1 fault", delayed([READS, WRITES, NEVER], 1), 4_869, 21);
    check("2 readers and a writer, 1 fault", read_write([READS, READS, WRITES], 1), 167_013, 27);
}

#[test]
fn readers_of_a_client_share_the_lock_and_stand_before_and_behind_a_writer_of_theirs() {
    check_all("2 readers and a writer", read_write([BOTH_READ, WRITES, NEVER], 0), 5_390, 23);
    let both = read_write([READS_AND_WRITES, WRITES, NEVER], 0);
    check_all("a client of both and a writer", both, 6_654, 23);
    let two = read_write([READS_AND_WRITES, READS_AND_WRITES, NEVER], 0);
    check("2 clients of both", two, 78_541, 28);
}

#[test]
fn a_handle_that_reads_or_writes_does_the_other_too() {
    check_all("upgrades", read_write([UPGRADES, READS, NEVER], 1), 33_776, 25);
    check_all("downgrades", read_write([DOWNGRADES, READS, NEVER], 1), 45_697, 24);
    check_all("reads again", read_write([RECURS, WRITES, NEVER], 1), 31_929, 24);
}

#[test]
fn each_bug_of_a_read_write_lock_violates_the_property_that_is_there_for_it() {
    for (bug, plans, faults, property) in [
        (Bug::ReaderBesideWriter, [READS, WRITES, NEVER], 0, READERS),
        (Bug::WriterAmongReaders, [READS, WRITES, NEVER], 0, READERS),
        (Bug::WritersShare, [WRITES, WRITES, NEVER], 0, WRITERS),
        (Bug::UpgradeAmongOthers, [UPGRADES, READS, NEVER], 0, READERS),
        (Bug::AllAreDead, [READS, WRITES, NEVER], 0, HOLDER),
        (Bug::ReleaseUnchecked, [WRITES, WRITES, NEVER], 1, HOLDER),
        (Bug::DeadStay, [READS, WRITES, NEVER], 1, DEAD),
        (Bug::MarkerStays, [READS, NEVER, NEVER], 1, END),
        (Bug::UndoForgotten, [READS, WRITES, NEVER], 1, ORPHAN),
        (Bug::WritersIgnored, [READS, READS, WRITES], 0, WRITER_ORDER),
        (Bug::WriterUnwritten, [READS, READS, WRITES], 0, WRITER_ORDER),
        (Bug::EntryGoes, [READS_AND_WRITES, READS, WRITES], 0, WRITER_ORDER),
        (Bug::ShareUnasked, [BOTH_READ, WRITES, WRITES], 0, WRITER_ORDER),
        (Bug::AllLetIn, [BOTH_READ, WRITES, WRITES], 0, WRITER_ORDER),
        (Bug::TurnIgnored, [READS, WRITES, WRITES], 0, READER_ORDER),
        (Bug::TurnStays, [READS, READS, WRITES], 0, WOKEN),
        (Bug::ReleaseSilent, [READS, WRITES, NEVER], 0, WOKEN),
        (Bug::DowngradeSilent, [DOWNGRADES, READS, NEVER], 0, WOKEN),
        (Bug::LeaveSilent, [READS, READS, WRITES], 1, WOKEN),
        (Bug::LateLeaveSilent, [BOTH_READ, READS_AND_WRITES, NEVER], 1, WOKEN),
        (Bug::NextCallKeepsOut, [BOTH_READ, BOTH_WRITE, NEVER], 1, WOKEN),
        (Bug::LeaveForgotten, [READS, WRITES, NEVER], 1, ENTRY),
        (Bug::RecursionInTurn, [RECURS, WRITES, NEVER], 0, RECURSION),
        (Bug::UpgradeWaits, [UPGRADES, NEVER, NEVER], 0, AT_ONCE),
    ] {
        let model = ReadWrite { bug: Some(bug), ..read_write(plans, faults) };
        assert_violates(&format!("{bug:?}"), model, property);
    }
}

#[test]
fn larger_spaces() {
    if is_full() {
        let of_two = read_write([BOTH_READ, BOTH_WRITE, NEVER], 1);
        check("2 readers and 2 writers, 1 fault", of_two, 2_026_115, 31);
        check_all("downgrades, and 2", read_write([DOWNGRADES, READS, WRITES], 0), 257_735, 32);
        check_all("upgrades, and 2", read_write([UPGRADES, UPGRADES, WRITES], 0), 531_192, 37);
        check_all("reads again, and 2", read_write([RECURS, READS, WRITES], 0), 112_348, 32);
        check_all("of both, and 2", read_write([READS_AND_WRITES, READS, WRITES], 0), 658_967, 32);
        check_all("a writer, late", delayed([READS, READS, WRITES], 1), 302_358, 30);
        check_all("a reader, late", delayed([READS, WRITES, WRITES], 1), 319_297, 30);
        check("every step", every_step([READS, READS, WRITES], 0), 74_898, 36);
        check("every step, 1 fault", every_step([UPGRADES, WRITES, NEVER], 1), 564_057, 37);
        let of_both = read_write([READS_AND_WRITES, READS_AND_WRITES, NEVER], 1);
        check("2 clients of both, 1 fault", of_both, 1_560_402, 31);
        check("upgrades, and 2, 1 fault", read_write([UPGRADES, READS, WRITES], 1), 4_998_796, 35);
    }
}
