//! The fenced locks: their guards have a token for the store that they write to.
//!
//! They differ from the others in a second key of the acquire script.

use crate::kind::{Fair, Fenced};

use super::Lock;

/// A [`Lock`] whose guards have a [`token`](crate::LockGuard::token): they are
/// [`FencedLockGuard`](crate::FencedLockGuard)s.
///
/// # Why
///
/// No lease keeps a paused holder from going on after it has lost the lock. A store can refuse its
/// writes: each write carries the token of its hold, and the store refuses a token that is lower
/// than one that it has seen.
///
/// ```sql
/// UPDATE accounts SET balance = :balance, token = :token WHERE id = :id AND token <= :token
/// ```
///
/// Tokens grow with every hold of the name. A nested hold has the token of the outer one. A restart
/// of Redis with no data does not turn them back, because a token is at least the server's time in
/// microseconds. (Both at once would: no data, and a clock behind the last token.)
/// `examples/fenced_write.rs` shows it on a database.
///
/// It costs the round trips that a plain lock costs. A hand-off inside the client takes none while the client has
/// tokens for its waiters, which it draws when one of them gets the lock from Redis; where none is left, it
/// releases the lock instead.
///
/// # Examples
///
/// ```no_run
/// # async fn write_balance(_: i64, _: redlatch::FencingToken) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let lock = client.fenced_lock("account:7");
/// let guard = lock.lock().await?;
/// write_balance(100, guard.token()).await;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// # In Redis
///
/// The token of `name` is the key `redisson_lock_token:{name}`, as for Redisson's `RFencedLock`,
/// and both libraries increment the same counter. It has no TTL: if the key expired, a service on
/// Redisson would start again from the first token. So a fenced name that was used once leaves a
/// small key for good. A call that is refused uses up no token, one that is dropped may, and a client
/// whose calls wait draws several at once. `force_unlock` leaves the counter, so that the next hold has a
/// higher token.
pub type FencedLock = Lock<Fenced>;

/// A [`FairLock`](crate::FairLock) whose guards have a [`token`](crate::LockGuard::token): they are
/// [`FencedLockGuard`](crate::FencedLockGuard)s.
///
/// It has the order, the promises and the keys of a fair lock, and the tokens of a
/// [`FencedLock`], which counts them by the same key. Its waiters stand in one queue with
/// those of the fair lock of that name.
///
/// # Costs
///
/// It costs what a fair lock costs, but for what needs a token, which only Redis can give:
///
/// | from the begin of an `unlock` | round trips |
/// |---|---|
/// | until the next waiter of the same client has the lock | 0 while the client has tokens for its waiters; else 2 |
/// | until the next waiter in another client has it | 1, with its token |
///
/// The client draws tokens for all its waiters when one of them gets the lock from Redis.
///
/// Where such a grant brings no token, because a handle without tokens released the lock or the message was lost, it is 2,
/// and a call that is never polled again keeps the others waiting for its lease, not for the grace.
///
/// # Examples
///
/// ```no_run
/// # async fn print(_: redlatch::FencingToken) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let printer = client.fenced_fair_lock("printer");
/// let guard = printer.lock().await?;
/// // The printer refuses what comes with a lower token than it has seen.
/// print(guard.token()).await;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type FencedFairLock = Lock<Fenced<Fair>>;
