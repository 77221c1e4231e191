//! What follows when a lock is passed on to the next in line of the same client.
//!
//! 1. **The new holder comes first.** To wake another thread takes longer than to go on with the
//!    next task on this one; so Redis is told, and the line moves up, a turn of the runtime later.
//!    Where there is no other worker that could do it if the new holder blocks this one, it is
//!    done at once; and by the drop of a [`Wake`], whatever becomes of the call.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::holds::{Gate, Granted, Owner};
use crate::relay::{Confirmed, Relay};
use crate::turn::turn;
use crate::waiters::Stirred;

use super::{Debt, Job, Releaser};

/// What is left to do when a lock has been passed on: less urgent than whoever has it now.
#[derive(Default)]
pub(super) struct Passage {
    confirmed: Option<Confirmed>,
    pub(super) jobs: Vec<Job>,
    pub(super) stirred: Stirred,
}

/// Wakes whoever has something to do after a hand-over, when it is dropped.
pub(super) struct Wake<'a> {
    pub(super) releaser: &'a Releaser,
    pub(super) passage: Passage,
}

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        let Self { releaser, passage } = self;
        releaser.relay.stir(std::mem::take(&mut passage.stirred));
        for job in passage.jobs.drain(..) {
            // It fails only when the client's thread has ended; then the lease ends the hold.
            let _ = releaser.jobs.send(job);
        }
    }
}

/// Passes the lock on to the next in line. `None` if it has to be released.
pub(super) fn pass(
    relay: &Relay,
    owner: &Arc<Owner>,
    gate: &mut Option<Gate>,
    tell: bool,
) -> Option<Passage> {
    let mut passed = relay.pass(owner, gate, tell)?;
    let mut passage = Passage { confirmed: passed.confirmed.take(), ..Passage::default() };
    loop {
        passage.stirred.and(passed.stirred);
        if passed.carry {
            passage.jobs.push(Job::Carry(owner.clone()));
        }
        // Whoever goes just as the lock comes gives it back, like a dropped guard.
        let Some((owner, Granted { hold, lease, .. })) = passed.declined else {
            return Some(passage);
        };
        owner.account.lock().give_back(hold);
        let mut gate = None;
        passed = match relay.pass(&owner, &mut gate, false) {
            Some(passed) => passed,
            None => {
                passage.jobs.push(Job::Pay(Debt { owner, gate, wire: None, lease }));
                return Some(passage);
            }
        };
    }
}

/// Lets a hand-over take its course, and says what comes of it.
pub(super) async fn confirmed(
    releaser: &Releaser,
    mut passage: Passage,
    deadline: Instant,
) -> Result<bool, Error> {
    let told = passage.confirmed.take();
    let wake = Wake { releaser, passage };
    if !wake.passage.jobs.is_empty() && Handle::current().metrics().num_workers() > 1 {
        turn().await;
    }
    drop(wake);
    if seeded!("told-unconfirmed") {
        return Ok(true);
    }
    let told = told.expect("BUG: nobody tells of a hand-over");
    match clock::timeout_at(deadline, told).await {
        Ok(Ok(confirmed)) => confirmed,
        _ => {
            let message = "no answer for a hand-over";
            Err(Error::new(ErrorKind::Unavailable, Outcome::Unknown, message))
        }
    }
}
