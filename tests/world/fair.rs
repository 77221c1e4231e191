//! Fair locks, where the moment counts at which something happens to their waiters.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::FutureExt;
use futures::future::BoxFuture;
use redlatch::Loss;
use redlatch::kind::LockKind;
use redlatch::simulation::State;
use tokio_test::task::{self, Spawn};

use crate::prelude::*;

/// In real time, a waiter that was asking just then had the lock anew instead.
#[tokio::test(start_paused = true)]
async fn x3_a_hand_off_of_a_lock_that_is_gone_is_lost_for_both_and_leaves_no_entry() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = redis_at(each_way);
        let client = redis.client();
        let guard = client.fair_lock("gone").lock().await.unwrap();
        let next = client.fair_lock("gone");
        let waiting = tokio::spawn(async move { next.lock().await });
        // Long enough to be parked, and too short for a renewal or a refresh.
        sleep(ms(1_000)).await;
        assert_eq!(redis.waiting("gone"), 1);
        redis.lose("gone");
        let unlocked = tokio::spawn(guard.unlock());
        let handed = waiting.await.unwrap().unwrap();
        assert!(!handed.is_lost() || each_way == ms(0), "handed off before Redis was asked");
        let two_round_trips = each_way * 4 + ms(2);
        timeout(two_round_trips, handed.lost()).await.expect("told by the answer to the hand-off");
        assert_eq!(handed.loss(), Some(Loss::KeyGone));
        assert_eq!(unlocked.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        drop(handed);
        sleep(ms(1_000)).await;
        assert_eq!(redis.query::<Vec<String>>(redis::cmd("KEYS").arg("*")).unwrap(), [""; 0]);
    }
}

/// The subscription of the wait before is kept. The client refreshes the entry of the next one all the same.
#[test]
fn a_call_that_waits_soon_after_the_one_before_keeps_its_place() {
    play(0, async |scene| {
        let [near, busy, last] = [
            scene.client(ms(2), LockClient::builder()).await,
            scene.client(ms(2), LockClient::builder()).await,
            scene.client(ms(2), LockClient::builder()).await,
        ];
        let takes = |(machine, client): &(Machine, LockClient), holds: Duration| {
            let lock = client.fair_lock("sale");
            machine.spawn(async move {
                let guard = lock.lock().await.expect("the lock");
                let had = Instant::now();
                sleep(holds).await;
                guard.unlock().await.expect("a release");
                had
            })
        };
        // The client looks after its entries in a third of ten seconds, while it has the lock.
        let first = takes(&near, ms(3_250));
        sleep(ms(10)).await;
        let before = takes(&busy, ms(100));
        first.await.expect("no panic");
        let long = takes(&near, ms(13_000));
        before.await.expect("no panic");
        let second = takes(&busy, ms(1));
        sleep(ms(20)).await;
        let third = takes(&last, ms(1));
        let [_, second, third] =
            [long, second, third].map(async |call| call.await.expect("no panic"));
        let (second, third) = tokio::join!(second, third);
        assert!(second < third, "its place was lost");
    });
}

/// Its calls without an order hand the lock on to each other.
#[test]
fn a_call_that_waits_in_order_has_its_turn_beside_calls_of_its_client_that_do_not() {
    for away in [0, 2, 50].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            for _ in 0..4 {
                let lock = client.lock("sale");
                machine.spawn(async move {
                    loop {
                        let guard = lock.lock().await.expect("the lock");
                        sleep(ms(1)).await;
                        drop(guard);
                    }
                });
            }
            sleep(10 * away + ms(20)).await;
            let lock = client.fair_lock("sale");
            let call = machine.spawn(async move { drop(lock.lock().await.expect("the lock")) });
            timeout(ms(1_000), call).await.expect("in time").expect("no panic");
        });
    }
}

/// A message that a client cannot read costs a turn the grace.
#[tokio::test(start_paused = true)]
async fn a_name_with_a_zero_byte_has_its_turns_as_soon_as_any_other() {
    async fn play(name: &str) -> Duration {
        let (redis, begun) = (redis_at(ms(1)), Instant::now());
        let takes_turns = |_| {
            let lock = redis.client().fair_lock(name);
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.lock().await.unwrap();
                    sleep(ms(5)).await;
                    guard.unlock().await.unwrap();
                }
            })
        };
        for turns in Vec::from_iter((0..4).map(takes_turns)) {
            turns.await.unwrap();
        }
        begun.elapsed()
    }
    let (plain, zero) = (play("turns").await, play("tu\0rns").await);
    assert!(zero <= plain + ms(10), "{zero:?}, and {plain:?} without");
}

