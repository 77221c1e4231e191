//! Clients that wait in the queue of a lock that Redisson has: they hear of its release at once, although Redisson
//! publishes on the common channel of the lock alone.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::prelude::*;

/// A round trip to the server.
const AWAY: Duration = ms(20);
/// Long enough for a waiter to be parked.
const PARKS: Duration = ms(300);
const NAME: &str = "shared";
/// The key that lasts as long as the lease of a reader of Redisson.
const MARKER: &str = "{shared}:theirs:1:rwlock_timeout:1";

/// What a client of ours waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Fair,
    Read,
    Write,
}

impl Wants {
    /// The one on which Redisson publishes.
    fn channel(self) -> String {
        let kind = if self == Self::Fair { "redisson_lock__channel" } else { "redisson_rwlock" };
        format!("{kind}:{{{NAME}}}")
    }
}

/// How many clients listen on that channel.
fn listen(scene: &Scene, wants: Wants) -> u64 {
    let (_, many): (String, u64) = scene.ask(&["PUBSUB", "NUMSUB", &wants.channel()]);
    many
}

/// What a thread of Redisson has.
#[derive(Debug, Clone, Copy)]
enum Has {
    Plain,
    Read,
    Write,
}

impl Has {
    /// What keeps that waiter out.
    fn before(wants: Wants) -> Vec<Self> {
        match wants {
            Wants::Fair => vec![Self::Plain],
            Wants::Read => vec![Self::Write],
            Wants::Write => vec![Self::Write, Self::Read],
        }
    }

    fn takes(self, scene: &Scene) {
        let mode = |mode| scene.ask::<()>(&["HSET", NAME, "mode", mode]);
        let owner = match self {
            Self::Plain => "theirs:1",
            Self::Read => {
                scene.ask::<()>(&["SET", MARKER, "1", "PX", "60000"]);
                mode("read");
                "theirs:1"
            }
            Self::Write => {
                mode("write");
                "theirs:1:write"
            }
        };
        scene.ask::<()>(&["HSET", NAME, owner, "1"]);
        scene.ask::<()>(&["PEXPIRE", NAME, "60000"]);
    }

    fn gives_back(self, scene: &Scene) {
        let (wants, message) = match self {
            Self::Plain => (Wants::Fair, "0"),
            Self::Read => (Wants::Read, "0"),
            Self::Write => (Wants::Write, "1"),
        };
        scene.ask::<()>(&["DEL", NAME, MARKER]);
        scene.ask::<()>(&["PUBLISH", &wants.channel(), message]);
    }
}

/// Waits for it, says when it got it, and holds it until it hears to let go.
fn waits(
    client: &LockClient,
    wants: Wants,
) -> BoxFuture<'static, (Instant, BoxFuture<'static, ()>)> {
    let (fair, shared) = (client.fair_lock(NAME), client.read_write_lock(NAME));
    async move {
        match wants {
            Wants::Fair => {
                let guard = fair.lock().await.expect("the lock");
                (Instant::now(), async { guard.unlock().await.expect("a release") }.boxed())
            }
            Wants::Read | Wants::Write => {
                let guard = Side::of(&shared, wants == Wants::Write).await;
                (Instant::now(), guard.unlock().boxed())
            }
        }
    }
    .boxed()
}

fn each_pair(test: impl Fn(Wants, Has)) {
    for wants in [Wants::Fair, Wants::Read, Wants::Write] {
        for has in Has::before(wants) {
            test(wants, has);
        }
    }
}

/// The message is there after half a round trip, and the answer to the request one after that.
const HEARS: Duration = ms(30);

