//! Leases that get shorter, renewals whose answers are late, and holders that die: rows W1, W7, W17 and
//! C7.
//!
//! W7: whoever waits had counted on the longer lease. It looks again when the new one ends, and is told
//! of nothing then, because a lease that ends by itself is told to nobody.

use std::sync::Mutex;

use redlatch::Lease;
use redlatch::kind::LockKind;
use redlatch::simulation::Server;
use tokio_test::task;

use crate::prelude::*;

/// The new lease.
const SHORT: Duration = ms(1_500);

/// Round trips.
const DISTANCES: [Duration; 4] = [Duration::ZERO, ms(2), ms(20), ms(100)];

/// What is promised of a waiter's next look.
const LATE: Duration = ms(50);

const NAME: &str = "shorter";

/// Waits for the lock, and says when it came. Returns when it is parked.
async fn park(machine: &Machine, lock: Lock, away: Duration) -> JoinHandle<(LockGuard, Instant)> {
    let waiter = waiting_for(machine, lock);
    sleep(8 * away + ms(10)).await;
    assert!(!waiter.is_finished());
    waiter
}

/// The short lease ends by itself, and then the waiter has the lock, and soon.
async fn comes(scene: &Scene, waiter: JoinHandle<(LockGuard, Instant)>, away: Duration) {
    let left = scene.pttl(NAME);
    assert!((500..5_000).contains(&left), "{left} ms");
    let ends = Instant::now() + Duration::from_millis(left as u64);
    let (guard, came) = waiter.await.expect("no panic");
    assert!(came > ends, "{:?} too early", ends - came);
    // The way of a look that was just too early, and another one.
    let late = came - ends;
    assert!(late <= LATE + 2 * away, "{away:?}: {late:?} after the end of the lease");
    guard.unlock().await.expect("a release");
    assert!(scene.holds(NAME).is_empty());
}

/// The holder of a default lease, and a call of its client that waits for a shorter one.
struct HandsOff {
    one: Machine,
    client: LockClient,
    guard: LockGuard,
    next: JoinHandle<Result<LockGuard, Error>>,
}

impl HandsOff {
    async fn begin(scene: &Scene, away: Duration) -> Self {
        let (one, client) = scene.client(away, LockClient::builder()).await;
        let guard = client.lock(NAME).lock().await.expect("the lock");
        let next = client.lock(NAME);
        let next = one.spawn(async move { next.lock_with_lease(SHORT).await });
        sleep(8 * away + ms(10)).await;
        Self { one, client, guard, next }
    }
}

#[test]
fn w7_another_client_looks_when_the_shorter_lease_ends_that_was_handed_off() {
    for away in DISTANCES {
        play(0, async |scene| {
            let HandsOff { one, guard, next, .. } = HandsOff::begin(scene, away).await;
            let (two, other) = scene.client(away, LockClient::builder()).await;
            let waiter = park(&two, other.lock(NAME), away).await;
            assert!(scene.pttl(NAME) > 20_000, "it was short before");
            let unlock = one.spawn(guard.unlock());
            let _ends = next.await.expect("no panic").expect("the lock");
            unlock.await.expect("no panic").expect("a release");
            comes(scene, waiter, away).await;
        });
    }
}

/// The client that hands the lock off listens, too: its calls need no message, but only if it hears itself. The connection
/// is cut under the update, or a fair call of it waits, which hears of no hand-off.
#[test]
fn w7_another_client_looks_when_a_shorter_lease_ends_though_the_one_that_hands_off_was_subscribed()
{
    for away in [ms(20), ms(100)] {
        play(0, async |scene| {
            let HandsOff { one, client, guard, next } = HandsOff::begin(scene, away).await;
            let (two, other) = scene.client(away, LockClient::builder()).await;
            let (third, wait) = (client.lock(NAME), 16 * away + ms(60));
            let third = one.spawn(async move { third.try_lock(wait, MINUTE).await });
            let waiter = park(&two, other.lock(NAME), away).await;
            assert_eq!(scene.subscribers(NAME), 2);
            assert!(scene.pttl(NAME) > 20_000, "it was short before");
            drop(guard);
            let _ends = next.await.expect("no panic").expect("the lock");
            // The update is on its way.
            sleep(away / 2).await;
            scene.network.cut(&one, scene.server, false);
            assert!(third.await.expect("no panic").expect("an answer").is_none());
            comes(scene, waiter, away).await;
        });
    }
}