#[tokio::test(start_paused = true)]
async fn x5_a_client_that_lives_has_the_lock_at_once_between_hundreds_that_are_dead() {
    for (before, behind) in [(102, 102), (150, 999), (1_000, 500)] {
        let each_way = ms(10);
        let redis = redis_at(each_way);
        let (one, other) = (redis.client(), redis.client());
        let guard = one.fair_lock("sale").lock().await.unwrap();
        let next = other.fair_lock("sale");
        let waiting = tokio::spawn(async move { next.lock().await });
        sleep(ms(1_000)).await;
        let late = u64::MAX >> 12;
        let scores = (0..before).chain(late..late + behind);
        for (number, score) in scores.enumerate() {
            let client = format!("dead:{number}");
            let (mut zadd, mut hset) = (redis::cmd("ZADD"), redis::cmd("HSET"));
            zadd.arg("redlatch_queue:{sale}").arg(score).arg(&client);
            hset.arg("redlatch_waiting:{sale}").arg(format!("alive:{client}")).arg(late);
            redis.query::<()>(&zadd).unwrap();
            redis.query::<()>(&hset).unwrap();
        }
        let begun = Instant::now();
        let release = tokio::spawn(guard.unlock());
        let guard = waiting.await.unwrap().unwrap();
        release.await.unwrap().unwrap();
        // A hundred are dropped with each request, which the waiter sends a millisecond apart.
        let requests = u32::try_from(before / 100 + 2).unwrap();
        let took = begun.elapsed();
        assert!(took <= (2 * each_way + ms(5)) * requests, "{before}, {behind}: {took:?}");
        guard.unlock().await.unwrap();
    }
}

/// The server grants it with the release, and draws the token of a fenced one. A waiter of a plain lock hears of
/// the release, and asks.
#[test]
fn a_release_gives_the_lock_to_the_next_client_in_one_round_trip() {
    // From further away, Redis hears of the waiter first: too little of the grace is left when the message comes.
    for away in [2, 20, 100, 250].map(ms) {
        release_and_wait(away, away, |client| turn(client.fair_lock("turns")));
        release_and_wait(away, 2 * away, |client| turn(client.lock("turns")));
    }
}

#[test]
fn a_release_gives_a_fenced_lock_to_the_next_client_in_one_round_trip_with_its_token() {
    for away in [2, 20, 100].map(ms) {
        let last = Arc::new(AtomicU64::new(0));
        release_and_wait(away, away, |client| {
            let (lock, last) = (client.fenced_fair_lock("turns"), last.clone());
            async move {
                let guard = lock.lock().await.expect("a turn");
                let token = guard.token().get();
                assert!(last.swap(token, Relaxed) < token, "{token} is old");
                guard
            }
            .boxed()
        });
    }
}

/// Each comes more than a round trip after the one before: hand-offs inside a client, and grants to the other one.
#[test]
fn tokens_grow_in_the_order_of_the_turns_of_two_clients() {
    for away in [2, 20, 100].map(ms) {
        play(0, async |scene| {
            let [one, other] = two_clients(scene, away, LockClient::builder()).await;
            let clients = [&one, &one, &one, &other, &other, &one, &other, &one];
            let turns = Arc::<Mutex<Vec<(usize, u64)>>>::default();
            let mut calls = Vec::new();
            for (number, client) in clients.into_iter().enumerate() {
                let (lock, turns) = (client.fenced_fair_lock("turns"), turns.clone());
                calls.push(tokio::spawn(async move {
                    let guard = lock.lock().await.expect("a turn");
                    turns.lock().unwrap().push((number, guard.token().get()));
                    sleep(16 * away).await;
                    guard.unlock().await.expect("a release");
                }));
                sleep(2 * away).await;
            }
            join_all(calls).await.into_iter().for_each(|call| call.expect("no panic"));
            let turns = turns.lock().unwrap();
            assert!(turns.iter().map(|turn| turn.0).eq(0..clients.len()), "{away:?}: {turns:?}");
            assert!(turns.is_sorted_by(|one, next| one.1 < next.1), "{away:?}: {turns:?}");
        });
    }
}

