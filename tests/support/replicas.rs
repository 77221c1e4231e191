//! A primary with replicas, which a test can hold up, cut off and promote.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{SOON, Server, block_until, free_port};

/// Servers that copy what one of them has been told. Which one that is may change.
pub(crate) struct Replicated {
    servers: Vec<Server>,
    primary: AtomicUsize,
}

/// A primary sends its data to new replicas at once.
const EAGER: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Replicated {
    /// A primary and so many replicas, all in step.
    pub(crate) fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[])
    }

    /// The same with more arguments for each server.
    pub(crate) fn start_with(replicas: usize, args: &[&str]) -> Self {
        let args = [&EAGER, args].concat();
        let servers = (0..=replicas).map(|_| Server::start_with(&args)).collect();
        let group = Self { servers, primary: AtomicUsize::new(0) };
        for replica in &group.servers[1..] {
            follow(replica, group.primary().port());
        }
        group.in_step();
        group
    }

    /// The one that this fixture last made the primary; the first one at the start.
    pub(crate) fn primary(&self) -> &Server {
        &self.servers[self.primary.load(Ordering::SeqCst)]
    }

    /// All of them, in the order in which they were started.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = &Server> {
        let primary = self.primary.load(Ordering::SeqCst);
        let others = self.servers.iter().enumerate().filter(move |(at, _)| *at != primary);
        others.map(|(_, server)| server)
    }

    /// The only replica, or the first of them.
    pub(crate) fn replica(&self) -> &Server {
        self.replicas().next().expect("a group with a replica")
    }

    /// Waits until every replica that is up has all that the primary has been told.
    pub(crate) fn in_step(&self) {
        for replica in self.replicas().filter(|replica| replica.is_up()) {
            in_step(replica, self.primary());
        }
    }

    /// From now on the replica hears nothing of the primary, and keeps what it has: what is
    /// granted now is lost when it becomes the primary. It still answers, and is still read-only.
    pub(crate) fn detach(&self, replica: &Server) {
        let before = replicas_of(self.primary());
        // Nobody listens there.
        follow(replica, free_port());
        block_until("one replica less", SOON, || replicas_of(self.primary()) < before);
    }

    /// Makes the replica a primary, as an operator does who believes that the primary is dead. It
    /// is the primary of this group from now on; the other one stays what it is.
    pub(crate) fn promote(&self, replica: &Server) {
        replica.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
        self.leads(replica);
    }

    /// A planned change of the two, which loses nothing: the command FAILOVER. Returns the new
    /// primary when the old one is its replica, in step.
    pub(crate) fn failover(&self) -> &Server {
        let (old, new) = (self.primary(), self.replica());
        let port = new.port().to_string();
        old.ask::<()>(&["FAILOVER", "TO", "127.0.0.1", &port]);
        block_until("two changed roles", SOON, || is_primary(new) && !is_primary(old));
        self.leads(new);
        in_step(old, new);
        new
    }

    fn leads(&self, server: &Server) {
        let at = self.servers.iter().position(|other| other.port() == server.port());
        self.primary.store(at.expect("a server of this group"), Ordering::SeqCst);
    }
}

fn follow(replica: &Server, port: u16) {
    replica.ask::<()>(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

/// Whether the server itself believes that it is a primary.
pub(crate) fn is_primary(server: &Server) -> bool {
    server.info("role").as_deref() == Some("master")
}

/// How many replicas are connected.
fn replicas_of(primary: &Server) -> u64 {
    primary.info("connected_slaves").map_or(0, |count| count.parse().expect("a number"))
}

/// Waits until the replica has all that the primary has been told up to now, and is passed on what
/// is new.
pub(crate) fn in_step(replica: &Server, primary: &Server) {
    let offset = |server: &Server, name| {
        server.info(name).and_then(|offset| offset.parse::<u64>().ok()).unwrap_or(0)
    };
    block_until("a replica that is connected", SOON, || {
        replica.info("master_link_status").as_deref() == Some("up")
            && replica.info("master_port") == Some(primary.port().to_string())
            && is_online(replica, primary)
    });
    // Something new: of what follows its first copy a replica hears only when it has asked for it.
    primary.ask::<()>(&["PUBLISH", "news for replicas", ""]);
    let told = offset(primary, "master_repl_offset");
    let has_it = || offset(replica, "slave_repl_offset") >= told;
    block_until("a replica in step", SOON, has_it);
}

/// Whether the primary knows that the replica is through with its first copy.
fn is_online(replica: &Server, primary: &Server) -> bool {
    let port = format!(",port={},", replica.port());
    let info: String = primary.ask(&["INFO", "replication"]);
    let mut replicas = info.lines().filter(|line| line.starts_with("slave"));
    replicas.any(|line| line.contains(&port) && line.contains(",state=online,"))
}
