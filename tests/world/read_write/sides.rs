//! Handles that read and write: nobody else is inside beside one that writes, whatever becomes what, and whenever a
//! call is dropped.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use redlatch::kind::ReadWriteKind;

use super::*;

/// How many guards each handle has that read, and that write.
#[derive(Clone, Default)]
struct Guards(Arc<Mutex<BTreeMap<String, [u32; 2]>>>);

/// A guard, and the note of it.
struct Noted<G> {
    guard: G,
    _note: Note,
}

struct Note {
    guards: Guards,
    handle: String,
    writes: bool,
}

impl Guards {
    fn note(&self, lock: &ReadWriteLock, writes: bool) -> Note {
        let handle = lock.owner().to_owned();
        let mut all = self.0.lock().unwrap();
        for (other, [readers, writers]) in all.iter().filter(|(other, _)| **other != handle) {
            assert!(*writers == 0, "{handle} is inside beside {other}, which writes");
            assert!(!writes || *readers == 0, "{handle} writes beside {other}");
        }
        all.entry(handle.clone()).or_default()[usize::from(writes)] += 1;
        Note { guards: self.clone(), handle, writes }
    }

    fn reads(&self, lock: &ReadWriteLock, guard: ReadGuard) -> Noted<ReadGuard> {
        Noted { guard, _note: self.note(lock, false) }
    }

    fn writes(&self, lock: &ReadWriteLock, guard: WriteGuard) -> Noted<WriteGuard> {
        Noted { guard, _note: self.note(lock, true) }
    }

    fn are_none(&self) -> bool {
        self.0.lock().unwrap().values().all(|both| *both == [0, 0])
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // Also if a check has failed meanwhile.
        let mut all = unpoisoned(&self.guards.0);
        all.get_mut(&self.handle).unwrap()[usize::from(self.writes)] -= 1;
    }
}

/// Gives a guard back, in one way or the other; it is noted until just before that.
macro_rules! give_back {
    ($noted:expr, $random:expr) => {{
        let Noted { guard, _note } = $noted;
        drop(_note);
        if $random.permille(500) { drop(guard) } else { guard.unlock().await.unwrap() }
    }};
}

async fn changes(lock: ReadWriteLock, all: Guards, mut random: Random, rounds: u32) {
    for _ in 0..rounds {
        sleep(ms(random.below(12))).await;
        match random.below(9) {
            0 | 1 => {
                let guard = all.reads(&lock, lock.read().await.unwrap());
                sleep(ms(random.below(6))).await;
                give_back!(guard, random);
            }
            2 => {
                let guard = all.writes(&lock, lock.write().await.unwrap());
                sleep(ms(random.below(6))).await;
                give_back!(guard, random);
            }
            3 => {
                let outer = all.writes(&lock, lock.write().await.unwrap());
                let inner = all.reads(&lock, lock.read().await.unwrap());
                sleep(ms(random.below(4))).await;
                if random.permille(500) {
                    give_back!(outer, random);
                    sleep(ms(random.below(4))).await;
                    give_back!(inner, random);
                } else {
                    give_back!(inner, random);
                    sleep(ms(random.below(4))).await;
                    give_back!(outer, random);
                }
            }
            4 => {
                let outer = all.reads(&lock, lock.read().await.unwrap());
                sleep(ms(random.below(3))).await;
                match lock.write().await {
                    Ok(inner) => {
                        let inner = all.writes(&lock, inner);
                        sleep(ms(random.below(4))).await;
                        give_back!(inner, random);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldDeadlock, "{error}"),
                }
                sleep(ms(random.below(4))).await;
                give_back!(outer, random);
            }
            5 => {
                let Noted { guard, _note } = all.reads(&lock, lock.read().await.unwrap());
                match guard.try_upgrade().await.unwrap() {
                    Ok(guard) => {
                        drop(_note);
                        let guard = all.writes(&lock, guard);
                        sleep(ms(random.below(4))).await;
                        give_back!(guard, random);
                    }
                    Err(guard) => give_back!(Noted { guard, _note }, random),
                }
            }
            6 => {
                let Noted { guard, _note } = all.writes(&lock, lock.write().await.unwrap());
                drop(_note);
                let guard = all.reads(&lock, guard.downgrade().await.unwrap());
                sleep(ms(random.below(4))).await;
                give_back!(guard, random);
            }
            7 => {
                // Dropped wherever it is.
                let reading = all.reads(&lock, lock.read().await.unwrap());
                drop(timeout(ms(random.below(8)), lock.write()).await);
                give_back!(reading, random);
                let writing = lock.write().await.unwrap();
                drop(timeout(ms(random.below(8)), writing.downgrade()).await);
            }
            _ => {
                if let Some(guard) = lock.try_write_now().await.unwrap() {
                    give_back!(all.writes(&lock, guard), random);
                }
                if let Some(guard) = lock.try_read_now().await.unwrap() {
                    give_back!(all.reads(&lock, guard), random);
                }
            }
        }
    }
}