/// Redis hears of the older one when it has granted the lock already.
#[test]
fn a_call_before_which_an_older_one_of_another_client_goes_keeps_its_own_place() {
    play(0, async |scene| {
        let options = LockClient::builder().fair_grace(ms(300));
        let [operator, near] = two_clients(scene, ms(2), options.clone()).await;
        let (_machine, early) = scene.client(ms(50), options.clone()).await;
        // So much of the grace is over when it hears of the grant that Redis has to hear first, also who is next then.
        let (_machine, far) = scene.client(ms(240), options).await;
        let guard = operator.fair_lock(CUT).lock().await.expect("the lock");
        let turns = Arc::<Mutex<Vec<_>>>::default();
        let mut calls = Vec::new();
        let order = [(&early, "freed"), (&early, "1"), (&far, "2"), (&near, "3"), (&far, "4")];
        for (client, call) in order {
            let (lock, turns) = (client.fair_lock(CUT), turns.clone());
            calls.push(tokio::spawn(async move {
                let guard = lock.lock().await.expect("a turn");
                turns.lock().unwrap().push(call);
                sleep(ms(1_000)).await;
                guard.unlock().await.map_err(|error| (call, error.kind()))
            }));
            sleep(ms(800)).await;
        }
        guard.unlock().await.expect("a release");
        sleep(ms(10)).await;
        operator.fair_lock(CUT).force_unlock().await.expect("to free it");
        let unlocked = join_all(calls).await.into_iter().map(|call| call.expect("no panic"));
        let lost: Vec<_> = unlocked.filter_map(Result::err).collect();
        assert_eq!(lost, [("freed", ErrorKind::Lost)]);
        assert_eq!(*turns.lock().unwrap(), order.map(|(_, call)| call));
    });
}

/// It gets the lock without another request.
#[test]
fn every_grace_that_is_accepted_is_long_enough_for_a_client_that_is_near() {
    for grace in [10, 50, 100, 110, 150].map(ms) {
        play(0, async |scene| {
            let options = LockClient::builder().fair_grace(grace);
            let [one, other] = two_clients(scene, ms(2), options).await;
            let guard = one.fair_lock(CUT).lock().await.expect("the lock");
            let waiting = waiter(&other).await;
            let before = scene.calls("evalsha");
            guard.unlock().await.expect("a release");
            waiting.await.expect("no panic").unlock().await.expect("a release");
            // Two releases, and the hand-off to the waiter.
            assert!(scene.calls("evalsha") - before <= 3, "{grace:?}");
            sleep(ms(1_000)).await;
            assert_eq!(scene.keys(), [""; 0]);
        });
    }
}

/// With so short a grace, Redis hears of the waiter before that has the lock, and says that the grant has ended.
#[test]
fn a_grant_that_has_ended_when_redis_hears_of_its_waiter_costs_no_connection() {
    play(0, async |scene| {
        let options = LockClient::builder().fair_grace(ms(100));
        let (_, one) = scene.client(ms(2), options.clone()).await;
        let (machine, other) = scene.client(ms(2), options).await;
        let guard = one.fair_lock(CUT).lock().await.expect("the lock");
        let granted = waiter(&other).await;
        let made = scene.network.connections_made();
        scene.trap(&machine, Fate::HeldFor(ms(150)));
        guard.unlock().await.expect("a release");
        granted.await.expect("no panic").unlock().await.expect("a release");
        assert_eq!(scene.network.remove_traps(&machine, scene.server), 0);
        sleep(SECOND).await;
        assert_eq!(scene.network.connections_made(), made, "an answered request costs none");
    });
}

