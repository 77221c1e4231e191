//! Redis goes away and comes back: rows N14, N15, S11 and S13, in virtual time. A call says so in time; who waits
//! already rides it out; who holds keeps the lock as long as its lease allows.

use futures::future::Either;
use redlatch::Loss;
use redlatch::simulation::State;

use crate::prelude::*;

pub(crate) const AWAY: Duration = ms(4);
/// How long one command may take here.
const COMMAND: Duration = ms(1_000);
pub(crate) const NAME: &str = "lock";

/// From the end of a fault until a release has been made good: the longest pause between two dials is
/// half a second, between two tries one second; then a dial, and the request.
pub(crate) const RECOVERY: Duration = ms(1_600);

/// What came of a call, and how long it took.
type Waited = (Result<Option<LockGuard>, Error>, Duration);

/// A client, and its way to Redis.
pub(crate) struct Way<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) machine: Machine,
    pub(crate) client: LockClient,
    /// On another machine, to which nothing happens.
    pub(crate) other: LockClient,
}

pub(crate) fn play_with(watchdog: Duration, scenario: impl AsyncFnOnce(&Way<'_>)) {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(COMMAND).watchdog_timeout(watchdog);
        let (machine, client) = scene.client(AWAY, options).await;
        let (_, other) = scene.client(AWAY, LockClient::builder()).await;
        scenario(&Way { scene, machine, client, other }).await;
    });
}

impl Way<'_> {
    pub(crate) fn flow(&self, direction: Direction, flow: Flow) {
        self.scene.network.set_flow(&self.machine, self.scene.server, direction, flow);
    }

    pub(crate) fn refuse(&self, yes: bool) {
        self.scene.network.set_refusing(&self.machine, self.scene.server, yes);
    }

    pub(crate) fn cut(&self) {
        self.scene.network.cut(&self.machine, self.scene.server, false);
    }

    pub(crate) fn made(&self) -> u64 {
        self.scene.network.connections_made()
    }

    pub(crate) async fn hold(&self, name: &str) -> LockGuard {
        self.client.lock(name).lock().await.expect("the lock")
    }

    /// Takes `name` as a client would that has since died.
    pub(crate) fn hold_by_hand(&self, lease: Duration) {
        self.scene.ask::<()>(&["HSET", NAME, "somebody:1", "1"]);
        self.scene.ask::<()>(&["PEXPIRE", NAME, &lease.as_millis().to_string()]);
    }

    pub(crate) fn free_by_hand(&self) {
        self.scene.ask::<()>(&["DEL", NAME]);
        self.scene.ask::<()>(&["PUBLISH", &channel(NAME), "0"]);
    }

    /// A call that waits, when it is parked.
    pub(crate) async fn parked(&self, wait: Duration) -> JoinHandle<Waited> {
        let (lock, begun) = (self.client.lock(NAME), Instant::now());
        let waiter = self.machine.spawn(async move {
            let result = match wait {
                Duration::MAX => lock.lock().await.map(Some),
                wait => lock.try_lock(wait, MINUTE).await,
            };
            (result, begun.elapsed())
        });
        sleep(10 * AWAY).await;
        assert!(!waiter.is_finished() && self.scene.subscribers(NAME) == 1);
        waiter
    }

    pub(crate) async fn is_free_within(&self, most: Duration, names: &[&str]) {
        let begun = Instant::now();
        while names.iter().any(|name| !self.scene.holds(name).is_empty()) {
            assert!(begun.elapsed() <= most, "not free after {most:?}");
            sleep(ms(1)).await;
        }
    }

    /// From now on no answer comes, and it cannot connect anew. Soon its requests do not arrive, too.
    pub(crate) fn black_hole_answers(&self) {
        self.refuse(true);
        self.flow(Direction::Down, Flow::Held);
        let (network, machine) = (self.scene.network.clone(), self.machine.clone());
        let server = self.scene.server;
        tokio::spawn(async move {
            sleep(2 * AWAY).await;
            network.set_flow(&machine, server, Direction::Up, Flow::Held);
        });
    }

    /// What was under way is lost, and new connections go through.
    pub(crate) fn recover(&self) {
        self.cut();
        self.scene.flow(&self.machine, Flow::Open);
        self.refuse(false);
    }
}

