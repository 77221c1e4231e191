//! Makes a plan smaller that breaks a rule, for as long as it breaks it.

use std::time::Instant;

use super::campaign::judge;
use super::plan::{Edits, Plan};
use crate::prelude::*;

/// After so long the smallest that was found has to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// The smallest plan that still breaks one of those rules, and how many were tried.
pub(crate) fn shrink(seed: u64, edits: &Edits, rules: &[&str]) -> (Edits, u32) {
    let mut shrinking =
        Shrinking { seed, rules, best: edits.clone(), tried: 0, end: Instant::now() + PATIENCE };
    shrinking.time();
    shrinking.faults();
    shrinking.machines();
    shrinking.tasks();
    shrinking.faults();
    shrinking.time();
    (shrinking.best, shrinking.tried)
}

struct Shrinking<'a> {
    seed: u64,
    rules: &'a [&'a str],
    best: Edits,
    tried: u32,
    end: Instant,
}

impl Shrinking<'_> {
    fn plan(&self) -> Plan {
        Plan::new(self.seed, &self.best)
    }

    /// Keeps the change if a rule is broken still.
    fn attempt(&mut self, change: impl FnOnce(&mut Edits)) -> bool {
        if Instant::now() > self.end {
            return false;
        }
        self.tried += 1;
        let mut edits = self.best.clone();
        change(&mut edits);
        let judged = judge(&Plan::new(self.seed, &edits));
        let breaks = judged.found.iter().any(|found| self.rules.contains(&found.rule));
        if breaks {
            self.best = edits;
        }
        breaks
    }

    fn time(&mut self) {
        let mut step = self.plan().time / 2;
        while step > Duration::from_millis(100) {
            let shorter = self.plan().time.saturating_sub(step);
            if !self.attempt(|edits| edits.millis = Some(shorter.as_millis() as u64)) {
                step /= 2;
            }
        }
    }

    /// Leaves out half of them, a quarter, and so on.
    fn faults(&mut self) {
        let mut size = self.plan().faults.len();
        while size > 0 {
            let mut at = 0;
            loop {
                let all: Vec<usize> = self.plan().faults.iter().map(|one| one.number).collect();
                if at >= all.len() {
                    break;
                }
                let part = at..(at + size).min(all.len());
                let outside = |(place, _): &(usize, &usize)| !part.contains(place);
                let kept = all.iter().enumerate().filter(outside).map(|(_, number)| *number);
                let kept: Vec<usize> = kept.collect();
                if !self.attempt(|edits| edits.faults = Some(kept)) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn machines(&mut self) {
        let all: Vec<usize> = self.plan().machines.iter().map(|machine| machine.slot).collect();
        for slot in all {
            let plan = self.plan();
            let slots = plan.machines.iter().map(|machine| machine.slot);
            let kept: Vec<usize> = slots.filter(|other| *other != slot).collect();
            if !kept.is_empty() {
                self.attempt(|edits| edits.machines = Some(kept));
            }
        }
    }

    fn tasks(&mut self) {
        loop {
            let most = self.plan().machines.iter().map(|machine| machine.tasks).max().unwrap_or(1);
            let fewer = |tasks: u16| move |edits: &mut Edits| edits.tasks = Some(tasks);
            if most <= 1 || !self.attempt(fewer(most / 2)) && !self.attempt(fewer(most - 1)) {
                return;
            }
        }
    }
}