/// None of the waiters behind the first asks.
#[test]
fn a_client_that_waits_sends_a_request_every_three_seconds_at_most() {
    play(0, async |scene| {
        let [one, other] = two_clients(scene, ms(2), LockClient::builder()).await;
        let guard = one.fair_lock(CUT).lock().await.expect("the lock");
        let waiting = join_all((0..5).map(|_| waiter(&other))).await;
        let before = scene.calls("evalsha");
        sleep(ms(7_000)).await;
        assert_eq!(scene.calls("evalsha") - before, 2);
        guard.unlock().await.expect("a release");
        for one in waiting {
            one.await.expect("no panic").unlock().await.expect("a release");
        }
    });
}

fn turn<K: LockKind>(lock: Lock<K>) -> BoxFuture<'static, LockGuard<K::Token>> {
    async move { lock.lock().await.expect("a turn") }.boxed()
}

/// Two clients that far from the server take turns. The next one has the lock so long after the release began.
fn release_and_wait<T: Send + 'static>(
    away: Duration,
    way: Duration,
    turn: impl Fn(&LockClient) -> BoxFuture<'static, LockGuard<T>>,
) {
    play(0, async |scene| {
        let clients = [
            scene.client(away, LockClient::builder()).await,
            scene.client(away, LockClient::builder()).await,
        ];
        for round in 0..6 {
            let (machine, client) = &clients[(round + 1) % 2];
            let guard = turn(&clients[round % 2].1).await;
            let next = turn(client);
            let waiter = machine.spawn(async move { (next.await, Instant::now()) });
            sleep(10 * away).await;
            let begun = Instant::now();
            guard.unlock().await.expect("a release");
            let (guard, granted) = waiter.await.expect("no panic");
            assert_eq!(granted - begun, way, "{away:?}");
            guard.unlock().await.expect("a release");
        }
    });
}

/// A lock that is held, and a client that waits for it and loses the connection on which it listens.
struct Waiting<'a> {
    scene: &'a Scene,
    near: [LockClient; 2],
    machine: Machine,
    client: LockClient,
    guard: LockGuard,
    first: JoinHandle<LockGuard>,
}

const CUT: &str = "cut";
const AWAY: Duration = ms(4);

fn waits_and_is_cut(scenario: impl AsyncFnOnce(Waiting<'_>)) {
    play(0, async |scene| {
        // No client is passed over because it takes a while to connect again.
        let options = LockClient::builder().fair_grace(ms(10_000));
        let near = two_clients(scene, ms(2), options.clone()).await;
        let (machine, client) = scene.client(AWAY, options).await;
        let guard = near[0].fair_lock(CUT).lock().await.expect("the lock");
        let first = waiter(&client).await;
        scenario(Waiting { scene, near, machine, client, guard, first }).await;
    });
}

async fn two_clients(scene: &Scene, away: Duration, options: LockClientBuilder) -> [LockClient; 2] {
    let one = scene.client(away, options.clone()).await.1;
    [one, scene.client(away, options).await.1]
}

/// A call that waits, when it is parked.
async fn waiter(client: &LockClient) -> JoinHandle<LockGuard> {
    let lock = client.fair_lock(CUT);
    let waiter = tokio::spawn(async move { lock.lock().await.expect("the lock") });
    sleep(10 * AWAY).await;
    waiter
}

fn name_of(client: &LockClient) -> String {
    client.fair_lock(CUT).owner().rsplit_once(':').expect("an owner").0.to_owned()
}

impl Waiting<'_> {
    fn refuse(&self, yes: bool) {
        self.scene.network.set_refusing(&self.machine, self.scene.server, yes);
    }

    /// Closes the connection on which the client listens.
    fn cut(&self) {
        let list: String = self.scene.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let [listens] = list.lines().collect::<Vec<_>>()[..] else { panic!("{list}") };
        let id = listens.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
        assert_eq!(self.scene.ask::<u64>(&["CLIENT", "KILL", "ID", id]), 1);
    }

    fn queue(&self) -> Vec<String> {
        self.scene.ask(&["ZRANGE", "redlatch_queue:{cut}", "0", "-1"])
    }

    /// It has an entry, and has said that it hears nothing, but comes.
    fn assert_it_comes(&self) {
        let name = name_of(&self.client);
        assert_eq!(self.queue(), std::slice::from_ref(&name));
        let mode = format!("mode:{name}");
        let mode: String = self.scene.ask(&["HGET", "redlatch_waiting:{cut}", &mode]);
        assert_eq!(mode, "arriving");
    }

    /// Others come and the lock is free, before the client can listen again.
    async fn has_it_next(self) {
        let second = waiter(&self.near[1]).await;
        self.refuse(true);
        let Self { scene, machine, guard, first, .. } = self;
        guard.unlock().await.expect("a release");
        sleep(ms(500)).await;
        assert!(!first.is_finished() && !second.is_finished());
        scene.network.set_refusing(&machine, scene.server, false);
        let guard = first.await.expect("the first");
        assert!(!second.is_finished());
        guard.unlock().await.expect("a release");
        second.await.expect("the second").unlock().await.expect("a release");
        assert_eq!(scene.keys(), [""; 0]);
    }
}

