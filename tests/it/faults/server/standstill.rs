//! The server stands still for a while: busy with a script, loading, paused, stopped.

use std::cell::Cell;

use super::*;

/// Somebody's script that never ends.
struct Busy<'a> {
    server: &'a Server,
    script: std::thread::JoinHandle<redis::RedisResult<()>>,
}

impl<'a> Busy<'a> {
    /// From when the server says so.
    async fn new(server: &'a Server) -> Self {
        // The older name of `busy-reply-threshold`.
        server.ask::<()>(&["CONFIG", "SET", "lua-time-limit", "100"]);
        let mut connection = server.connection().expect("a connection");
        connection.set_read_timeout(None).expect("no limit to the answer");
        let script = std::thread::spawn(move || {
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection)
        });
        wait_until("a busy server", SOON, || Self::is_seen(server)).await;
        Self { server, script }
    }

    fn is_seen(server: &Server) -> bool {
        server.try_ask::<()>(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
    }

    fn end(self) {
        assert!(Self::is_seen(self.server), "the script ended before its time");
        self.server.ask::<()>(&["SCRIPT", "KILL"]);
        self.script.join().expect("the script's thread").expect_err("a killed script");
    }
}

#[tokio::test]
async fn s11_calls_and_waiters_ride_out_a_busy_server() {
    let (server, proxy) = proxied();
    let client = impatient(server.url(), SOON).await;
    // Its waiters ask for longer than one command may take.
    let short = impatient(proxy.url(&server), ms(500)).await;
    let (held, dropped) = (hold(&client.lock("held")).await, hold(&client.lock("dropped")).await);
    server.hold_by_hand("stays", "somebody:1", MINUTE);
    for name in ["ends", "ends too"] {
        server.hold_by_hand(name, "somebody:1", ms(2_000));
    }
    let ends = Instant::now() + ms(2_000);
    let wait = |name: &str, wait| {
        let lock = short.lock(name);
        tokio::spawn(async move { (lock.try_lock(wait, MINUTE).await, Instant::now()) })
    };
    let (rides, stays) = (wait("ends", MINUTE), wait("stays", MINUTE));
    let cut_short = wait("ends too", ms(2_300));
    for name in ["ends", "ends too", "stays"] {
        wait_until("a subscription", SOON, || server.subscribers(name) == 1).await;
    }
    proxy.settled(ms(50)).await;
    let busy = Busy::new(&server).await;
    let gives_up = wait("stays:2", MINUTE);
    drop(dropped);
    let locks = [client.lock("free"), client.lock("other")];
    let calls = async {
        let (guard, released, locked) =
            tokio::join!(locks[0].lock(), held.unlock(), locks[1].is_locked());
        released.expect("a release rides it out");
        assert!(!locked.expect("a question rides it out"));
        release(guard.expect("a call rides it out")).await;
        Instant::now()
    };
    let ended = async {
        // From when they ask, for longer than their command timeout.
        tokio::time::sleep_until((ends + ms(600)).into()).await;
        let (gave_up, _) = soon("the end of a call", gives_up).await.unwrap();
        let error = gave_up.expect_err("a call that begins now has one command timeout");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // One that waited already asks until its wait is over.
        let (cut_short, at) = soon("the end of a wait", cut_short).await.unwrap();
        assert_eq!(cut_short.expect_err("who knows").kind(), ErrorKind::Unavailable);
        assert!(at >= ends + ms(250), "gave up before its wait was over");
        assert!(!rides.is_finished() && !stays.is_finished());
        busy.end();
        Instant::now()
    };
    let (called, ended) =
        within(SOON, "calls that ride it out", async { tokio::join!(calls, ended) }).await;
    assert!(called >= ended, "a busy server cannot have answered");
    assert!(server.errors("BUSY") > 10, "only {} refusals", server.errors("BUSY"));
    let (guard, _) = soon("the lock whose lease had ended", rides).await.unwrap();
    release(guard.expect("riding out").expect("in time")).await;
    server.free_by_hand("stays");
    let (guard, _) = soon("the lock that was released", stays).await.unwrap();
    release(guard.expect("riding out").expect("in time")).await;
    wait_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test]
async fn s11_a_waiter_that_goes_from_a_busy_server_costs_nobody_a_connection() {
    let (server, proxy) = proxied();
    let client = impatient(proxy.url(&server), SOON).await;
    for name in ["stays", "goes"] {
        server.hold_by_hand(name, "somebody:1", MINUTE);
    }
    let stays = parked(&server, &client, "stays").await;
    let goes = parked(&server, &client, "goes").await;
    proxy.settled(ms(50)).await;
    let before = proxy.attempts();
    proxy.forget_commands();
    let busy = Busy::new(&server).await;
    goes.abort();
    // Its channel is no longer wanted, and a busy server does not want to hear of it.
    let tries = || proxy.sent("UNSUBSCRIBE") + proxy.sent("SUBSCRIBE");
    wait_until("a few refusals", SOON, || tries() > 3).await;
    busy.end();
    wait_until("one subscription", SOON, || server.subscribers("goes") == 0).await;
    assert_eq!(server.subscribers("stays"), 1, "it was given up with the other");
    assert_eq!(proxy.attempts(), before, "connections were made anew");
    server.free_by_hand("stays");
    has_its_turn(stays).await;
    server.free_by_hand("goes");
}