#[test]
fn nobody_is_inside_beside_a_handle_that_writes() {
    for seed in 0..in_short(6, 60) {
        for away in [ms(0), ms(2), ms(20)] {
            play(seed, async |scene| {
                let (guards, mut machines, mut tasks) = (Guards::default(), vec![], vec![]);
                for number in 0..3 {
                    let (machine, client) = scene.client(away, LockClient::builder()).await;
                    for task in 0..4 {
                        let random = Random::new(seed * 100 + number * 10 + task);
                        let lock = client.read_write_lock("config");
                        tasks.push(machine.spawn(changes(lock, guards.clone(), random, 30)));
                    }
                    machines.push(machine);
                }
                for task in tasks {
                    let task = timeout(Duration::from_secs(600), task).await;
                    task.expect("no call waits for ever").unwrap();
                }
                assert!(guards.are_none());
                sleep(ms(1_000)).await;
                assert_eq!(scene.keys(), [""; 0], "{away:?}");
            });
        }
    }
}

type Change = fn(ReadWriteLock) -> BoxFuture<'static, ()>;

const CHANGES: [(&str, Change); 4] = [
    ("a read in a write", |lock| {
        async move {
            let _outer = lock.write().await.unwrap();
            drop(lock.read().await.unwrap());
        }
        .boxed()
    }),
    ("a write in a read", |lock| {
        async move {
            let _outer = lock.read().await.unwrap();
            drop(lock.write().await);
        }
        .boxed()
    }),
    ("an upgrade", |lock| {
        async move { drop(lock.read().await.unwrap().try_upgrade().await.unwrap()) }.boxed()
    }),
    ("a downgrade", |lock| {
        async move { drop(lock.write().await.unwrap().downgrade().await.unwrap()) }.boxed()
    }),
];

/// Each call is dropped at each moment of its life, while others of its client and of another one come.
#[test]
fn a_change_that_is_dropped_leaves_neither_side_and_those_that_wait_come_in() {
    // Timers know whole milliseconds only.
    for (away, parts) in [(ms(0), 4), (ms(2), 32), (ms(100), 64)] {
        for (what, change) in CHANGES {
            for part in 0..parts {
                let (others, at) = (part % 4, 4 * away * part / parts);
                play(part.into(), async |scene| {
                    let (_one, ours) = scene.client(away, LockClient::builder()).await;
                    let (_other, theirs) = scene.client(away, LockClient::builder()).await;
                    let mut waits = Vec::new();
                    for (client, comes) in [(&ours, others & 1), (&theirs, others & 2)] {
                        let lock = client.read_write_lock("config");
                        waits.extend((comes > 0).then(|| {
                            tokio::spawn(async move {
                                sleep(at / 2).await;
                                lock.read().await.unwrap().unlock().await.unwrap();
                                lock.write().await.unwrap().unlock().await.unwrap();
                            })
                        }));
                    }
                    let lock = ours.read_write_lock("config");
                    drop(timeout(at, change(lock)).await);
                    for one in waits {
                        let one = timeout(20 * away + ms(200), one).await;
                        one.unwrap_or_else(|_| panic!("{what}, {part}: who waits")).unwrap();
                    }
                    sleep(4 * away + ms(10)).await;
                    assert_eq!(scene.keys(), [""; 0], "{what} at {away:?}, {part}");
                    let again = ours.read_write_lock("config");
                    let again = timeout(2 * away + ms(1), again.try_write_now()).await;
                    again.expect("an answer").unwrap().expect("it is free").unlock().await.unwrap();
                });
            }
        }
    }
}