#[test]
fn w7_a_fair_call_looks_when_a_shorter_lease_ends_that_a_plain_call_of_its_client_was_handed() {
    for away in DISTANCES {
        play(0, async |scene| {
            let (one, client) = scene.client(away, LockClient::builder()).await;
            let guard = client.lock(NAME).lock().await.expect("the lock");
            let fair = waiting_for(&one, client.fair_lock(NAME));
            sleep(8 * away + ms(10)).await;
            let next = client.lock(NAME);
            let next = one.spawn(async move { next.lock_with_lease(SHORT).await });
            sleep(8 * away + ms(10)).await;
            drop(guard);
            let _ends = next.await.expect("no panic").expect("the lock");
            sleep(4 * away + ms(10)).await;
            comes(scene, fair, away).await;
        });
    }
}

#[test]
fn w7_whoever_waits_looks_when_the_lease_ends_that_a_nested_hold_leaves() {
    for away in DISTANCES {
        for (outer_stays, of_another_client) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            play(0, async |scene| {
                let (one, client) = scene.client(away, LockClient::builder()).await;
                let (two, other) = scene.client(away, LockClient::builder()).await;
                let lock = client.lock(NAME);
                // It is in force for as long as others come.
                let short = SHORT + 12 * away;
                let leases = if outer_stays { [short, MINUTE] } else { [MINUTE, short] };
                let outer = lock.lock_with_lease(leases[0]).await.expect("the lock");
                let inner = lock.lock_with_lease(leases[1]).await.expect("the lock");
                let waiter = match of_another_client {
                    true => park(&two, other.lock(NAME), away).await,
                    false => park(&one, client.lock(NAME), away).await,
                };
                assert!(scene.pttl(NAME) > 20_000, "it was short before");
                let (goes, _stays) = if outer_stays { (inner, outer) } else { (outer, inner) };
                goes.unlock().await.expect("a release");
                comes(scene, waiter, away).await;
            });
        }
    }
}

#[test]
fn w1_an_answer_that_takes_longer_than_a_third_of_a_lease_is_waited_for_where_a_dial_takes_longer()
{
    let (away, lease) = (ms(120), ms(1_000));
    play(0, async |scene| {
        let options = LockClient::builder().watchdog_timeout(lease);
        let (machine, client) = scene.client(away, options).await;
        let made = scene.network.connections_made();
        let guard = client.lock("held up").lock().await.expect("the lock");
        let before = scene.calls("evalsha");
        // To beyond a third after the renewal is sent, and not to the end of the lease.
        scene.stall(&machine, lease * 3 / 5).await;
        assert!(timeout(2 * lease, guard.lost()).await.is_err(), "lost");
        guard.unlock().await.expect("a release");
        assert_eq!(scene.network.connections_made(), made);
        assert!(scene.calls("evalsha") > before + 3, "renewals, and a release");
    });
}

#[test]
fn w7_a_lease_that_gets_no_shorter_is_told_to_nobody() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        let lock = client.lock(NAME);
        for lease in [MINUTE, ms(10_000)] {
            let outer = lock.lock_with_lease(MINUTE).await.expect("the lock");
            let inner = lock.lock_with_lease(lease).await.expect("the lock");
            let published = scene.calls("publish");
            inner.unlock().await.expect("a release");
            // A default lease takes over from what was explicit, and its own kind.
            let next = client.lock(NAME);
            let next = machine.spawn(async move { next.lock_with_lease(2 * MINUTE).await });
            sleep(ms(100)).await;
            let owner = outer.owner().to_owned();
            outer.unlock().await.expect("a release");
            let guard = next.await.expect("no panic").expect("the lock");
            assert_eq!(guard.owner(), owner, "it was not handed off");
            assert_eq!(scene.calls("publish"), published);
            guard.unlock().await.expect("a release");
            assert_eq!(scene.calls("publish"), published + 1);
            // No subscription is kept for long.
            sleep(ms(1_000)).await;
            assert_eq!(scene.subscribers(NAME), 0);
        }
    });
}

