//! The client: where handles come from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::LockClientBuilder;
use crate::engine::{Engine, Shutdown};
use crate::error::Error;
use crate::inspection::{Inspection, Locks};
use crate::lock::{FairLock, FencedFairLock, FencedLock, Lock, MultiLock};
use crate::read_write::{FencedReadWriteLock, ReadWriteLock};
use crate::stats::{Health, Stats};

/// A client of the locks in one Redis: a server, a primary with Sentinels, or a cluster. Cloning is
/// cheap, and all clones are the same client.
///
/// It has a connection to each server for each Tokio runtime that calls, and a thread of its own
/// that renews leases, listens for wake-ups, releases dropped guards and keeps up with failovers.
/// [`connect`](Self::connect) makes the connections of the thread and of the runtime that calls it, and
/// [`connect_lazy`](LockClientBuilder::connect_lazy) leaves that to the first call; the client keeps
/// them, and replaces a broken one at once. Thread and connections end by
/// themselves when the client, its handles and its guards are dropped.
///
/// # Forking
///
/// A client belongs to the process that connected it. In a child that was forked from that process,
/// every call of the client, its handles and its guards that would ask Redis returns
/// [`Closed`](crate::ErrorKind::Closed) at once, one that needs a valid guard first returns `Lost`,
/// [`close`](Self::close) and [`shutdown`](Self::shutdown) do nothing, every guard is
/// lost, and drops do nothing. The parent keeps its locks and its connections. A child that needs
/// locks connects a client of its own, which waits for the locks of the parent's.
///
/// That is true for the client only. A Tokio runtime does not survive a fork either: the child must
/// not drop the parent's runtime, and must not wait on it, because both share its epoll instance.
/// A future that was polled before the fork may be dropped in the child, and must not be polled.
/// The client notices a child that `fork` of the C library made. One that `_Fork`, `clone`, `vfork` or
/// a raw system call made is taken for its parent. So is code that another library runs in the child
/// by `pthread_atfork`, if it registered before the first client of the process connected.
///
/// # Paused time
///
/// Tests can pause the time of their runtime (`#[tokio::test(start_paused = true)]`,
/// `tokio::time::pause`). Redis does not know of that, so the client goes by real time there, too: its
/// waits, its leases and its timeouts take as long as ever, and it does not spin meanwhile. A timeout that
/// the test puts around a call is the runtime's, and ends as soon as nothing else is ready to run. With the
/// feature `test-util`, a client of `redlatch::test_util::Redis` goes by the paused time.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), redlatch::Error> {
/// use redlatch::LockClient;
///
/// let client = LockClient::connect("redis://127.0.0.1/").await?;
/// let lock = client.lock("nightly-report");
/// let guard = lock.lock().await?;
/// // One process at a time is here.
/// guard.unlock().await?;
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    engine: Arc<Engine>,
}