#[test]
fn x2_a_waiter_whose_client_cannot_listen_has_its_entry_back_in_three_round_trips() {
    waits_and_is_cut(async |waiting| {
        // So it has to be on a connection that is there.
        waiting.refuse(true);
        let before = waiting.scene.calls("evalsha");
        waiting.cut();
        sleep(3 * AWAY).await;
        waiting.assert_it_comes();
        assert_eq!(waiting.scene.calls("evalsha") - before, 1);
        waiting.has_it_next().await;
    });
}

#[test]
fn x2_a_waiter_whose_client_lost_a_reply_has_its_entry_back_in_three_round_trips() {
    waits_and_is_cut(async |waiting| {
        let other = waiting.client.lock("other").lock().await.expect("the lock");
        waiting.refuse(true);
        waiting.scene.trap(&waiting.machine, Fate::AnswerLost);
        // The background releases it, on the connection on which the client listens.
        drop(other);
        sleep(3 * AWAY).await;
        waiting.assert_it_comes();
        waiting.has_it_next().await;
    });
}

#[test]
fn x2_a_waiter_that_was_dropped_while_its_client_could_not_listen_stands_where_it_stood() {
    waits_and_is_cut(async |waiting| {
        // A request says how old its call is: one that is late by more has a later entry.
        sleep(ms(1_000)).await;
        waiting.scene.trap(&waiting.machine, Fate::HeldFor(ms(500)));
        waiting.refuse(true);
        waiting.cut();
        sleep(3 * AWAY).await;
        assert_eq!(waiting.scene.network.fates().held, 1);
        // The lock is free before the request is there.
        let second = waiter(&waiting.near[1]).await;
        waiting.guard.unlock().await.expect("a release");
        let guard = second.await.expect("the second");
        let third = waiter(&waiting.near[0]).await;
        let queue =
            || waiting.scene.ask::<Vec<String>>(&["ZRANGE", "redlatch_queue:{cut}", "0", "-1"]);
        assert_eq!(queue(), [name_of(&waiting.near[0])]);
        sleep(ms(500)).await;
        assert_eq!(queue(), [name_of(&waiting.client), name_of(&waiting.near[0])]);
        guard.unlock().await.expect("a release");
        waiting.scene.network.set_refusing(&waiting.machine, waiting.scene.server, false);
        let guard = waiting.first.await.expect("the first");
        assert!(!third.is_finished());
        guard.unlock().await.expect("a release");
        third.await.expect("the third").unlock().await.expect("a release");
    });
}

/// The connection goes between the release, which grants the lock to the client, and the message of that.
#[test]
fn a_client_that_died_before_it_was_subscribed_is_waited_for_until_a_grace_after_its_call() {
    let (away, grace) = (ms(100), SECOND);
    // How long the next waiter waits, if the lock is released so long after the call of the dead.
    let waits = |released: Duration| {
        play(0, async |scene| {
            let near = two_clients(scene, ms(2), LockClient::builder()).await;
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let guard = near[0].fair_lock(CUT).lock().await.expect("the lock");
            let lock = client.fair_lock(CUT);
            let begun = Instant::now();
            machine.spawn(async move { lock.lock().await.map(drop) });
            // The request was executed, and nobody has heard of that.
            sleep(away * 3 / 4).await;
            machine.crash();
            assert_eq!(scene.ask::<u64>(&["ZCARD", "redlatch_queue:{cut}"]), 1);
            let next = waiter(&near[1]).await;
            sleep(released - begun.elapsed()).await;
            let begun = Instant::now();
            guard.unlock().await.expect("a release");
            next.await.expect("no panic").unlock().await.expect("a release");
            begun.elapsed()
        })
    };
    // And the release of the lock, and the answers to all that.
    let (after, answers) = (away / 2 + grace, ms(10));
    assert!(waits(2 * grace) <= answers, "long dead: {:?}", waits(2 * grace));
    let until = ms(200) + waits(ms(200));
    assert!((after..=after + answers).contains(&until), "died just now: {until:?}");
}