/// A reader of another handle comes at each moment about that of the upgrade, whose share is open or over.
#[test]
fn a_reader_that_comes_during_an_upgrade_comes_before_it_or_after_what_it_brings() {
    for away in [ms(2), ms(100)] {
        for comes in moments(3 * away, 24) {
            for (pause, granted) in
                [(ms(0), true), (ms(0), false), (ms(300), true), (ms(300), false)]
            {
                play(0, async |scene| {
                    let (_one, ours) = scene.client(away, LockClient::builder()).await;
                    let (_other, theirs) = scene.client(away, LockClient::builder()).await;
                    let [lock, other] = [(); 2].map(|()| ours.read_write_lock("config"));
                    let foreign = theirs.read_write_lock("config");
                    let foreign = if granted { None } else { Some(foreign.read().await.unwrap()) };
                    let all = Guards::default();
                    let reading = all.reads(&lock, lock.read().await.unwrap());
                    sleep(pause).await;
                    let noted = all.clone();
                    let reads = tokio::spawn(async move {
                        sleep(comes).await;
                        let guard = noted.reads(&other, other.read().await.unwrap());
                        sleep(away / 4).await;
                        drop(guard);
                    });
                    sleep(away).await;
                    match lock.write().await {
                        Ok(writing) => {
                            let writing = all.writes(&lock, writing);
                            assert!(granted);
                            sleep(2 * away).await;
                            drop(writing);
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldDeadlock),
                    }
                    timeout(5 * away + ms(20), reads).await.expect("its turn").unwrap();
                    drop((reading, foreign));
                    sleep(2 * away + ms(10)).await;
                    assert_eq!(scene.keys(), [""; 0]);
                });
            }
        }
    }
}

/// The hash lasts as long as the lease of a reader that has gone before the handle writes: it did not leave by this version's
/// script. The handle does not give back what it has: its leases end, or it dies.
#[test]
fn who_waits_for_a_reader_that_writes_waits_for_no_lease_but_its_own() {
    const AWAY: Duration = ms(2);
    const LEASE: Duration = ms(40);
    for case in 0..8 {
        let [dies, upgrades, comes_first] = [0, 1, 2].map(|bit| case >> bit & 1 == 1);
        let case = format!("dies: {dies}, upgrades: {upgrades}, comes first: {comes_first}");
        play(1, async |scene| {
            let (machine, dying) = scene.client(AWAY, LockClient::builder()).await;
            let (_other, other) = scene.client(AWAY, LockClient::builder()).await;
            let (_third, third) = scene.client(AWAY, LockClient::builder()).await;
            let reads = other.read_write_lock("config");
            let reads = reads.read_with_lease(ms(5_000)).await.unwrap();
            let lock = dying.read_write_lock("config");
            let own = machine.run(async { lock.read_with_lease(LEASE).await.unwrap() }).await;
            let begun = Instant::now();
            let waits = comes_first.then(|| writes(&third));
            let marker = format!("{{config}}:{}:rwlock_timeout:1", reads.owner());
            scene.ask::<()>(&["HDEL", "config", reads.owner()]);
            scene.ask::<()>(&["DEL", &marker]);
            assert!(scene.pttl("config") > 4_000, "{case}: the lease of the one that has gone");
            let guards = machine.run(async {
                if upgrades {
                    (None, own.try_upgrade().await.unwrap().expect("the only reader"))
                } else {
                    (Some(own), lock.write_with_lease(LEASE).await.unwrap())
                }
            });
            let guards = guards.await;
            if dies {
                machine.crash();
            }
            let waits = waits.unwrap_or_else(|| writes(&third));
            let writing = timeout(ms(10_000), waits).await.expect("its turn").unwrap();
            assert!(begun.elapsed() <= LEASE + 6 * AWAY, "{case}: {:?}", begun.elapsed());
            drop(guards);
            writing.unlock().await.unwrap();
        });
    }
}