/// Whatever the kind, from its own client or another, and after whatever lease.
#[test]
fn a_default_lease_is_renewed_however_the_call_came_to_the_lock() {
    for away in [ms(2), ms(100)] {
        for before in [None, Some(ms(2_500)), Some(SHORT), Some(ms(60_000))] {
            for same_client in [false, true] {
                play(0, async |scene| {
                    let case = Handover { scene, away, before, same_client };
                    case.keeps(|client| client.lock(NAME)).await;
                    case.keeps(|client| client.fenced_lock(NAME)).await;
                    case.keeps(|client| client.fair_lock(NAME)).await;
                    case.keeps(|client| client.fenced_fair_lock(NAME)).await;
                });
            }
        }
    }
}

/// How a lock goes from a holder to a call that waits for it with a default lease.
struct Handover<'a> {
    scene: &'a Scene,
    away: Duration,
    /// The lease of the holder, if it is not the default one.
    before: Option<Duration>,
    same_client: bool,
}

impl Handover<'_> {
    async fn keeps<K: LockKind>(&self, lock: impl Fn(&LockClient) -> Lock<K>) {
        let options = LockClient::builder().watchdog_timeout(SHORT);
        let (one, client) = self.scene.client(self.away, options.clone()).await;
        let (two, other) = match self.same_client {
            true => (one.clone(), client.clone()),
            false => self.scene.client(self.away, options).await,
        };
        let (holder, before) = (lock(&client), self.before);
        let holder = one.run(async move {
            match before {
                Some(lease) => holder.lock_with_lease(lease).await,
                None => holder.lock().await,
            }
        });
        let holder = holder.await.expect("the lock");
        let waiter = waiting_for(&two, lock(&other));
        sleep(8 * self.away + ms(10)).await;
        one.spawn(holder.unlock()).await.expect("no panic").expect("a release");
        let (guard, _) = waiter.await.expect("no panic");
        sleep(3 * SHORT).await;
        let Self { away, before, same_client, .. } = self;
        assert!(!guard.is_lost(), "{away:?}, {before:?}, same client: {same_client}");
        two.spawn(guard.unlock()).await.expect("no panic").expect("a release");
    }
}

#[test]
fn c7_the_lock_of_a_machine_that_crashed_is_anothers_as_soon_as_its_lease_ends() {
    for away in DISTANCES {
        for is_renewed in [false, true] {
            play(0, async |scene| {
                let options = LockClient::builder().watchdog_timeout(SHORT);
                let (dies, client) = scene.client(away, options).await;
                let (two, other) = scene.client(away, LockClient::builder()).await;
                let lock = client.lock(NAME);
                let guard = dies.run(async move {
                    match is_renewed {
                        true => lock.lock().await,
                        false => lock.lock_with_lease(SHORT).await,
                    }
                });
                let guard = guard.await.expect("the lock");
                let waiter = park(&two, other.lock(NAME), away).await;
                if is_renewed {
                    sleep(3 * SHORT).await;
                    assert!(!guard.is_lost() && !waiter.is_finished());
                }
                dies.crash();
                comes(scene, waiter, away).await;
            });
        }
    }
}

/// The server is busy with scripts of others, one after the other, and answers once after all of them.
#[test]
fn w17_beside_busy_tenants_a_lock_is_kept_where_an_answer_takes_less_than_a_third_of_its_lease() {
    const SCRIPT: Duration = ms(100);
    for (tenants, lease) in [(2, ms(1_000)), (3, ms(1_000)), (2, ms(3_000)), (9, ms(3_000))] {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(lease);
            let (machine, client) = scene.client(Duration::ZERO, options).await;
            let busy = async {
                loop {
                    scene.stall(&machine, tenants * SCRIPT).await;
                    sleep(ms(1)).await;
                }
            };
            let held = async {
                let mut guards = Vec::new();
                // They are due one after the other.
                for number in 0..3 {
                    let lock = client.lock(format!("crowded {number}"));
                    guards.push(machine.run(lock.lock()).await.expect("the lock"));
                }
                sleep(10 * lease).await;
                assert!(guards.iter().all(|guard| !guard.is_lost()), "{tenants}, {lease:?}");
            };
            tokio::select! {
                () = busy => {}
                () = held => {}
            }
        });
    }
}