#[test]
fn a_grant_whose_message_is_lost_comes_with_the_next_refusal() {
    waits_and_is_cut(async |waiting| {
        let Waiting { scene, near, machine, client, guard, first } = waiting;
        let own = format!("{}:-", name_of(&client));
        let begun = Instant::now();
        let release = tokio::spawn(guard.unlock());
        while !scene.holds(CUT).keys().any(|holder| holder.starts_with(&own)) {
            sleep(Duration::from_micros(100)).await;
        }
        scene.network.cut(&machine, scene.server, false);
        release.await.expect("no panic").expect("a release");
        let guard = timeout(MINUTE, first).await.expect("its turn").expect("no panic");
        // To connect, after a short pause, to subscribe, and to ask.
        assert!(begun.elapsed() <= 12 * AWAY, "{:?}", begun.elapsed());
        let next = waiter(&near[1]).await;
        guard.unlock().await.expect("a release");
        let guard = timeout(SECOND, next).await.expect("its turn").expect("no panic");
        guard.unlock().await.expect("a release");
    });
}

/// The client asks before the message of the grant is there, and the refusal comes after it.
#[test]
fn a_grant_of_which_a_message_and_a_refusal_say_is_one() {
    waits_and_is_cut(async |waiting| {
        let Waiting { scene, guard, first, client, .. } = waiting;
        let own = format!("{}:{}", channel(CUT), name_of(&client));
        assert_eq!(scene.ask::<u64>(&["PUBLISH", &own, "0"]), 1);
        sleep(AWAY / 2).await;
        let before = scene.calls("evalsha");
        guard.unlock().await.expect("a release");
        let guard = timeout(MINUTE, first).await.expect("its turn").expect("no panic");
        sleep(10 * AWAY).await;
        // The release, what the waiter asked meanwhile, and the hand-off.
        assert_eq!(scene.calls("evalsha") - before, 3);
        guard.unlock().await.expect("a release of what was not lost");
    });
}

/// By the clock of the client, the grant has ended before its message comes.
#[test]
fn a_grant_that_seems_to_have_ended_is_released() {
    waits_and_is_cut(async |waiting| {
        let Waiting { machine, guard, first, .. } = waiting;
        let begun = Instant::now();
        machine.suspend(ms(11_000));
        guard.unlock().await.expect("a release");
        let guard = timeout(MINUTE, first).await.expect("its turn").expect("no panic");
        assert!(begun.elapsed() <= 8 * AWAY, "{:?}", begun.elapsed());
        guard.unlock().await.expect("a release");
    });
}

/// The default.
const GRACE: Duration = ms(1_000);
/// From there to the next one: the release, a look that may be too early, and another one.
const LATE: Duration = ms(16);
const TURN: &str = "turn";

/// A call is polled no more once its client listens, or once it has `read` that it has to wait. Returns for
/// how long that keeps the next one from the lock, and the guard of that one.
async fn keeps_the_next_waiting<T>(
    scene: &Scene,
    client: &LockClient,
    call: &mut Spawn<BoxFuture<'static, T>>,
    read: bool,
) -> (Duration, LockGuard) {
    let near = two_clients(scene, AWAY, LockClient::builder()).await;
    let guard = near[0].fair_lock(TURN).lock().await.expect("the lock");
    let own = format!("{}:{}", channel(TURN), name_of(client));
    let listens = || scene.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &own]).1 == 1;
    while !listens() {
        assert!(call.poll().is_pending());
        sleep(ms(1)).await;
    }
    // It has heard of that, and asks once more.
    sleep(AWAY).await;
    assert!(call.poll().is_pending());
    sleep(AWAY).await;
    if read {
        for _ in 0..20 {
            assert!(call.poll().is_pending());
            sleep(ms(1)).await;
        }
    }
    let lock = near[1].fair_lock(TURN);
    let next = tokio::spawn(async move { (lock.lock().await.expect("a turn"), Instant::now()) });
    sleep(10 * AWAY).await;
    let begun = Instant::now();
    guard.unlock().await.expect("a release");
    let (guard, had) = timeout(MINUTE, next).await.expect("its turn").expect("no panic");
    (had - begun, guard)
}

