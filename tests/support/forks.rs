//! A fork of a process, which tells its parent whether all was well.
//!
//! It ends by a signal. `exit` takes locks of the standard library, and a thread that is not in the fork may have had one
//! of them when the process forked: then the fork would wait for it for ever.

use fork::Fork;
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process};

const WELL: Signal = Signal::USR1;

/// The process id of the fork, or `None` in the fork itself.
pub(crate) fn fork() -> Option<Pid> {
    match fork::fork().expect("forking") {
        Fork::Child => None,
        Fork::Parent(pid) => Some(Pid::from_raw(pid).expect("a process id")),
    }
}

/// The end of the fork.
pub(crate) fn end(well: bool) -> ! {
    let _ = kill_process(getpid(), if well { WELL } else { Signal::USR2 });
    std::process::abort()
}

/// Whether the fork ended and said that all was well.
pub(crate) fn went_well(status: WaitStatus) -> bool {
    status.terminating_signal() == Some(WELL.as_raw())
}