/// The second in a queue is told to look after the grace. The first has the lock for less than that, and lets its lease
/// end.
#[tokio::test(start_paused = true)]
async fn the_next_in_a_queue_is_told_of_a_lease_that_ends_within_the_grace() {
    const TINY: Duration = ms(40);
    for each_way in [0, 1, 20].map(ms) {
        let redis = redis_at(each_way);
        // Without hand-offs a client that has its turn asks, as it does for a read-write lock.
        let client = |_| redis.builder().max_handoffs(0).connect_lazy().unwrap();
        let clients = [0, 1, 2].map(client);
        let soon = TINY + each_way * 12 + LATE;
        let lock = |of: usize| clients[of].fair_lock("queue");
        let holder = lock(0).lock().await.unwrap();
        let first = lock(1);
        let first = tokio::spawn(async move { first.lock_with_lease(TINY).await.unwrap() });
        sleep(each_way * 20 + ms(10)).await;
        let second = lock(2);
        let second = tokio::spawn(async move { second.lock().await.unwrap() });
        sleep(each_way * 20 + ms(10)).await;
        holder.unlock().await.unwrap();
        let ended = first.await.unwrap();
        let guard = timeout(soon, second).await.expect("told of the end").unwrap();
        assert!(ended.is_lost());
        guard.unlock().await.unwrap();

        for reads in [false, true] {
            let lock = |of: usize| clients[of].read_write_lock("shared");
            let holder = lock(0).write().await.unwrap();
            let first = lock(1);
            let first = tokio::spawn(async move {
                // A guard that is dropped when it is lost may still release the lock.
                if reads {
                    let guard = first.read_with_lease(TINY).await.unwrap();
                    sleep(2 * soon).await;
                    assert!(guard.is_lost());
                } else {
                    let guard = first.write_with_lease(TINY).await.unwrap();
                    sleep(2 * soon).await;
                    assert!(guard.is_lost());
                }
            });
            sleep(each_way * 20 + ms(10)).await;
            let second = lock(2);
            let second = tokio::spawn(async move { second.write().await.unwrap() });
            sleep(each_way * 20 + ms(10)).await;
            holder.unlock().await.unwrap();
            let guard = timeout(soon + TINY, second).await.expect("told of the end").unwrap();
            first.await.unwrap();
            guard.unlock().await.unwrap();
        }
    }
}

/// The deadline of the nested guard passes while its call waits for one of the outer guard. Redis has the lock for
/// that one, and would execute it.
#[tokio::test(start_paused = true)]
async fn what_waits_for_an_earlier_execution_is_not_executed_after_the_loss() {
    let redis = Redis::new();
    let lock = redis.client().lock("late");
    let outer = lock.lock_with_lease(ms(100_000)).await.expect("the lock");
    let nested = lock.lock_with_lease(ms(10_000)).await.expect("it nests");
    sleep(nested.remaining() - ms(100)).await;
    redis.delay(ms(100));
    let (mut first, mut second) = (redis::pipe(), redis::pipe());
    first.incr("first", 1);
    second.incr("second", 1);
    let mut first = task::spawn(outer.execute::<(i64,)>(&first));
    let mut second = task::spawn(nested.execute::<(i64,)>(&second));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    assert_eq!(first.await.expect("it has the lock"), (1,));
    assert_eq!(second.await.expect_err("it is lost").kind(), ErrorKind::Lost);
    assert!(!redis.query::<bool>(redis::cmd("EXISTS").arg("second")).unwrap());
    outer.unlock().await.expect("a release");
}

/// The lock is handed off for a shorter lease, and given back, while Redis cannot hear of either. It has the longer
/// lease, for which the client goes on to release it.
#[tokio::test(start_paused = true)]
async fn a_release_is_tried_for_as_long_as_redis_keeps_the_lease_of_an_earlier_holder() {
    for waits in [0, 100].map(ms) {
        let redis = Redis::new();
        let client = redis.builder().command_timeout(ms(200)).connect().await.unwrap();
        let guard = client.lock("late").lock_with_lease(ms(60_000)).await.expect("the lock");
        let next = client.lock("late");
        let waiter = tokio::spawn(async move { next.lock_with_lease(ms(40)).await });
        sleep(ms(100)).await;
        redis.stop();
        drop(guard);
        let handed = waiter.await.expect("no panic").expect("it is handed off");
        // At once, or when the client has asked for the shorter lease, in vain.
        sleep(waits).await;
        drop(handed);
        sleep(ms(5_000)).await;
        assert!(!redis.holders("late").is_empty(), "Redis has heard of nothing");
        redis.start();
        sleep(ms(3_000)).await;
        assert!(redis.holders("late").is_empty(), "{waits:?}: Redis has it for a minute");
    }
}