/// A client on its machine, and the guard of another one, for which the client waits `MANY` times.
async fn waits_for_another<const MANY: usize>(
    scene: &Scene,
) -> (Machine, LockClient, LockGuard, [JoinHandle<(LockGuard, Instant)>; MANY]) {
    let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
    let (_, other) = scene.client(AWAY, LockClient::builder()).await;
    let before = other.fair_lock(TURN).lock().await.expect("the lock");
    let waiting = [(); MANY].map(|()| waiting_for(&machine, client.fair_lock(TURN)));
    sleep(ms(100)).await;
    (machine, client, before, waiting)
}

/// A client that has the lock for an hour, from another one, whose release had Redis grant it.
async fn came_with_a_message(scene: &Scene) -> (Machine, LockClient, LockGuard) {
    let (machine, client, before, []) = waits_for_another(scene).await;
    let lock = client.fair_lock(TURN);
    let waiting = machine.spawn(async move { lock.lock_with_lease(HOUR).await });
    sleep(ms(100)).await;
    before.unlock().await.expect("a release");
    let guard = waiting.await.expect("no panic").expect("the lock");
    let granted = |owner: &String| owner.contains(":-");
    assert!(scene.holds(TURN).keys().all(granted), "Redis has granted it: that is the point");
    (machine, client, guard)
}

/// What Redis is to hear of it vanishes, and the whole command timeout is longer than the grace.
#[test]
fn a_lock_that_came_with_a_message_outlives_a_half_open_connection() {
    play(0, async |scene| {
        let (machine, _, before, [waiting]) = waits_for_another(scene).await;
        scene.trap(&machine, Fate::HeldFor(HOUR));
        before.unlock().await.expect("a release");
        let (guard, _) = waiting.await.expect("no panic");
        let lost = timeout(ms(60_000), guard.lost()).await;
        assert_eq!(scene.network.fates().held, 1, "it vanished: that is the point");
        assert!(lost.is_err(), "{lost:?}");
        guard.unlock().await.expect("a release");
    });
}

/// Redis is loading for a moment, and the lease of the lock is that of its grant still.
#[test]
fn an_unlock_that_hands_over_waits_for_redis_as_long_as_any_command_may_take() {
    play(0, async |scene| {
        let (machine, _, before, [first, second]) = waits_for_another(scene).await;
        let set = |loading| {
            scene.network.at(scene.server, |server, _| server.set(State::Loading, loading))
        };
        before.unlock().await.expect("a release");
        let (guard, _) = first.await.expect("no panic");
        set(true);
        let begun = Instant::now();
        let unlocked = machine.spawn(async move { guard.unlock().await });
        let (second, _) = second.await.expect("no panic");
        sleep(ms(500)).await;
        assert!(!unlocked.is_finished(), "after {:?}", begun.elapsed());
        set(false);
        let unlocked = unlocked.await.expect("no panic");
        assert!(unlocked.is_ok(), "{unlocked:?} after {:?}", begun.elapsed());
        second.unlock().await.expect("a release");
    });
}

/// Its caller was busy for longer than Redis keeps a grant of which nobody has heard.
#[test]
fn a_refusal_that_is_taken_up_late_frees_no_lock_that_came_with_a_message() {
    play(0, async |scene| {
        let (machine, client, guard) = came_with_a_message(scene).await;
        let owners = scene.holds(TURN);
        sleep(ms(500)).await;
        let lock = client.fair_lock(TURN);
        let call = async move { lock.lock().await };
        let mut late = task::spawn(machine.run(call).boxed());
        assert!(late.poll().is_pending());
        sleep(ms(25_000)).await;
        assert!(late.poll().is_pending());
        sleep(ms(500)).await;
        assert!(late.poll().is_pending(), "it is held");
        assert_eq!(scene.holds(TURN), owners);
        drop(late);
        guard.unlock().await.expect("a release");
    });
}