#[tokio::test]
async fn s13_holders_calls_and_waiters_ride_out_a_server_that_loads() {
    // 60 ms a key, and an ear for requests every 2 MiB, which are two keys.
    let slowly = ["--key-load-delay", "60000", "--rdbcompression", "no"];
    let server = Server::start_with(&slowly);
    // Renewed every 1.5 s, and so while the server loads, which takes 1.8 s.
    let holder = client_with(server.url(), ms(4_500)).await;
    let patient = impatient(server.url(), SOON).await;
    let short = impatient(server.url(), ms(500)).await;
    let guard = hold(&holder.lock("held")).await;
    server.hold_by_hand("waited", "somebody:1", MINUTE);
    let waiter = parked(&server, &short, "waited").await;
    let fill = "for i = 1, 30 do redis.call('SETRANGE', 'filler:' .. i, 1048575, 'x') end";
    server.ask::<()>(&["EVAL", fill, "0"]);
    renewed(&guard).await;
    server.ask::<()>(&["SAVE"]);
    server.kill();
    server.start_again_loading();
    // The connection has to be known as dead, or the command was sent into the void.
    let refused = short.lock("refused");
    let _ = refused.is_locked().await;
    let error = refused.try_lock_now().await.expect_err("it loads for longer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let called = soon("a call that rides it out", patient.lock("free").lock()).await;
    assert_eq!(server.info("loading").as_deref(), Some("0"));
    assert!(server.errors("LOADING") > 0, "nobody was refused");
    release(called.expect("riding out")).await;
    renewed(&guard).await;
    assert!(!guard.is_lost());
    assert!(!waiter.is_finished());
    server.free_by_hand("waited");
    has_its_turn(waiter).await;
    release(guard).await;
    assert!(["held", "waited", "free", "refused"].iter().all(|name| !server.exists(name)));
}

/// A holder whose lease ends while the server stands still, which is for longer than [`LEASE`],
/// and somebody of another client who waits for the lock. Says when that one has it.
async fn handed_off(server: &Server, stop: impl FnOnce(), go_on: impl FnOnce()) -> Instant {
    let (holder, other) = (client_with(server.url(), LEASE).await, connect(server).await);
    let names = ["renewed", "explicit"];
    let guards = [
        hold(&holder.lock(names[0])).await,
        soon("locking", holder.lock(names[1]).lock_with_lease(LEASE)).await.unwrap(),
    ];
    let guards = guards.map(Arc::new);
    let successors = [0, 1].map(|at| {
        let (lock, before) = (other.lock(names[at]), guards[at].clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.expect("riding out");
            // By its own clock: a busy machine may tell it late.
            assert!(before.is_lost(), "two holders");
            (Instant::now(), guard)
        })
    });
    for name in names {
        wait_until("a successor in line", SOON, || server.subscribers(name) == 1).await;
    }
    stop();
    let stopped = Instant::now();
    // A renewal that was answered just before may still be on its way in.
    tokio::time::sleep(ms(50)).await;
    tokio::join!(
        lost_at(&guards[0], deadline(&guards[0])),
        lost_at(&guards[1], deadline(&guards[1])),
        async {
            // Whether or not the losses have been told by then.
            tokio::time::sleep_until((stopped + LEASE + ms(50)).into()).await;
            go_on();
        }
    );
    let mut grants = Vec::new();
    for successor in successors {
        let (granted, guard) = soon("a successor", successor).await.unwrap();
        grants.push(granted);
        release(guard).await;
    }
    for guard in guards {
        let guard = Arc::into_inner(guard).expect("the only one");
        assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    grants[0]
}

const LEASE: Duration = ms(1_500);

#[tokio::test]
async fn s20_writes_paused_for_longer_than_the_lease_cost_the_lock_before_anybody_has_it() {
    let server = Server::start();
    let pause = LEASE + ms(400);
    let begun = Cell::new(None);
    let stop = || {
        begun.set(Some(Instant::now()));
        server.ask::<()>(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "WRITE"]);
    };
    let granted = handed_off(&server, stop, || {}).await;
    // The lease had ended before: it was the pause that kept the successor out.
    assert!(granted - begun.get().unwrap() >= pause, "writes were not paused");
}

#[tokio::test]
async fn s21_a_server_stopped_for_longer_than_the_lease_costs_the_lock_before_anybody_has_it() {
    let server = Server::start();
    let resumed = Cell::new(None);
    let go_on = || {
        resumed.set(Some(Instant::now()));
        server.resume();
    };
    let granted = handed_off(&server, || server.pause(), go_on).await;
    assert!(granted >= resumed.get().unwrap(), "the server was not stopped");
}
