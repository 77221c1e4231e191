//! What is printed: the summary, and for a violation the smallest window that shows it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

use crate::check::floor::Done;
use crate::prelude::*;

/// So many violations are printed with their windows; of the rest only the first line.
const SHOWN: usize = 5;

/// So many in all, of each round.
const LISTED: usize = 40;

/// Lines of one window.
const LINES: usize = 90;

pub(crate) fn summary(done: &Done) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(["what", "times", "took effect"]);
    let mut row = |what: &str, times: u64, effective: String| {
        table.add_row([what, &times.to_string(), &effective]);
    };
    row("operations", done.operations, String::new());
    row("of them on read-write locks", done.of_read_write, String::new());
    row("and of several locks", done.of_several, String::new());
    row("longest wait for those, in ms", done.longest_for_several / MS, String::new());
    row("grants", done.grants, String::new());
    row("renewals seen", done.renewals, String::new());
    row("losses told", done.losses, String::new());
    row("calls dropped half-way", done.cancelled, String::new());
    row("calls with an unknown outcome", done.unknown, String::new());
    row("hand-offs inside a client", done.hand_offs, String::new());
    row("hand-offs between processes", done.crossed_processes, String::new());
    row("late writes, refused by token", done.late_writes.0 as u64, String::new());
    row("late writes, no token", done.late_writes.1 as u64, String::new());
    let Fates { requests, unanswered, held, late, slow, never } = done.fates;
    if requests > 0 {
        row("requests through a proxy", requests, format!("{unanswered} answers lost"));
    }
    row("requests held up", held, format!("{late} executed late, {slow} slowly, {never} never"));
    for (kind, (tried, effective)) in &done.faults {
        row(kind, *tried, effective.to_string());
    }
    table.to_string()
}

pub(crate) fn violations(found: &[Violation], history: &History) -> String {
    let mut text = String::new();
    for (at, violation) in found.iter().take(LISTED).enumerate() {
        let Violation { rule, what, .. } = violation;
        let _ = writeln!(text, "violation {rule}: {what}");
        if at < SHOWN {
            text += &window(violation, history);
        }
    }
    if found.len() > LISTED {
        let _ = writeln!(text, "and {} more", found.len() - LISTED);
    }
    text
}

/// Everything that was written down of a name.
#[cfg(feature = "test-util")]
pub(crate) fn of_name(name: u16, history: &History) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for (process, of_process) in (0..).zip(&history.processes) {
        let read = of_process.log.read(|record| {
            if record.key == name && record.req != 0 {
                lines.push((record.t, line(process, record)));
            }
        });
        read.expect("a history in memory");
    }
    lines.sort_by_key(|(t, _)| *t);
    let line = |(t, line): &(u64, String)| format!("{:.3} {line}\n", *t as f64 / MS as f64);
    lines.iter().map(line).collect()
}

/// Everything that was written down of the calls in question, and what the nemesis did then. Times
/// are in milliseconds from the beginning of the window.
fn window(violation: &Violation, history: &History) -> String {
    let wanted: BTreeSet<Id> = violation.calls.iter().copied().collect();
    let mut lines: Vec<(u64, String)> = Vec::new();
    for process in wanted.iter().map(|id| id.0).collect::<BTreeSet<_>>() {
        let log = &history.processes[usize::from(process)].log;
        let mut of_process = Vec::new();
        let read = log.read(|record| {
            if wanted.contains(&(process, record.req)) && record.req != 0 {
                of_process.push((record.t, line(process, record)));
            }
        });
        if let Err(error) = read {
            lines.push((0, error));
        }
        lines.extend(of_process);
        let killed = history.processes[usize::from(process)].killed;
        lines.extend(killed.map(|t| (t, format!("process {process} is dead, killed"))));
    }
    // What befell the calls in question as well, and not only what did at the end.
    let since = lines.iter().map(|(t, _)| *t).min().unwrap_or(NEVER).min(violation.from);
    for fault in &history.faults {
        let arrived = fault.late.unwrap_or(fault.t1);
        if fault.t0 <= violation.to + 100 * MS && arrived + 2000 * MS >= since {
            let effect = if fault.took_effect { "" } else { ", without effect" };
            let text = format!("nemesis: {} {}{effect}", fault.kind, fault.target);
            lines.push((fault.t0, format!("{text}: begins")));
            lines.push((fault.t1, format!("{text}: ends")));
            let late = fault.late.map(|t| (t, format!("{text}: has arrived by now")));
            lines.extend(late);
        }
    }
    let of_calls = history.acquires.iter().filter(|call| wanted.contains(&call.id));
    let names: BTreeSet<u16> = of_calls.map(|call| call.key).collect();
    for forced in history.forced.iter().filter(|forced| names.contains(&forced.key)) {
        if forced.inv <= violation.to + 100 * MS && forced.ret + 6000 * MS >= violation.from {
            let effect = if forced.freed { "" } else { ", with an unknown effect" };
            let text = format!("name {} is freed by force{effect}", forced.key);
            lines.push((forced.inv, format!("{text}: begins")));
            lines.push((forced.ret, format!("{text}: ends")));
        }
    }
    for gap in wanted.iter().flat_map(|id| &history.processes[usize::from(id.0)].gaps) {
        if gap.0 <= violation.to && gap.1 >= violation.from {
            let length = (gap.1 - gap.0) / MS;
            lines.push((gap.0, format!("a process was not run for {length} ms")));
        }
    }
    let begins = violation.from as f64 / MS as f64;
    lines.push((violation.from, format!("---- the window begins, at {begins:.3}")));
    lines.push((violation.to, "---- the window ends".into()));
    lines.sort();
    // Far more than can be read: what is nearest to the window.
    if lines.len() > LINES {
        let distance = |t: u64| t.abs_diff(violation.from).min(t.abs_diff(violation.to));
        lines.sort_by_key(|(t, _)| distance(*t));
        lines.truncate(LINES);
        lines.sort();
    }
    let mut text = String::new();
    for (t, line) in lines {
        let at = (t as f64 - violation.from as f64) / MS as f64;
        let _ = writeln!(text, "    {at:>11.3}  {line}");
    }
    text
}

fn line(process: u16, record: &Record) -> String {
    let Record { event, how, task, key, handle, owner, req, .. } = record;
    let mut text = format!(
        "process {process} task {task} call {req} name {key} handle {handle} owner {owner} \
         {event:?} {how:?} {:?}",
        record.outcome
    );
    let _ = write!(text, " lease {} flags {:#x}", record.lease, record.flags);
    if record.token != 0 {
        let _ = write!(text, " token {}", record.token);
    }
    if record.deadline > record.t {
        let _ = write!(text, " left {:.3}", (record.deadline - record.t) as f64 / MS as f64);
    }
    text
}