/// A server whose clock is behind says of an old grant that it is young.
#[test]
fn a_grant_that_the_client_has_is_no_other_one_for_a_server_whose_clock_is_behind() {
    play(0, async |scene| {
        let (machine, client, guard) = came_with_a_message(scene).await;
        let owners = scene.holds(TURN);
        sleep(ms(60_000)).await;
        scene.network.set_clock_back(scene.server, ms(60_000));
        let mut next = waiting_for(&machine, client.fair_lock(TURN));
        assert!(timeout(ms(5_000), &mut next).await.is_err(), "it is held");
        assert_eq!(scene.holds(TURN), owners);
        assert!(!guard.is_lost());
        guard.unlock().await.expect("a release");
        let (guard, _) = timeout(ms(1_000), next).await.expect("in time").expect("no panic");
        guard.unlock().await.expect("a release");
    });
}

fn never_polled_again(read: bool) {
    play(0, async |scene| {
        let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
        let lock = client.fair_lock(TURN);
        let call = async move { lock.lock().await.expect("a turn") };
        let mut call = task::spawn(machine.run(call).boxed());
        let (took, guard) = keeps_the_next_waiting(scene, &client, &mut call, read).await;
        // The client gives the lock back when its hold ends: 11 ms before the grace, as every validity does.
        assert!((GRACE - ms(11)..=GRACE + LATE).contains(&took), "{took:?}");
        // It is alive, and the call has its turn as soon as it is polled.
        let call = tokio::spawn(call);
        sleep(10 * AWAY).await;
        guard.unlock().await.expect("a release");
        let guard = timeout(SECOND, call).await.expect("its turn").expect("no panic");
        guard.unlock().await.expect("a release");
        sleep(SECOND).await;
        assert_eq!(scene.keys(), [""; 0]);
    });
}

#[test]
fn a_waiter_that_is_never_polled_is_passed_over_after_the_grace() {
    never_polled_again(false);
}

#[test]
fn a_waiter_that_is_parked_and_never_polled_is_passed_over_after_the_grace() {
    never_polled_again(true);
}

/// Its first request is on its way when it is polled for the last time.
#[test]
fn a_first_try_that_is_not_polled_again_keeps_the_lock_from_nobody_for_long() {
    for others in [false, true] {
        play(0, async |scene| {
            let [one, other] = two_clients(scene, AWAY, LockClient::builder()).await;
            let guard = other.fair_lock(CUT).lock().await.expect("the lock");
            let lock = one.fair_lock(CUT);
            let mut first = task::spawn(lock.lock());
            assert!(first.poll().is_pending());
            sleep(10 * AWAY).await;
            let mut waiting = vec![waiter(&one).await];
            if others {
                waiting.push(waiter(&other).await);
            }
            let begun = Instant::now();
            guard.unlock().await.expect("a release");
            for call in waiting {
                call.await.expect("no panic").unlock().await.expect("a release");
            }
            assert!(begun.elapsed() <= GRACE + LATE, "{:?}", begun.elapsed());
            // It is not too late for it.
            first.await.expect("a turn").unlock().await.expect("a release");
            sleep(SECOND).await;
            assert_eq!(scene.keys(), [""; 0]);
        });
    }
}

#[test]
fn a_fenced_waiter_that_is_never_polled_is_passed_over_after_its_lease() {
    const LEASE: Duration = ms(2_500);
    play(0, async |scene| {
        let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
        let lock = client.fenced_fair_lock(TURN);
        let call = async move { lock.lock_with_lease(LEASE).await.expect("a turn") };
        let mut call = task::spawn(machine.run(call).boxed());
        let (took, guard) = keeps_the_next_waiting(scene, &client, &mut call, true).await;
        // Redis hears of its lease twice, each time in whole milliseconds.
        assert!((LEASE - ms(10)..=LEASE + LATE + ms(1)).contains(&took), "{took:?}");
        drop(call);
        guard.unlock().await.expect("a release");
        sleep(SECOND).await;
        // The counter of the token.
        assert_eq!(scene.keys().len(), 1);
    });
}