/// Redisson gives it back, and that waiter has it as soon as it can.
async fn hears_at_once(
    scene: &Scene,
    waiter: JoinHandle<(Instant, BoxFuture<'static, ()>)>,
    has: Has,
    wants: Wants,
) {
    let begun = Instant::now();
    has.gives_back(scene);
    let (got, unlock) = waiter.await.expect("no panic");
    assert_eq!(got - begun, HEARS, "{wants:?} after {has:?}");
    unlock.await;
}

#[test]
fn a_waiter_has_the_lock_at_once_that_redisson_gives_back() {
    each_pair(|wants, has| {
        play(0, async |scene| {
            let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
            has.takes(scene);
            let waiter = machine.spawn(waits(&client, wants));
            sleep(PARKS).await;
            hears_at_once(scene, waiter, has, wants).await;
        });
    });
}

#[test]
fn the_second_in_the_queue_has_it_at_once_after_the_first_has_left() {
    each_pair(|wants, has| {
        play(0, async |scene| {
            let first = scene.client(AWAY, LockClient::builder()).await;
            let (machine, second) = scene.client(AWAY, LockClient::builder()).await;
            has.takes(scene);
            let leaves = first.0.spawn(waits(&first.1, wants));
            sleep(PARKS).await;
            let waiter = machine.spawn(waits(&second, wants));
            sleep(PARKS).await;
            assert_eq!(listen(scene, wants), 1, "the second would ask in vain");
            leaves.abort();
            sleep(PARKS).await;
            hears_at_once(scene, waiter, has, wants).await;
        });
    });
}

/// Nothing is published when a lease ends by itself, and Redisson does not notify the first that it has its turn, nor the
/// second of that.
#[test]
fn the_second_in_the_queue_hears_of_the_lease_of_a_first_that_follows_redisson() {
    /// Longer than the grace, and shorter than the time until the second asks by itself.
    const LEASE: Duration = ms(1_500);
    each_pair(|wants, has| {
        play(0, async |scene| {
            let (near, first) = scene.client(AWAY, LockClient::builder()).await;
            let (machine, second) = scene.client(AWAY, LockClient::builder()).await;
            has.takes(scene);
            let (fair, shared) = (first.fair_lock(NAME), first.read_write_lock(NAME));
            let hangs = near.spawn(async move {
                // A guard that is dropped may release the lock.
                let _guard = match wants {
                    Wants::Fair => Ok(fair.lock_with_lease(LEASE).await.expect("the lock")),
                    _ => Err(shared.write_with_lease(LEASE).await.expect("to write")),
                };
                std::future::pending::<()>().await;
            });
            sleep(PARKS).await;
            let waiter = machine.spawn(waits(&second, wants));
            sleep(PARKS).await;
            let begun = Instant::now();
            has.gives_back(scene);
            let (got, unlock) = waiter.await.expect("no panic");
            let took = got - begun;
            assert!(took >= LEASE && took <= LEASE + 2 * HEARS, "{wants:?}, {has:?}: {took:?}");
            unlock.await;
            hangs.abort();
        });
    });
}

/// Redisson knows no queue, and is there before a client that has its turn.
#[test]
fn a_waiter_whose_turn_redisson_has_taken_has_the_lock_at_once_after_that() {
    each_pair(|wants, has| {
        if wants == Wants::Fair {
            return; // The release grants it.
        }
        play(0, async |scene| {
            let first = scene.client(AWAY, LockClient::builder()).await;
            let (machine, second) = scene.client(AWAY, LockClient::builder()).await;
            let guard = first.1.read_write_lock(NAME).write().await.expect("the lock");
            let waiter = machine.spawn(waits(&second, wants));
            sleep(PARKS).await;
            let release = first.0.spawn(async move { guard.unlock().await });
            // The message is on its way.
            sleep(AWAY / 2 + ms(1)).await;
            has.takes(scene);
            release.await.expect("no panic").expect("a release");
            sleep(PARKS).await;
            hears_at_once(scene, waiter, has, wants).await;
        });
    });
}

/// The first in the queue reads beside a reader of Redisson. So the writer behind it is the first now, and is the next
/// one when that reader leaves.
#[test]
fn a_writer_behind_a_reader_of_ours_has_it_at_once_after_a_reader_of_redisson() {
    play(0, async |scene| {
        let first = scene.client(AWAY, LockClient::builder()).await;
        let (machine, second) = scene.client(AWAY, LockClient::builder()).await;
        Has::Write.takes(scene);
        let reader = first.0.spawn(waits(&first.1, Wants::Read));
        sleep(PARKS).await;
        let writer = machine.spawn(waits(&second, Wants::Write));
        sleep(PARKS).await;
        Has::Write.gives_back(scene);
        let (_, unlock) = reader.await.expect("no panic");
        Has::Read.takes(scene);
        first.0.spawn(unlock).await.expect("no panic");
        // The grace, after which it asks.
        sleep(ms(1_000) + PARKS).await;
        hears_at_once(scene, writer, Has::Read, Wants::Write).await;
    });
}

/// A release of ours is heard on both channels, and asked after once: or not at all, if it brings a grant.
#[test]
fn a_waiter_that_listens_to_redisson_too_asks_no_more_often_after_a_release_of_ours() {
    for wants in [Wants::Fair, Wants::Write] {
        play(0, async |scene| {
            let first = scene.client(AWAY, LockClient::builder()).await;
            let (machine, second) = scene.client(AWAY, LockClient::builder()).await;
            let (_, unlock) = first.0.spawn(waits(&first.1, wants)).await.expect("no panic");
            let waiter = machine.spawn(waits(&second, wants));
            sleep(PARKS).await;
            assert_eq!(listen(scene, wants), 1);
            let before = scene.calls("evalsha");
            first.0.spawn(unlock).await.expect("no panic");
            let (_, unlock) = waiter.await.expect("no panic");
            sleep(PARKS).await;
            machine.spawn(unlock).await.expect("no panic");
            assert_eq!(scene.calls("evalsha") - before, 3, "{wants:?}");
        });
    }
}

/// To the server, calls that begin within a round trip of each other came one after the other: one of them is the first.
#[test]
fn of_clients_that_come_at_once_one_listens_to_redisson_and_a_release_wakes_one() {
    const MANY: usize = 6;
    play(0, async |scene| {
        let holder = scene.client(AWAY, LockClient::builder()).await;
        let (_, unlock) = holder.0.spawn(waits(&holder.1, Wants::Fair)).await.expect("no panic");
        let mut waiters = Vec::new();
        for _ in 0..MANY {
            waiters.push(scene.client(AWAY, LockClient::builder()).await);
        }
        let turn = |(machine, client): &(Machine, LockClient)| {
            let waits = waits(client, Wants::Fair);
            machine.spawn(async move { waits.await.1.await })
        };
        let turns: Vec<_> = waiters.iter().map(turn).collect();
        sleep(PARKS).await;
        assert_eq!(listen(scene, Wants::Fair), 1);
        let before = scene.calls("evalsha");
        holder.0.spawn(unlock).await.expect("no panic");
        for turn in turns {
            turn.await.expect("no panic");
        }
        // A release each, which grants the lock to the next one.
        assert_eq!(scene.calls("evalsha") - before, 1 + MANY as u64);
    });
}