/// The call has failed when its command timeout was over, and nobody knows what happened.
pub(crate) async fn unknown<T>(call: impl Future<Output = Result<T, Error>>) {
    let begun = Instant::now();
    let Err(error) = call.await else { panic!("it cannot have been answered") };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert_eq!(begun.elapsed(), COMMAND);
}

fn unavailable<T>(result: Result<T, Error>) -> Error {
    let Err(error) = result else { panic!("Redis is out of reach") };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error
}

#[test]
fn n14_waiting_calls_go_on_until_their_wait_while_connections_are_refused() {
    let wait = ms(2_500);
    play_with(MINUTE, async |way| {
        way.hold_by_hand(MINUTE);
        let (brief, long) = (way.parked(wait).await, way.parked(MINUTE).await);
        let made = way.made();
        way.refuse(true);
        way.cut();
        // Several times as long as one command may take.
        let (result, took) = brief.await.expect("no panic");
        unavailable(result);
        assert!(took >= wait && took <= wait + COMMAND, "gave up after {took:?}");
        sleep(ms(1_500)).await;
        assert!(!long.is_finished(), "it has a minute");
        assert!(way.made() - made >= 5, "{} dials", way.made() - made);
        // Nobody hears of it.
        way.free_by_hand();
        way.refuse(false);
        let guard = timeout(RECOVERY, long).await.expect("in time").expect("no panic").0;
        guard.expect("an answer").expect("the lock").unlock().await.expect("a release");
    });
}

/// In the last third of the lease it is refused no more, or refused still.
#[test]
fn n14_a_watchdog_that_is_refused_tries_until_the_deadline_and_not_once() {
    for recovers in [true, false] {
        play_with(ms(6_000), async |way| {
            let guard = way.hold(NAME).await;
            sleep(ms(2_500)).await;
            let deadline = Instant::now() + guard.remaining();
            way.refuse(true);
            way.cut();
            while guard.remaining() > ms(1_500) {
                sleep(ms(10)).await;
            }
            let made = way.made();
            if recovers {
                way.refuse(false);
                tokio::time::sleep_until(deadline + ms(6_000)).await;
                assert!(!guard.is_lost());
                guard.unlock().await.expect("a release");
                return;
            }
            guard.lost().await;
            let late = deadline.elapsed();
            assert!(late <= ms(2), "told {late:?} after its deadline");
            assert!(way.made() > made, "it gave up before");
            way.refuse(false);
            assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
            way.is_free_within(RECOVERY, &[NAME]).await;
        });
    }
}

/// Many locks of one client, each renewed once.
async fn many_locks(way: &Way<'_>) -> Vec<LockGuard> {
    let locks: Vec<_> = (0..300).map(|number| way.client.lock(format!("many {number}"))).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    sleep(ms(1_600)).await;
    guards.into_iter().map(|guard| guard.expect("the lock")).collect()
}

#[test]
fn n15_hundreds_of_locks_outlive_a_cut_that_costs_one_dial_a_connection() {
    play_with(ms(4_500), async |way| {
        let guards = many_locks(way).await;
        let (made, open) =
            (way.made(), way.scene.network.connections(&way.machine, way.scene.server));
        way.cut();
        sleep(ms(9_000)).await;
        assert!(guards.iter().all(|guard| !guard.is_lost()));
        assert_eq!(way.made() - made, open as u64, "the caller's connection and the watchdog's");
    });
}

#[test]
fn n15_hundreds_of_locks_that_cannot_be_renewed_dial_step_by_step_and_are_all_told_lost() {
    play_with(ms(4_500), async |way| {
        let guards = many_locks(way).await;
        let (made, cut) = (way.made(), Instant::now());
        way.refuse(true);
        way.cut();
        let losses = guards.iter().map(|guard| async {
            let deadline = Instant::now() + guard.remaining();
            guard.lost().await;
            deadline.elapsed()
        });
        let late = join_all(losses).await.into_iter().max();
        assert!(late <= Some(ms(2)), "told {late:?} after its deadline");
        let dials = way.made() - made;
        // At once, and then 25 ms later, doubling to a twelfth of the lease, up to a quarter of it less.
        let mut steps = [0, 18, 37, 75, 150].into_iter().chain(std::iter::repeat(281));
        let mut at = 0;
        let most = std::iter::from_fn(|| {
            at += steps.next()?;
            (at <= cut.elapsed().as_millis()).then_some(())
        });
        let most = 2 * most.count() as u64;
        assert!((3..=most).contains(&dials), "{dials} dials, {most} at the most");
    });
}