/// A guard that reads had the longer lease, and is given back while the handle writes: what is left of the handle keeps
/// the lock for its own lease.
#[test]
fn who_waits_for_a_writer_waits_for_no_lease_of_a_reader_that_has_gone() {
    const AWAY: Duration = ms(2);
    const LEASE: Duration = ms(200);
    for case in 0..48 {
        let is = |bit: u32| case >> bit & 1 == 1;
        let (upgrades, another, dies, reads) = (is(0), is(1), is(2), is(3));
        let goes = ["unlock", "drop", "unlock, dropped on the way"][case >> 4];
        let case = format!(
            "upgrades: {upgrades}, another reader: {another}, goes: {goes}, dies: {dies}, for a reader: {reads}"
        );
        play(1, async |scene| {
            let (machine, ours) = scene.client(AWAY, LockClient::builder()).await;
            let (_other, theirs) = scene.client(AWAY, LockClient::builder()).await;
            let lock = ours.read_write_lock("config");
            let long = || async { lock.read_with_lease(ms(5_000)).await.unwrap() };
            let begun = Instant::now();
            let guards = machine.run(async {
                let before = if upgrades { Some(long().await) } else { None };
                let writing = lock.write_with_lease(LEASE).await.unwrap();
                let reading = match before {
                    Some(before) => before,
                    None => long().await,
                };
                let another = match another {
                    true => Some(lock.read_with_lease(LEASE / 2).await.unwrap()),
                    false => None,
                };
                match goes {
                    "unlock" => reading.unlock().await.unwrap(),
                    "drop" => drop(reading),
                    _ => drop(timeout(AWAY / 2, reading.unlock()).await),
                }
                sleep(4 * AWAY).await;
                (writing, another)
            });
            let guards = guards.await;
            assert!(!guards.0.is_lost(), "{case}");
            let left = scene.pttl("config");
            assert!(left > 0 && left <= 200, "{case}: {left} ms");
            if dies {
                machine.crash();
            }
            let lock = theirs.read_write_lock("config");
            let guard = timeout(ms(10_000), Side::of(&lock, !reads)).await.expect("its turn");
            guard.unlock().await;
            assert!(begun.elapsed() <= LEASE + 12 * AWAY, "{case}: {:?}", begun.elapsed());
            drop(guards);
        });
    }
}

/// What the client asks for because a reader has gone is not about the nested write that comes meanwhile.
#[test]
fn a_reader_that_goes_shortens_no_lease_of_a_nested_writer() {
    for away in [ms(2), ms(40)] {
        for moment in moments(4 * away, 32) {
            play(0, async |scene| {
                let (_one, ours) = scene.client(away, LockClient::builder()).await;
                let (_other, theirs) = scene.client(away, LockClient::builder()).await;
                let lock = ours.read_write_lock("config");
                let reading = lock.read_with_lease(ms(2_000)).await.unwrap();
                let writing = lock.write_with_lease(ms(600)).await.unwrap();
                let nested = async {
                    sleep(moment).await;
                    lock.write_with_lease(ms(1_500)).await.unwrap()
                };
                let (nested, ()) =
                    futures::join!(nested, async { reading.unlock().await.unwrap() });
                sleep(6 * away).await;
                let left = scene.pttl("config");
                let promised = nested.remaining().as_millis() as i64;
                let case = format!("{away:?}, after {moment:?}: {left}, {promised}");
                assert!(promised > 0 && left >= promised && left <= 1_500, "{case}");
                let foreign = theirs.read_write_lock("config");
                assert!(foreign.try_read_now().await.unwrap().is_none(), "{case}");
                nested.unlock().await.unwrap();
                writing.unlock().await.unwrap();
                assert_eq!(scene.keys(), [""; 0]);
            });
        }
    }
}

#[test]
fn what_each_change_costs_in_round_trips() {
    for away in [ms(2), ms(100)] {
        play(1, async |scene| {
            let (_one, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.read_write_lock("config");
            drop(lock.read().await.unwrap());
            sleep(away * 2).await;
            let writing = lock.write().await.unwrap();
            let begun = Instant::now();
            let reading = lock.read().await.unwrap();
            assert_eq!(begun.elapsed(), away, "to read beside the writer");
            drop(lock.read().await.unwrap());
            assert_eq!(begun.elapsed(), away, "to read again");
            let reading = (reading, writing.downgrade().await.unwrap());
            assert_eq!(begun.elapsed(), 2 * away, "to give the write back");
            drop(reading.0);
            let writing = reading.1.try_upgrade().await.unwrap().expect("the only reader");
            assert_eq!(begun.elapsed(), 4 * away, "to write, and to give the read back");
            let reading = writing.downgrade().await.unwrap();
            assert_eq!(begun.elapsed(), 6 * away, "to read, and to give the write back");
            let other = client.read_write_lock("config").read().await.unwrap();
            let begun = Instant::now();
            let error = lock.write().await.unwrap_err();
            assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::WouldDeadlock, ms(0)));
            drop(other);
            lock.write().await.unwrap().unlock().await.unwrap();
            assert_eq!(begun.elapsed(), 2 * away);
            reading.unlock().await.unwrap();
            assert_eq!(scene.keys(), [""; 0]);
        });
    }
}

