//! Who holds a lock, and what waits for it: one of a name, or all whose names have a pattern.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Error;
use crate::peer::Peer;
use crate::protocol::{Mode, Names, Seen, SeenHolder, SeenWaiter, Sight, Survey};
use crate::token::FencingToken;

mod locks;
pub use locks::Locks;

/// A lock as Redis has it at one time: [`LockClient::inspect`] and [`LockClient::locks`].
///
/// [`LockClient::inspect`]: crate::LockClient::inspect
/// [`LockClient::locks`]: crate::LockClient::locks
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let Some(lock) = client.inspect("order:4711").await? else { return Ok(()) };
/// for holder in &lock.holders {
///     let label = holder.label.as_deref().unwrap_or("no label");
///     println!("{} holds it: {:?}, process {:?}, {label}", holder.owner, holder.host, holder.pid);
/// }
/// for client in &lock.waiting {
///     println!("{} has waited for {:?}", client.id, client.age);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name of the lock, without the prefix of this client.
    pub name: String,
    /// What kind of lock it is, as far as Redis shows it.
    pub kind: InspectedKind,
    /// The holders: one, or several that read. Empty if clients wait for the lock that have yet to come; at most some
    /// hundreds.
    pub holders: Vec<Holder>,
    /// What is left of the lease of the lock, which ends with the longest of its readers';
    /// [`Duration::MAX`] if another program has removed the key's TTL. Zero without a holder.
    pub lease_left: Duration,
    /// The last fencing token that was drawn for the name: no holder has a higher one. `None` if none ever was.
    pub token: Option<FencingToken>,
    /// The clients in the queue of a fair lock or of a read-write lock, the oldest first; the first hundred of them.
    /// Clients that wait for other locks are in no queue.
    pub waiting: Vec<WaitingClient>,
}

/// What kind of lock an [`Inspection`] is of, as far as Redis shows it. A lock of Redisson is of the kind that it is on
/// the wire, and each lock of a [multi lock](crate::MultiLock) is a lock like any other.
///
/// # Examples
///
/// ```
/// use redlatch::InspectedKind;
///
/// fn is_shared(kind: InspectedKind) -> bool {
///     kind == InspectedKind::ReadWrite
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InspectedKind {
    /// Neither of the others.
    Lock,
    /// Fencing tokens have been drawn for the name.
    Fenced,
    /// Clients stand in the queue of a fair lock. Without them it is as any other lock in Redis.
    Fair,
    /// Both.
    FencedFair,
    /// A read-write lock.
    ReadWrite,
}

/// What a holder has of a read-write lock, or what a client waits for.
///
/// # Examples
///
/// ```
/// use redlatch::{HoldMode, Inspection};
///
/// fn writers(lock: &Inspection) -> usize {
///     lock.holders.iter().filter(|holder| holder.mode == Some(HoldMode::Write)).count()
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldMode {
    /// The holder shares the lock.
    Read,
    /// The holder has the lock alone.
    Write,
}

/// One that has a lock: a part of an [`Inspection`].
///
/// Machine, process and label are those of the client that the owner is of. They are known if it is one of this crate,
/// is connected to the server of the lock, and both users have the rights for it: `+client|setname` that of the holder,
/// `+client|list` that of this client. Else the owner alone is known, which begins with the id of the client.
///
/// # Examples
///
/// ```no_run
/// # fn example(lock: redlatch::Inspection) {
/// for holder in lock.holders.iter().filter(|holder| holder.host.is_none()) {
///     println!("{} may have died, or is Redisson's", holder.owner);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner in Redis: [`guard.owner()`](crate::LockGuard::owner).
    pub owner: String,
    /// How many holds it has. The readers of one client are one holder with one hold.
    pub count: u32,
    /// What it has of a read-write lock; `None` of any other.
    pub mode: Option<HoldMode>,
    /// For how long it has had the lock, if Redis granted it to a client that stood in the queue of a fair lock. Redis
    /// does not know it of any other.
    pub held_for: Option<Duration>,
    /// What is left of its own lease, if it reads: zero if it has died. `None` of any other holder.
    pub lease_left: Option<Duration>,
    /// The name of the machine; `-` if that does not say one.
    pub host: Option<String>,
    /// The process there.
    pub pid: Option<u32>,
    /// The [`label`](crate::LockClientBuilder::label) of its client.
    pub label: Option<String>,
}

/// A client in the queue of a lock: a part of an [`Inspection`]. For machine, process and label the same holds as for
/// those of a [`Holder`].
///
/// # Examples
///
/// ```no_run
/// # fn example(lock: redlatch::Inspection) {
/// let oldest = lock.waiting.first().map(|client| (client.age, client.label.as_deref()));
/// println!("the oldest waiter: {oldest:?}");
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingClient {
    /// The id of the client, which its owners begin with.
    pub id: String,
    /// For how long its oldest waiter has waited; `None` if the user may not ask for the server's time.
    pub age: Option<Duration>,
    /// What that waiter wants of a read-write lock; `None` of any other.
    pub mode: Option<HoldMode>,
    /// The name of the machine; `-` if that does not say one.
    pub host: Option<String>,
    /// The process there.
    pub pid: Option<u32>,
    /// The [`label`](crate::LockClientBuilder::label) of the client.
    pub label: Option<String>,
}