impl LockClient {
    /// Connects with the default options. For others, see [`builder`](Self::builder); for the address,
    /// [`LockClientBuilder::url`].
    ///
    /// It makes two connections, one for this runtime and one for the client's thread, has the server load
    /// the scripts, and tries all that once. Each connection takes three or four round trips, two more with TLS,
    /// and each of those may take the command timeout. If the server's `maxmemory-policy` may evict locks, the
    /// client logs a warning.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unusable address,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server answers there, or if the client's
    /// thread, its runtime or its connection cannot be made, and
    /// [`Server`](crate::ErrorKind::Server) if the server refuses the user or the password, or is older than
    /// Redis 6.2.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).connect().await
    }

    /// The options, which the caller sets before connecting.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::default()
    }

    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine: Arc::new(engine) }
    }

    /// Makes a handle to the lock of that name: with every call a new one, which waits for the others. No I/O.
    ///
    /// Every call on the handle refuses the empty name, and in a [cluster](LockClientBuilder::cluster)
    /// a name whose braces are no hash tag; any other will do. The name is the key in Redis, after the
    /// [prefix](LockClientBuilder::name_prefix) if there is one.
    #[must_use]
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the fenced lock of that name, whose guards have a
    /// [`FencingToken`](crate::FencingToken) for the store that they write to. Plain, fenced and fair locks of one name
    /// exclude each other. No I/O.
    #[must_use]
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock {
        Lock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the fair lock of that name, whose waiters have it in the order in which they came,
    /// whichever client they wait in. Plain, fenced and fair locks of one name exclude each other. No I/O.
    #[must_use]
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock {
        Lock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the fair lock of that name whose guards have a
    /// [`FencingToken`](crate::FencingToken). Plain, fenced and fair locks of one name exclude each other. No I/O.
    #[must_use]
    pub fn fenced_fair_lock(&self, name: impl AsRef<str>) -> FencedFairLock {
        Lock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the read-write lock of that name, whose readers share it: with every call a new one. A
    /// plain lock of that name is another kind of lock: give them different names. No I/O.
    #[must_use]
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the read-write lock of that name whose guards have a
    /// [`FencingToken`](crate::FencingToken): a writer a new one, and a reader that of the last writer. No I/O.
    #[must_use]
    pub fn fenced_read_write_lock(&self, name: impl AsRef<str>) -> FencedReadWriteLock {
        ReadWriteLock::new(self.engine.clone(), name.as_ref())
    }

    /// Makes a handle to the locks of all these names, which it acquires together: all of them or none. A name
    /// that comes twice counts once, and the order does not matter. Each name excludes the [`lock`](Self::lock) of
    /// that name. No I/O.
    ///
    /// Every call on the handle refuses an empty list, and each name that a call on a single lock refuses.
    #[must_use]
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(self.engine.clone(), names)
    }

    /// What this client has done since it was made, and what it does now: counts of calls, renewals and losses. Local
    /// knowledge, no I/O. It looks at each lock that the client has. All zero in a [forked child](Self#forking).
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.engine)
    }

    /// Whether this client can work, and whether the code that holds its locks has heard of their losses. Local
    /// knowledge, no I/O: what it says of a server is what the client's connections say. A
    /// [lazy](LockClientBuilder::connect_lazy) client begins to connect, as with its first call. In a [forked
    /// child](Self#forking) it is not ready.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.engine)
    }

    /// Asks Redis who holds the lock of that name, of whatever kind it is, and which clients wait for it in order; `None`
    /// if no client does either. For people in an incident: what it says may be over when it is here.
    ///
    /// One round trip if no client has it or waits for it in order, else two; in the second one the server lists its
    /// clients, unless only this client has the lock and none waits in order. That list takes the server some microseconds for each of its connections. It only reads,
    /// by plain commands, so a user who may write nothing can ask: the guide to [deployment](crate::guide::deployment)
    /// lists the rights.
    ///
    /// # Errors
    ///
    /// As for [every call](crate::Lock#errors) on a handle: [`NotALock`](crate::ErrorKind::NotALock) if the key holds
    /// something else, say.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Inspection>, Error> {
        Inspection::of(&self.engine, name.as_ref()).await
    }

    /// All locks that are held and whose names match a pattern, as [`inspect`](Self::inspect) shows them, from every
    /// server that has locks: those of Redisson, too. The pattern is that of Redis' `SCAN` (`order:*`, `order:?[0-9]`, with
    /// a backslash before a character that stands for itself), and is about names without this client's
    /// [prefix](LockClientBuilder::name_prefix); other applications' locks are not among them then.
    ///
    /// A lock that is held all the time comes at least once, with one exception: it may be missed if its slot of a cluster
    /// moves meanwhile to a server that was looked at before, or that is new in the cluster. It may come twice while the
    /// server rearranges its keys or a slot moves. One that is acquired or released meanwhile may come. The stream sends nothing before it is
    /// polled. It asks for some 200 keys at a time, looks at 100 of them with two requests or three, and has no more in memory:
    /// of a hash that is no lock it reads two names of fields. It asks each server once for the list of its clients. Of a
    /// client that connects later, and of a lock whose slot moves just then, it knows only the owners. In a cluster it first
    /// has the client's thread fetch a map of the slots.
    ///
    /// It measures how long its requests take on the server, and pauses for 99 times as long before the next ones, but for no
    /// longer than the [command timeout](LockClientBuilder::command_timeout): so it takes about a hundredth of the server's
    /// time, and 10,000 locks take some seconds. The first ones come at once.
    ///
    /// # Errors
    ///
    /// An empty pattern is [`InvalidArgument`](crate::ErrorKind::InvalidArgument), and a closed client
    /// [`Closed`](crate::ErrorKind::Closed): then the stream ends. Any other error stands for
    /// the locks of one server that did not answer, or refused a command; each kind of trouble comes once a server. The stream
    /// goes on with the next server, or with the other keys of this one. Keys that the user may not read are left out.
    ///
    /// # Panics
    ///
    /// When it is polled, as for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// It only reads; drop the stream at any time.
    pub fn locks(&self, pattern: impl AsRef<str>) -> Locks {
        Locks::new(self.engine.clone(), pattern.as_ref())
    }

    /// Refuses new calls, ends waiting ones with [`Closed`](crate::ErrorKind::Closed), waits until
    /// Redis has confirmed the releases in the background, at most for the command timeout, and stops
    /// renewing. Await it before a process ends; if guards may be alive then, await [`shutdown`](Self::shutdown) instead, which
    /// waits for them, and leaves no lock of theirs behind.
    ///
    /// A guard that outlives it is lost at its deadline; until then `unlock` still works, and
    /// dropping it still gives the lock back. Closing again does no harm. In a
    /// [forked child](Self#forking) it does nothing.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped half-way, the client still refuses new calls, and releases go on in
    /// the background; call it again to wait for them.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Closes the client without leaving a lock behind, as when a process receives `SIGTERM`: other clients get its
    /// locks within round trips, and not when their leases end.
    ///
    /// Refuses new calls at once, nested ones as well, and ends waiting ones with [`Closed`](crate::ErrorKind::Closed).
    /// Then it waits until the guards are dropped or unlocked, and Redis has answered what is under way, for `patience` at
    /// most, and renews their leases meanwhile. So in an outage it takes all of its `patience` if a release is pending.
    /// After that it sets the guards that are still alive to lost, with [`Loss::Closed`](crate::Loss::Closed), and then
    /// releases their locks: a holder knows its loss before another client can get the lock. In the end it waits until
    /// Redis has confirmed all releases, for the command timeout at most, and stops renewing. It returns what was left.
    ///
    /// A lock that [`hold_at_least`](crate::LockGuard::hold_at_least) keeps stays until that time. A guard that is lost is
    /// no holder: the call does not wait for it. Call it from as many places as you like: each waits for its own
    /// `patience`, the shortest one ends the holders, and each result names what that call has released. In a
    /// [forked child](Self#forking) it does nothing.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped half-way, the client still refuses new calls. Guards that it has not released stay as
    /// they are, and their leases are renewed until they are dropped or unlocked; releases go on in the background. Call
    /// it again to go on.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redlatch::LockClient) {
    /// use std::time::Duration;
    ///
    /// // After SIGTERM. Kubernetes kills the process 30 s later.
    /// let left = client.shutdown(Duration::from_secs(20)).await;
    /// if !left.is_clean() {
    ///     eprintln!("{left:?}");
    /// }
    /// # }
    /// ```
    pub async fn shutdown(&self, patience: Duration) -> Shutdown {
        self.engine.shutdown(patience).await
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Engine { process, .. } = &*self.engine;
        let mut shown = f.debug_struct("LockClient");
        shown.field("id", &self.engine.possessions.id());
        // In a forked child a mutex of the parent may be locked for ever.
        if process.is_this_one() {
            shown.field("redis", &self.engine.router);
            shown.field("held", &self.engine.possessions.held());
            shown.field("closed", &self.engine.waiters.is_closed());
        }
        shown.finish_non_exhaustive()
    }
}