/// Redis has let the reader in beside the writer of its handle, and the call never hears of it.
#[test]
fn a_reader_that_gives_up_beside_its_writer_leaves_it_no_lease() {
    let (away, short) = (ms(20), ms(400));
    for (long, moment) in [None, Some(ms(5_000))]
        .into_iter()
        .flat_map(|long| moments(2 * away, 8).map(move |at| (long, at)))
    {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.read_write_lock("config");
            let writing = machine.run(lock.write_with_lease(short)).await.expect("to write");
            let reads = async {
                match long {
                    Some(lease) => lock.read_with_lease(lease).await.map(drop),
                    None => lock.read().await.map(drop),
                }
            };
            let _ = machine.run(timeout(moment, reads)).await;
            sleep(6 * away).await;
            assert!(!writing.is_lost(), "that is the point");
            assert!(scene.pttl("config") <= 400, "{long:?} {moment:?}: {}", scene.pttl("config"));
            machine.run(writing.unlock()).await.expect("a release");
        });
    }
}

/// An operator frees it between the two requests of that.
#[test]
fn an_upgrade_of_a_lock_that_is_gone_before_its_end_is_lost() {
    let away = ms(20);
    for moment in moments(4 * away, 16) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.read_write_lock("config");
            let lease = ms(60_000);
            let reading = machine.run(lock.read_with_lease(lease)).await.expect("to read");
            let upgrade = machine.spawn(reading.try_upgrade());
            sleep(moment).await;
            scene.ask::<u64>(&["DEL", "config"]);
            match upgrade.await.expect("no panic") {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{moment:?}"),
                // Redis had let go of the reader by then.
                Ok(_) => assert!(moment >= away + away / 2, "{moment:?}: it writes"),
            }
        });
    }
}

/// Redis hears of the reader before it hears of the hand-off to its writer.
#[test]
fn a_writer_that_reads_at_once_has_its_own_lease_and_not_that_of_the_one_before() {
    for moment in moments(NEXT_AWAY * 4, 8) {
        reads_at_once(moment, |client| client.read_write_lock("config"));
        reads_at_once(moment, |client| client.fenced_read_write_lock("config"));
    }
}

const NEXT_AWAY: Duration = ms(20);

fn reads_at_once<K: ReadWriteKind>(moment: Duration, lock: fn(&LockClient) -> ReadWriteLock<K>) {
    play(0, async |scene| {
        let (machine, client) = scene.client(NEXT_AWAY, LockClient::builder()).await;
        let writes = |lease| {
            let lock = lock(&client);
            machine.spawn(async move { lock.write_with_lease(lease).await.expect("to write") })
        };
        let holder = machine.run(lock(&client).write()).await.expect("to write");
        let before = writes(ms(5_000));
        sleep(6 * NEXT_AWAY).await;
        let next = lock(&client);
        let both = machine.spawn(async move {
            let writing = next.write_with_lease(ms(600)).await.expect("to write");
            sleep(moment).await;
            let reading = next.read_with_lease(ms(600)).await.expect("to read");
            (writing, reading)
        });
        sleep(6 * NEXT_AWAY).await;
        machine.run(holder.unlock()).await.expect("a release");
        let before = before.await.expect("no panic");
        // So many that the request draws tokens, too, where the lock is fenced.
        let crowd: Vec<_> = (0..70).map(|_| writes(ms(600))).collect();
        sleep(6 * NEXT_AWAY).await;
        drop(before);
        let (writing, reading) = both.await.expect("no panic");
        sleep(4 * NEXT_AWAY).await;
        assert!(!writing.is_lost() && !reading.is_lost());
        assert!(scene.pttl("config") <= 600, "{moment:?}: {}", scene.pttl("config"));
        machine.run(reading.unlock()).await.expect("a release");
        machine.run(writing.unlock()).await.expect("a release");
        crowd.iter().for_each(JoinHandle::abort);
    });
}