/// What an inspection needs to know of this client.
struct Own {
    id: String,
    peer: Peer,
}

impl Own {
    fn of(engine: &Engine) -> Self {
        let id = engine.possessions.id().to_string();
        Self { id, peer: Peer::here(engine.config.label.as_deref()) }
    }

    fn peer<'a>(&'a self, seen: &'a Seen, client: &str) -> Option<&'a Peer> {
        if client == self.id { Some(&self.peer) } else { seen.peers.get(client) }
    }
}

impl Inspection {
    pub(crate) async fn of(engine: &Engine, name: &str) -> Result<Option<Self>, Error> {
        let look = async {
            if name.is_empty() {
                return Err(Error::invalid("the name of a lock is empty"));
            }
            let call = engine.new_call()?;
            let names = Names::new(&engine.config.name_prefix, name);
            names.check(&engine.router)?;
            let own = Own::of(engine);
            let seen = call.look_at(names, Some(|client: &str| client == own.id)).await?;
            Ok(seen.and_then(|seen| Self::all(engine, &own, seen).into_iter().next()))
        };
        engine.call(name, look).await
    }

    /// What was seen, in words of the public.
    fn all(engine: &Engine, own: &Own, mut seen: Seen) -> Vec<Self> {
        let locks = std::mem::take(&mut seen.locks);
        let one = |(names, sight): (Names, Sight)| {
            let name = engine.config.without_prefix(names.key()).to_owned();
            Self::new(name, sight, &seen, own)
        };
        locks.into_iter().map(one).collect()
    }

    fn new(name: String, sight: Sight, seen: &Seen, own: &Own) -> Self {
        let is_shared = sight.mode.is_some() || sight.waiting.iter().any(|one| one.wants.is_some());
        let kind = match (is_shared, sight.token, sight.waiting.is_empty()) {
            (true, ..) => InspectedKind::ReadWrite,
            (_, None, true) => InspectedKind::Lock,
            (_, Some(_), true) => InspectedKind::Fenced,
            (_, None, false) => InspectedKind::Fair,
            (_, Some(_), false) => InspectedKind::FencedFair,
        };
        let holder = |holder| Holder::new(holder, seen, own);
        let waiter = |waiter| WaitingClient::new(waiter, seen, own);
        Self {
            name,
            kind,
            lease_left: sight.remaining,
            token: sight.token,
            holders: sight.holders.into_iter().map(holder).collect(),
            waiting: sight.waiting.into_iter().map(waiter).collect(),
        }
    }
}

/// Where a client is, as far as that is known.
fn place(peer: Option<&Peer>) -> (Option<String>, Option<u32>, Option<String>) {
    let label = peer.and_then(|peer| peer.label.as_deref());
    (peer.map(|peer| (*peer.host).into()), peer.map(|peer| peer.pid), label.map(Into::into))
}

/// For how long it has been so, by the clock of the server.
fn since(seen: &Seen, micros: u64) -> Option<Duration> {
    seen.now.map(|now| Duration::from_micros(now.saturating_sub(micros)))
}

impl Holder {
    fn new(holder: SeenHolder, seen: &Seen, own: &Own) -> Self {
        let (host, pid, label) = place(own.peer(seen, holder.client()));
        Self {
            count: holder.count,
            mode: holder.mode.map(HoldMode::from),
            held_for: holder.since.and_then(|micros| since(seen, micros)),
            lease_left: holder.remaining,
            owner: holder.owner,
            host,
            pid,
            label,
        }
    }
}

impl WaitingClient {
    fn new(waiter: SeenWaiter, seen: &Seen, own: &Own) -> Self {
        let (host, pid, label) = place(own.peer(seen, &waiter.client));
        let age = since(seen, waiter.since);
        let mode = waiter.wants.map(HoldMode::from);
        Self { id: waiter.client, age, mode, host, pid, label }
    }
}

impl From<Mode> for HoldMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Read => Self::Read,
            Mode::Write => Self::Write,
        }
    }
}

/// The locks whose names have a pattern, one page after the other.
async fn next_page(
    engine: Arc<Engine>,
    mut survey: Box<Survey>,
) -> (Box<Survey>, Option<Result<Vec<Inspection>, Error>>) {
    let look = async {
        if engine.waiters.is_closed() {
            return Err(Error::closed());
        }
        let own = Own::of(&engine);
        let seen = survey.next(&engine.router).await.transpose()?;
        Ok(seen.map(|seen| Inspection::all(&engine, &own, seen)))
    };
    let page = engine.run(look).await.transpose();
    (survey, page)
}
