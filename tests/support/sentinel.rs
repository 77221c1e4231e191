//! A primary and two replicas that three Sentinels watch.
//!
//! Sentinels speak of masters and slaves, and so do the commands here; otherwise it is primary
//! and replica.

use std::collections::BTreeMap;
use std::time::Duration;

use super::replicas::is_primary;
use super::{Replicated, Server, block_until};

/// Two of three Sentinels agree when the primary has not answered for a second or a little more;
/// then they promote a replica.
pub(crate) struct Sentinels {
    group: Replicated,
    sentinels: Vec<Server>,
}

/// What the Sentinels call the primary, whoever it is.
pub(crate) const MASTER: &str = "the-master";

const QUORUM: usize = 2;

/// A failover has to be noticed, voted on and carried out. A Sentinel whose clock is set, or that stands still for two
/// seconds, does none of that for 30 s, unless it can be told otherwise ([`hurry`]).
const FAILOVER: Duration = Duration::from_secs(60);

impl Sentinels {
    /// All of them know of each other and of the replicas.
    pub(crate) fn start() -> Self {
        let group = Replicated::start(2);
        let port = group.primary().port();
        let lines = [
            format!("sentinel monitor {MASTER} 127.0.0.1 {port} {QUORUM}"),
            // Longer than the time between two pings, or one that was promoted just now would be
            // taken for dead before it has been asked.
            format!("sentinel down-after-milliseconds {MASTER} 1800"),
            format!("sentinel failover-timeout {MASTER} 3000"),
            format!("sentinel parallel-syncs {MASTER} 2"),
            "sentinel announce-ip 127.0.0.1".to_owned(),
        ];
        let sentinel = || Server::start_sentinel(&format!("{}\n", lines.join("\n")));
        let set = Self { group, sentinels: (0..3).map(|_| sentinel()).collect() };
        set.sentinels.iter().for_each(hurry);
        set.are_acquainted();
        set
    }

    /// Where the Sentinels are.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    pub(crate) fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The primary and the replicas, whichever is which.
    pub(crate) fn servers(&self) -> &[Server] {
        self.group.servers()
    }

    /// The server that a Sentinel says is the primary, once it believes so itself.
    pub(crate) fn master(&self) -> &Server {
        let mut master = None;
        block_until("a primary that knows of its role", FAILOVER, || {
            master = self.told().filter(|server| server.is_up() && is_primary(server));
            master.is_some()
        });
        master.expect("found above")
    }

    /// A planned failover: SENTINEL FAILOVER. Returns the new primary when the old one follows it
    /// and all Sentinels say so.
    pub(crate) fn failover(&self) -> &Server {
        let old = self.master();
        let sentinel = self.up().next().expect("a Sentinel that is up");
        // Refused while the last failover is not quite over.
        block_until("a failover that begins", FAILOVER, || {
            sentinel.try_ask::<()>(&["SENTINEL", "FAILOVER", MASTER]).is_ok()
        });
        let new = self.master_after(old);
        block_until("the old primary as a replica", FAILOVER, || !is_primary(old));
        self.are_acquainted();
        new
    }

    /// SIGKILL. Returns the one that was the primary; [`Sentinels::master_after`] it waits for
    /// the next.
    pub(crate) fn kill_master(&self) -> &Server {
        let master = self.master();
        master.kill();
        master
    }

    /// Waits for another primary than this one.
    pub(crate) fn master_after(&self, old: &Server) -> &Server {
        let mut master = None;
        block_until("another primary", FAILOVER, || {
            let all_say = self.up().all(|sentinel| told_by(sentinel) != Some(old.port()));
            master = self.told().filter(|told| told.port() != old.port() && is_primary(told));
            all_say && master.is_some()
        });
        master.expect("found above")
    }

    /// SIGKILL for all Sentinels.
    pub(crate) fn kill_sentinels(&self) {
        self.sentinels.iter().for_each(Server::kill);
    }

    /// Starts a killed Sentinel again, which knows what it knew.
    pub(crate) fn start_again(sentinel: &Server) {
        sentinel.start_again();
        hurry(sentinel);
    }

    fn up(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_up())
    }

    fn told(&self) -> Option<&Server> {
        let port = told_by(self.up().next().expect("a Sentinel that is up"))?;
        self.servers().iter().find(|server| server.port() == port)
    }

    /// Waits until every Sentinel that is up knows of all other Sentinels, of the same primary,
    /// and of the replicas that follow it: before, it could not tell of a failover, or not vote.
    pub(crate) fn are_acquainted(&self) {
        let replicas = self.servers().len() - 1;
        block_until("Sentinels that know of everybody", FAILOVER, || {
            let master = self.master().port();
            self.up().all(|sentinel| {
                let state: BTreeMap<String, String> = sentinel.ask(&["SENTINEL", "MASTER", MASTER]);
                let others = self.sentinels.len() - 1;
                state["port"] == master.to_string()
                    && state["flags"] == "master"
                    && state["num-other-sentinels"] == others.to_string()
                    && state["num-slaves"] == replicas.to_string()
            })
        });
    }
}

/// The configuration of a Sentinel that finds no others to agree with, and says so for ever.
pub(crate) fn conviction(host: &str, port: u16, epoch: u64) -> String {
    format!(
        "sentinel monitor {MASTER} {host} {port} 99\n\
         sentinel down-after-milliseconds {MASTER} 600000\n\
         sentinel config-epoch {MASTER} {epoch}\n"
    )
}

/// Has it do more often all that it does now and then. Redis 6.2 cannot be told so: there it takes
/// longer, and comes to the same.
fn hurry(sentinel: &Server) {
    // A replica has to have been asked within five pings to be promoted, and is asked every second.
    let quick = ["PING-PERIOD", "400", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200"];
    let patient = ["TILT-TRIGGER", "20000", "TILT-PERIOD", "1000"];
    if sentinel.try_ask::<()>(&[&["SENTINEL", "DEBUG"], &quick[..], &patient].concat()).is_ok() {
        let down = ["SENTINEL", "SET", MASTER, "down-after-milliseconds", "1000"];
        sentinel.ask::<()>(&down);
    }
}

/// The port on which the primary is, as far as this Sentinel knows.
fn told_by(sentinel: &Server) -> Option<u16> {
    let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
    let (_, port): (String, u16) = sentinel.try_ask(&ask).ok()?;
    Some(port)
}