/// Redis has executed it, and its caller never heard that.
#[test]
fn an_extension_that_was_dropped_leaves_no_longer_lease_to_the_next_holder() {
    const HOUR: Duration = Duration::from_secs(3_600);
    for away in DISTANCES {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
            let next = park(&machine, client.lock(NAME), away).await;
            let mut extends = task::spawn(machine.run(guard.extend(HOUR)));
            assert!(extends.poll().is_pending());
            wait_until("Redis has executed it", MINUTE, || scene.pttl(NAME) > 3_000_000).await;
            drop(extends);
            drop(guard);
            let (guard, _) = next.await.expect("no panic");
            sleep(4 * away + ms(10)).await;
            let left = scene.pttl(NAME);
            assert!(left <= 30_000, "{away:?}: {left}");
            guard.unlock().await.expect("a release");
        });
    }
}

/// It is late on its way, and the request about the next holder is faster.
#[test]
fn an_extension_under_way_sets_no_lease_for_the_next_holder() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
        let next = client.lock(NAME);
        let next = machine.spawn(async move { next.lock_with_lease(ms(5_000)).await });
        sleep(ms(100)).await;
        scene.trap_script(&machine, &scripts::renew(), Fate::HeldFor(ms(50)));
        let mut extends = task::spawn(machine.run(guard.extend(60 * MINUTE)));
        assert!(extends.poll().is_pending());
        // Its request is on its way, and so is the next one.
        sleep(ms(1)).await;
        drop(extends);
        drop(guard);
        let guard = next.await.expect("no panic").expect("the lock");
        sleep(ms(200)).await;
        assert_eq!(scene.network.remove_traps(&machine, scene.server), 0);
        assert!(!guard.is_lost() && scene.pttl(NAME) <= 5_000, "{}", scene.pttl(NAME));
        guard.unlock().await.expect("a release");
    });
}

/// The lease is what is left of another hold, or the time for which the key is to stay.
#[test]
fn a_renewal_under_way_makes_no_lease_longer_that_a_release_leaves() {
    for stays in [false, true] {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(ms(3_000));
            let (machine, client) = scene.client(ms(2), options).await;
            let lock = client.lock(NAME);
            let (outer, until) =
                (lock.lock_with_lease(ms(2_000)).await, Instant::now() + ms(2_000));
            let (outer, nested) = (outer.expect("the lock"), lock.lock().await.expect("it nests"));
            let outer = (!stays).then_some(outer);
            sleep(ms(800)).await;
            scene.trap_script(&machine, &scripts::renew(), Fate::HeldFor(ms(400)));
            sleep(ms(300)).await;
            if stays {
                nested.hold_at_least(ms(1_600));
            }
            machine.run(nested.unlock()).await.expect("a release");
            sleep(ms(500)).await;
            assert_eq!(scene.network.remove_traps(&machine, scene.server), 0);
            let left = Duration::from_millis(scene.pttl(NAME).try_into().unwrap_or(0));
            let most = until.saturating_duration_since(Instant::now());
            assert!(left <= most + ms(10), "{stays}: {left:?} left, and not {most:?}");
            drop(outer);
        });
    }
}

/// Nothing renews it any more, and no answer says that it has ended.
#[test]
fn a_loss_is_told_at_the_deadline() {
    for lease in [Lease::Watchdog, Lease::Fixed(ms(2_500))] {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(ms(3_000));
            let (machine, client) = scene.client(ms(2), options).await;
            let lock = client.lock(NAME);
            let guard = machine.run(lock.try_lock(ms(100), lease)).await.expect("an answer");
            let guard = guard.expect("the lock");
            sleep(ms(1_200)).await;
            scene.network.stop(scene.server);
            let deadline = Instant::now() + guard.remaining();
            machine.run(guard.lost()).await;
            let late = Instant::now().checked_duration_since(deadline).expect("not before it");
            assert!(late <= ms(1) && guard.is_lost(), "{lease:?}: {late:?}");
        });
    }
}

