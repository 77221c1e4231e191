//! The fair lock: first come, first served over all clients.
//!
//! It differs from a plain one in its scripts, which keep a queue of the clients beside the lock: how a client gets its
//! place there, keeps it and loses it, `lua/fair.lua` says for the server, and `src/wait/entry.rs` for the client.

use crate::kind::Fair;

use super::Lock;

/// A [`Lock`] that is first come, first served, over all clients. Its guards are
/// [`LockGuard`](crate::LockGuard)s.
///
/// # What it promises
///
/// Waiters of fair locks have it in the order in which they came, whichever client they wait in. One
/// is passed over only if
///
/// - it came within a round trip of the other. The first call of a runtime comes when that has its connection
///   to Redis, which takes four round trips, and two more with TLS; in a cluster one more at a node that is new;
/// - its client did not answer for the [grace](crate::LockClientBuilder::fair_grace) when its turn
///   came, or was not subscribed then: it had lost its connection, or took longer than the grace to
///   subscribe. It stands where it stood when it asks again, once it is subscribed;
/// - Redis lost the queue, and the lock was free before the client asked again;
/// - the server's clock was set meanwhile: one that came before that may be passed over until it asks
///   again, within 30 s;
/// - the client that has the lock may serve its own waiters first, for its
///   [turn](crate::LockClientBuilder::fair_turn);
/// - a cluster moves the slot of the lock just then: clients may not get the messages;
/// - a plain [`lock()`](crate::LockClient::lock) or a Java service took the lock: those do not see the queue.
///
/// A waiter that gives up and comes again is a new waiter. [`try_lock_now`](Lock::try_lock_now) never
/// goes before one that waits. A nested hold never waits.
///
/// From the begin of an `unlock` until the next waiter in another client has the lock takes one round
/// trip; with a plain lock it takes two.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), redlatch::Error> {
/// let client = redlatch::LockClient::connect("redis://127.0.0.1/").await?;
/// let tickets = client.fair_lock("tickets");
/// let guard = tickets.lock().await?;
/// // Every caller that asked before this one has had the lock by now.
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// # When a client dies
///
/// | the next client in the queue | the others wait |
/// |---|---|
/// | has closed its connection | no longer: the release passes it over |
/// | is stopped, or its host is gone | for the grace, once |
/// | died before it was subscribed, within three round trips of its first call | until the grace after that call has ended |
/// | has a waiter whose task is never polled again | for the grace, once |
/// | has such a waiter, and has released the lock itself, or heard late of its turn | for the lease of that waiter, as with a plain lock |
///
/// If the client behind it is stopped, too, the others go on when they refresh their entries in the queue, within 3.3 s.
///
/// A client that was only slow stands first again. It measures how long its callers have waited, and each
/// request says so. So the order outlives the loss of the queue, of all data of the server, and a failover.
///
/// While a client is subscribed to a pattern that fits the channels of the lock, as with `PSUBSCRIBE *`,
/// Redis takes the dead for subscribed, and each of them costs the grace, too.
///
/// # Beside other locks of this name
///
/// A fair lock, a plain one and one of Redisson exclude each other, and only the waiters of fair
/// locks have an order. While some of those wait, the lock goes from one to the next and is never free in between: a
/// call that waits for it as a plain one, or in Redisson, has no turn until none of them waits. Redisson's `RFairLock` has a queue of its own, and does not see this one.
/// The first client in the queue listens to them, too, so a waiter asks at once when one of them is released. If that
/// client has died, or its oldest waiter has left before a younger one of its own, the next client notices it when it
/// refreshes its entry, within 3.3 s.
///
/// # Costs
///
/// | | round trips |
/// |---|---|
/// | an acquire, a release | 1, as for a plain lock |
/// | a turn of the next waiter of the same client, which came before all in others | 0 |
/// | a waiter whose client's turn comes | 1, which it does not wait for; and 1 by the next waiter of that client, for its entry, if the lock is held for longer than 10 ms |
/// | the client behind it | 1, if the turn has not ended a grace later |
/// | a client that waits | 1 every 3.3 s, for up to 100 locks; in a cluster for those of a slot |
/// | the last waiter of a client that leaves without the lock | 1 in the background; and 1 by the next client, if it was the first |
///
/// Each client listens on a channel of its own for each name, and the first one on that of the lock, too. Only the next one
/// in the order is woken. The lock costs Redis the same with ten clients in the queue and with ten thousand.
///
/// # In Redis
///
/// The lock is that of a Redisson `RLock`. The queue is in `redlatch_queue:{name}` and
/// `redlatch_waiting:{name}`, which expire 30 s after the last client has refreshed its entry. (If the
/// name has braces, a colon stands in their place: `redlatch_queue::na{me}`.) While a cluster moves
/// the slot, a call may have to wait until all keys of the lock are at one server, up to the
/// [command timeout](crate::LockClientBuilder::command_timeout), and fails after that.
pub type FairLock = Lock<Fair>;