#[test]
fn a_call_while_redis_is_down_says_so_after_the_command_timeout() {
    play_with(MINUTE, async |way| {
        let (lock, guard) = (way.client.lock("down"), way.hold("held").await);
        way.scene.network.kill(way.scene.server);
        let begun = Instant::now();
        tokio::join!(
            async { unavailable(lock.lock().await) },
            async { unavailable(lock.try_lock(ms(100), MINUTE).await) },
            async { unavailable(lock.try_lock(5 * COMMAND, MINUTE).await) },
            async { unavailable(lock.try_lock_now().await) },
            async { unavailable(lock.is_locked().await) },
            async { unavailable(lock.is_held().await) },
            async { unavailable(lock.hold_count().await) },
            async { unavailable(lock.remaining_lease().await) },
            async { unavailable(lock.force_unlock().await) },
            async { unavailable(guard.unlock().await) },
        );
        assert!(begun.elapsed() <= COMMAND + ms(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn an_error_says_whether_the_command_can_have_been_executed() {
    play_with(MINUTE, async |way| {
        let (lock, Scene { network, server, .. }) = (way.client.lock(NAME), way.scene);
        network.stop(*server);
        unknown(lock.try_lock_now()).await;
        network.go_on(*server);
        // What it may have done is undone.
        sleep(RECOVERY).await;
        assert!(way.scene.holds(NAME).is_empty());
        network.kill(*server);
        sleep(AWAY).await;
        let error = unavailable(lock.try_lock_now().await);
        assert_eq!(error.outcome(), Outcome::NotExecuted);
    });
}

/// A handler has less time than the client would take. Redis has never heard of what it gives up.
#[test]
fn a_call_that_is_dropped_while_it_waits_for_a_connection_leaves_nothing_behind() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        let held = client.lock("held");
        let guard = hold(&held).await;
        scene.network.kill(scene.server);
        sleep(ms(100)).await;
        let (plain, fair) = (client.lock("shared"), client.fair_lock("fair"));
        let (shared, all) = (client.read_write_lock("both"), client.multi_lock(["a", "b"]));
        for _ in 0..10 {
            let calls = async {
                let (plain, nested) = tokio::join!(plain.try_lock_now(), held.try_lock_now());
                drop((plain, nested));
            };
            let others = async {
                drop(tokio::join!(fair.lock(), shared.read(), shared.write(), all.lock()));
            };
            let both = machine.run(timeout(ms(50), async { tokio::join!(calls, others) }));
            both.await.expect_err("Redis is down");
        }
        assert_eq!(client.health().pending_releases, 0);
        scene.network.start(scene.server, |_, _| {});
        let before = scene.calls("evalsha");
        sleep(2 * SECOND).await;
        // The client gives up its entries in the two queues, if there are any.
        assert!(scene.calls("evalsha") <= before + 2, "something was undone");
        release(hold(&plain).await).await;
        release(guard).await;
        assert!(machine.run(client.shutdown(SECOND)).await.is_clean());
    });
}

#[test]
fn a_call_during_a_short_outage_succeeds_when_it_is_over() {
    play_with(MINUTE, async |way| {
        let Scene { network, server, .. } = way.scene;
        network.kill(*server);
        let (guard, ()) = tokio::join!(way.hold(NAME), async {
            sleep(COMMAND / 3).await;
            network.start(*server, |_, _| ());
        });
        guard.unlock().await.expect("a release");
    });
}

/// In whichever order.
async fn all_have_turns(waiters: Vec<JoinHandle<Waited>>) {
    let turns = waiters.into_iter().map(|waiter| async {
        let guard = waiter.await.expect("no panic").0.expect("riding out").expect("the lock");
        guard.unlock().await.expect("a release");
    });
    join_all(turns).await;
}

/// No connection breaks, and the head of the queue has a time limit of its own: nothing but its request finds the outage.
#[test]
fn w2_a_call_behind_one_that_goes_on_gives_up_when_the_outage_has_lasted_too_long() {
    for state in [State::Loading, State::Busy] {
        play(0, async |scene| {
            let limit = ms(1_500);
            let options = LockClient::builder().command_timeout(COMMAND).outage_limit(limit);
            let options = options.warn_waits_longer_than(MINUTE);
            let (machine, client) = scene.client(AWAY, options).await;
            let (_, other) = scene.client(AWAY, LockClient::builder()).await;
            let way = Way { scene, machine, client, other };
            way.hold_by_hand(ms(500));
            let head = way.parked(MINUTE).await;
            let behind = way.parked(Duration::MAX).await;
            scene.network.at(scene.server, |server, _| server.set(state, true));
            // The head asks when the lease could have ended, and its request is refused for as long as it may take.
            let all = ms(500) + COMMAND + limit + ms(100);
            let ended = timeout(all, behind).await.expect("an error in time");
            let (result, _) = ended.expect("no panic");
            assert_eq!(result.expect_err("an outage").kind(), ErrorKind::Unavailable);
            assert!(!head.is_finished(), "it has time");
            scene.network.at(scene.server, |server, _| server.set(state, false));
            let (result, _) = head.await.expect("no panic");
            release(result.expect("an answer").expect("the lock")).await;
        });
    }
}

#[test]
fn lock_gives_up_when_an_outage_outlasts_the_limit() {
    for (limit, gives_up) in [(ms(1_500), true), (MINUTE, false), (Duration::MAX, false)] {
        play(0, async |scene| {
            let options = LockClient::builder().command_timeout(COMMAND).outage_limit(limit);
            let (machine, client) = scene.client(AWAY, options).await;
            let way = Way { scene, machine, other: client.clone(), client };
            way.hold_by_hand(2 * MINUTE);
            let waiter = way.parked(Duration::MAX).await;
            way.scene.network.kill(way.scene.server);
            let outage = Instant::now();
            let ends = timeout(MINUTE / 2, waiter).await;
            assert_eq!(ends.is_ok(), gives_up, "{limit:?}");
            if let Ok(ended) = ends {
                unavailable(ended.expect("no panic").0);
                let took = outage.elapsed();
                assert!(took >= limit && took <= limit + COMMAND, "gave up after {took:?}");
            }
        });
    }
}

#[test]
fn a_release_that_redis_could_not_hear_is_made_good() {
    play_with(MINUTE, async |way| {
        let (unlocked, dropped) = (way.hold("unlocked").await, way.hold("dropped").await);
        way.refuse(true);
        way.cut();
        drop(dropped);
        sleep(AWAY).await;
        // It was not sent, and will be: "not executed" would be a promise.
        assert_eq!(unavailable(unlocked.unlock().await).outcome(), Outcome::Unknown);
        assert!(["unlocked", "dropped"].iter().all(|name| way.scene.holds(name).len() == 1));
        way.refuse(false);
        way.is_free_within(RECOVERY, &["unlocked", "dropped"]).await;
    });
}

#[test]
fn callers_and_waiters_together_do_not_storm_a_server_that_is_down() {
    play_with(MINUTE, async |way| {
        way.hold_by_hand(MINUTE);
        let guards = [way.hold("a").await, way.hold("b").await];
        let mut waiters = Vec::new();
        for _ in 0..50 {
            waiters.push(way.parked(Duration::MAX).await);
        }
        let made = way.made();
        way.refuse(true);
        way.cut();
        drop(guards);
        let callers = (0..50).map(|number| way.client.lock(format!("caller {number}")));
        let calls = callers.map(|lock| async move { unavailable(lock.lock().await) });
        let (_, ()) = tokio::join!(join_all(calls), sleep(ms(2_000)));
        // Two connections: at once, and after 25 ms, doubling to half a second, or a quarter less.
        let dials = way.made() - made;
        assert!((4..=20).contains(&dials), "{dials} dials in two seconds");
        way.refuse(false);
        way.is_free_within(RECOVERY, &["a", "b"]).await;
        way.free_by_hand();
        all_have_turns(waiters).await;
    });
}

#[test]
fn after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed() {
    play_with(ms(600), async |way| {
        let guard = way.hold(NAME).await;
        way.scene.network.kill(way.scene.server);
        way.scene.network.start(way.scene.server, |server, now| server.start(now));
        let other = way.other.lock(NAME).lock().await.expect("Redis has forgotten the lock");
        guard.lost().await;
        assert_eq!(guard.loss(), Some(Loss::TakenOver), "told by a renewal and not by the lease");
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!other.is_lost() && way.scene.holds(NAME).len() == 1);
        other.unlock().await.expect("a release");
        let guard = way.hold(NAME).await;
        // Without renewals it would have ended twice.
        assert!(timeout(ms(1_500), guard.lost()).await.is_err());
        guard.unlock().await.expect("a release");
    });
}

/// However often they break: the pause before the next dial is short beside the lease.
#[test]
fn w28_connections_that_break_as_soon_as_they_are_made_cost_no_lease_that_is_renewed() {
    let watchdog = ms(300);
    play_with(watchdog, async |way| {
        let guard = way.hold(NAME).await;
        for _ in 0..40 {
            let made = way.made();
            way.cut();
            while way.made() == made {
                sleep(ms(1)).await;
            }
            // Until it is ready, and for a request and its answer.
            sleep(6 * AWAY).await;
        }
        way.cut();
        sleep(2 * watchdog).await;
        assert!(!guard.is_lost());
        guard.unlock().await.expect("a release");
    });
}

#[test]
fn w28_connections_that_are_cut_as_soon_as_they_are_ready_are_made_ever_more_slowly() {
    play_with(MINUTE, async |way| {
        let Scene { network, server, .. } = way.scene;
        let mut made = vec![way.made()];
        for _ in 0..2 {
            for _ in 0..2_000 {
                let ages = network.ages(&way.machine, *server);
                if ages.iter().any(|(_, age)| *age >= 6 * AWAY) {
                    way.cut();
                }
                sleep(ms(1)).await;
            }
            made.push(way.made());
        }
        let (early, late) = (made[1] - made[0], made[2] - made[1]);
        assert!((7..=20).contains(&early) && late < early, "{early} in two seconds, then {late}");
        way.hold(NAME).await.unlock().await.expect("a release");
    });
}

/// Whether somebody's script runs for too long.
fn busy(scene: &Scene, yes: bool) {
    scene.network.at(scene.server, |server, _| server.set(State::Busy, yes));
}

#[test]
fn s11_holders_calls_and_waiters_ride_out_a_busy_server() {
    all_ride_out(State::Busy);
}

#[test]
fn s13_holders_calls_and_waiters_ride_out_a_server_that_loads() {
    all_ride_out(State::Loading);
}

fn all_ride_out(state: State) {
    // The one client asks for no longer than a command may take, and the other one for longer than all this.
    play_with(ms(4_500), async |way| {
        let Scene { network, server, .. } = way.scene;
        let set = |yes| network.at(*server, |server, _| server.set(state, yes));
        // It is to be renewed meanwhile.
        let kept = way.hold("kept").await;
        let held = way.other.lock("held").lock().await.expect("the lock");
        let dropped = way.other.lock("dropped").lock().await.expect("the lock");
        for (name, lease) in [("stays", 60_000), ("ends", 1_000), ("ends too", 1_000)] {
            way.scene.ask::<()>(&["HSET", name, "somebody:1", "1"]);
            way.scene.ask::<()>(&["PEXPIRE", name, &lease.to_string()]);
        }
        let begun = Instant::now();
        let wait = |name: &str, wait| {
            let lock = way.client.lock(name);
            way.machine.spawn(async move { (lock.try_lock(wait, MINUTE).await, Instant::now()) })
        };
        let (rides, stays) = (wait("ends", MINUTE), wait("stays", MINUTE));
        let cut_short = wait("ends too", ms(1_300));
        sleep(10 * AWAY).await;
        set(true);
        let gives_up = wait("stays too", MINUTE);
        drop(dropped);
        let [free, asked] = ["free", "asked"].map(|name| way.other.lock(name));
        let calls = async {
            let calls = async { tokio::join!(free.lock(), held.unlock(), asked.is_locked()) };
            let (guard, released, locked) = calls.await;
            released.expect("a release rides it out");
            assert!(!locked.expect("a question rides it out"));
            guard.expect("a call rides it out").unlock().await.expect("a release");
            assert!(begun.elapsed() >= ms(2_400), "it cannot have answered");
        };
        let ends = async {
            let (gave_up, at) = gives_up.await.expect("no panic");
            // One that begins now has one command timeout, and one that waited already its wait.
            unavailable(gave_up);
            assert!(at - begun <= COMMAND + 10 * AWAY + ms(1), "{:?}", at - begun);
            let (cut_short, at) = cut_short.await.expect("no panic");
            unavailable(cut_short);
            assert!(at - begun >= ms(1_300), "{:?}", at - begun);
            tokio::time::sleep_until(begun + ms(2_400)).await;
            assert!(!rides.is_finished() && !stays.is_finished());
            set(false);
        };
        tokio::join!(calls, ends);
        let (guard, at) = rides.await.expect("no panic");
        assert!(at - begun <= ms(2_400) + RECOVERY, "{:?}", at - begun);
        guard.expect("riding out").expect("in time").unlock().await.expect("a release");
        way.scene.ask::<()>(&["DEL", "stays"]);
        way.scene.ask::<()>(&["PUBLISH", &channel("stays"), "0"]);
        let (guard, _) = timeout(RECOVERY, stays).await.expect("its turn").expect("no panic");
        guard.expect("riding out").expect("in time").unlock().await.expect("a release");
        sleep(ms(4_500)).await;
        assert!(!kept.is_lost());
        kept.unlock().await.expect("a release");
        assert!(way.scene.keys().is_empty());
    });
}

#[test]
fn s11_a_waiter_that_goes_from_a_busy_server_costs_nobody_a_connection() {
    play_with(MINUTE, async |way| {
        way.hold_by_hand(MINUTE);
        let gone = way.other.lock("gone").lock().await.expect("the lock");
        let stays = way.parked(Duration::MAX).await;
        let goes = waiting_for(&way.machine, way.client.lock("gone"));
        sleep(10 * AWAY).await;
        assert_eq!(way.scene.subscribers("gone"), 1);
        let made = way.made();
        busy(way.scene, true);
        // Its channel is no longer wanted, and a busy server does not want to hear of it.
        goes.abort();
        sleep(ms(500)).await;
        busy(way.scene, false);
        assert_eq!(way.scene.subscribers("gone"), 1, "it was refused: that is the point");
        sleep(RECOVERY).await;
        assert_eq!((way.scene.subscribers("gone"), way.scene.subscribers(NAME)), (0, 1));
        assert_eq!(way.made(), made, "connections were made anew");
        way.free_by_hand();
        all_have_turns(vec![stays]).await;
        gone.unlock().await.expect("a release");
    });
}

/// Who asks for a lock in order while the memory is full is told to wait, and Redis writes no entry for it. It asks again,
/// and does not wait for a message that nobody can send it.
#[test]
fn who_is_refused_an_entry_for_full_memory_asks_again_within_the_grace() {
    let grace = ms(1_000);
    for reads in [false, true] {
        play_with(Duration::from_secs(30), async |way| {
            let Scene { network, server, .. } = way.scene;
            let full = |yes| network.at(*server, |server, _| server.set(State::FullMemory, yes));
            let (ours, theirs) = (way.client.clone(), way.other.clone());
            let held = match reads {
                true => Either::Left(theirs.read_write_lock(NAME).read().await.unwrap()),
                false => Either::Right(theirs.fair_lock(NAME).lock().await.unwrap()),
            };
            full(true);
            let waiting = way.machine.spawn(async move {
                match reads {
                    true => ours.read_write_lock(NAME).write().await.unwrap().unlock().await,
                    false => ours.fair_lock(NAME).lock().await.unwrap().unlock().await,
                }
            });
            sleep(ms(100)).await;
            full(false);
            let begun = Instant::now();
            sleep(grace + 4 * AWAY).await;
            assert!(!waiting.is_finished(), "it is held");
            match held {
                Either::Left(guard) => guard.unlock().await.unwrap(),
                Either::Right(guard) => guard.unlock().await.unwrap(),
            }
            timeout(8 * AWAY, waiting).await.expect("its entry is there").unwrap().unwrap();
            assert!(begun.elapsed() < 2 * grace);
        });
    }
}