/// The time counts from the first hold of each holder, and limits nothing that a caller asks for.
#[test]
fn a_lock_is_renewed_up_to_max_hold_and_ends_with_its_lease() {
    let (lease, most) = (ms(1_200), ms(1_500));
    play(0, async |scene| {
        let options = LockClient::builder().watchdog_timeout(lease).max_hold(most);
        let (machine, client) = scene.client(ms(2), options).await;
        let explicit = client.lock("explicit").lock_with_lease(MINUTE).await.expect("the lock");
        let extended = client.lock("extended").lock().await.expect("the lock");
        extended.extend(MINUTE).await.expect("still held");
        let (lock, begun) = (client.lock(NAME), Instant::now());
        let outer = lock.lock().await.expect("the lock");
        // Somebody waits for a holder that hangs.
        let next = waiting_for(&machine, client.lock(NAME));
        sleep(most * 2 / 3).await;
        let inner = lock.lock().await.expect("a nested hold");
        outer.unlock().await.expect("a release");
        timeout(MINUTE, inner.lost()).await.expect("it is limited");
        // The last renewal is up to a third of a lease before the limit.
        let held = begun.elapsed();
        assert!(held > most && held <= most + lease, "{held:?}");
        let (guard, _) = next.await.expect("no panic");
        assert_eq!(inner.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
        sleep(most).await;
        assert!(!guard.is_lost(), "it is renewed, too");
        guard.unlock().await.expect("a release");
        let again = lock.lock().await.expect("the lock");
        sleep(most).await;
        assert!(!again.is_lost() && !explicit.is_lost() && !extended.is_lost());
    });
}

/// Its holder hangs. A hold that nests in it goes in its last moment, and takes a request.
#[test]
fn what_is_given_back_after_max_hold_makes_no_lease_longer() {
    let (lease, most) = (ms(3_000), ms(5_000));
    for drops in [false, true] {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(lease).max_hold(most);
            let (machine, client) = scene.client(ms(2), options).await;
            let lock = client.lock(NAME);
            let outer = machine.run(lock.lock()).await.expect("the lock");
            let inner = machine.run(lock.lock_with_lease(MINUTE)).await.expect("a nested hold");
            // Redis keeps it for the lease of the outer one from here on.
            machine.run(lock.lock_with_lease(lease)).await.expect("a hold").unlock().await.ok();
            sleep(most + ms(1_000)).await;
            assert!(!outer.is_lost(), "that is the point");
            let left = outer.remaining();
            if drops {
                drop(inner);
            } else {
                machine.run(inner.unlock()).await.expect("a release");
            }
            sleep(ms(10)).await;
            let left = left.as_millis() as i64;
            let kept = scene.pttl(NAME);
            assert!(kept <= left + left / 50 + 2, "{kept} ms, where the guard has {left} ms");
        });
    }
}

/// As the lease of an acquire is. Else a hand-off between equal leases would have one to say.
#[test]
fn a_watchdog_timeout_of_no_whole_milliseconds_is_rounded_up_in_all_requests() {
    play(0, async |scene| {
        let timeout = Duration::from_secs(10) / 3;
        let options = LockClient::builder().watchdog_timeout(timeout);
        let (machine, client) = scene.client(ms(2), options).await;
        let sent = Arc::new(Mutex::new(String::new()));
        let sees = sent.clone();
        let observer = move |_: &Server, bytes: &[u8]| {
            sees.lock().expect("no panic").push_str(&String::from_utf8_lossy(bytes));
        };
        scene.network.observe(scene.server, Some(Box::new(observer)));
        let first = machine.run(client.lock(NAME).lock()).await.expect("the lock");
        let next = waiting_for(&machine, client.lock(NAME));
        sleep(ms(50)).await;
        machine.run(first.unlock()).await.expect("a release");
        let (guard, _) = next.await.expect("no panic");
        sleep(timeout).await;
        assert!(!guard.is_lost(), "it was renewed");
        scene.network.observe(scene.server, None);
        let sent = sent.lock().expect("no panic");
        let says = |millis: &str| sent.matches(&format!("\r\n{millis}\r\n")).count();
        assert!(says("3334") >= 3 && says("3333") == 0, "{}, {}", says("3334"), says("3333"));
    });
}
