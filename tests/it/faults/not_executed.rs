//! A request that was said not to have been executed is never executed (W12).

use super::*;

/// So many calls share one or a few, and the deadline of each is this much after that of the one
/// before.
const MANY: u64 = 24;
const APART: u64 = 30;

/// All have begun well before the first deadline passes.
const TIMEOUT: Duration = ms(2 * MANY * APART);

/// So many deadlines pass before the script is loaded. A call has requests on both sides of one of
/// these, if it has two or more.
const TOO_LATE: [usize; 2] = [8, 11];

/// The scripts of requests that share no call.
const SINGLE: [fn() -> String; 2] = [scripts::acquire, scripts::release];

/// What of a shared call is held up until some deadlines have passed: its script, as it is loaded, or its first
/// sending, behind the two requests that leave at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldUp {
    Load,
    Call,
}

#[test]
fn w12_a_call_that_is_not_executed_by_its_deadline_is_not_executed_after_it() {
    flush_under_shared_calls(HeldUp::Load);
}

/// The undo of a request whose deadline has passed is behind the call that did not execute it. Behind the undo
/// the call is sent again: with that request in it, there would be a lock that nobody holds.
#[test]
fn w12_a_call_that_is_undone_before_its_script_is_known_is_not_sent_again() {
    flush_under_shared_calls(HeldUp::Call);
}

fn flush_under_shared_calls(held_up: HeldUp) {
    let (server, proxy) = proxied();
    let home = runtime();
    let client = home.block_on(impatient(proxy.url(&server), TIMEOUT));
    // Where a request left too late to meet the fault, the round shows nothing.
    for too_late in TOO_LATE {
        let took_effect = |round| {
            let prefix = format!("lock:{too_late}:{round}");
            let round =
                flushed_under_a_shared_call(&server, &proxy, &client, &prefix, too_late, held_up);
            // A connection belongs to a runtime, so a new one has to connect.
            runtime().block_on(round)
        };
        assert!((0..8).any(took_effect), "no round in which the fault took effect");
    }
}

/// Says whether the fault took effect: the deadlines of some requests passed before the script was
/// loaded for all of them, and the rest was sent again.
async fn flushed_under_a_shared_call(
    server: &Server,
    proxy: &Proxy,
    client: &LockClient,
    prefix: &str,
    too_late: usize,
    held_up: HeldUp,
) -> bool {
    let name = |number| format!("{prefix}:{number}");
    // A new connection finds all scripts there, and nobody uses it before it has heard so.
    let faults = proxy.faults();
    proxy.hold("SCRIPT");
    let tasks = (0..MANY).map(|number| {
        let lock = client.lock(name(number));
        tokio::spawn(async move {
            tokio::time::sleep(ms(number * APART)).await;
            lock.try_lock_now().await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    wait_until("a look for the scripts", SOON, || proxy.faults() > faults).await;
    let asked = server.calls("script|exists");
    proxy.stall_replies(true);
    proxy.let_go();
    wait_until("an answer", SOON, || server.calls("script|exists") > asked).await;
    // Now the server forgets the one of shared calls. Those of single requests it knows again.
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    for script in SINGLE {
        server.ask::<()>(&["SCRIPT", "LOAD", &script()]);
    }
    server.reset_stats();

    // All wait for the connection, and leave one right after the other.
    tokio::time::sleep(ms(MANY * APART)).await;
    let faults = proxy.faults();
    match held_up {
        HeldUp::Load => proxy.plan("SCRIPT", 1, Fault::HoldBack),
        HeldUp::Call => proxy.plan("EVALSHA", 3, Fault::HoldBack),
    }
    proxy.stall_replies(false);
    wait_until("what is held up", SOON, || proxy.faults() > faults).await;
    // If the client gave this connection up, another would have it closed.
    proxy.refuse(true);
    let late = || tasks[..too_late].iter().all(|task| task.is_finished());
    wait_until("deadlines that pass", SOON, late).await;
    proxy.let_go();

    let (mut guards, mut refused, mut unknown) = (Vec::new(), Vec::new(), 0);
    let answers = soon("answers", join_all(tasks)).await;
    proxy.refuse(false);
    for (number, answer) in (0..).zip(answers) {
        match answer.expect("a task that does not panic") {
            Ok(guard) => guards.push(guard.expect("a free lock")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                match error.outcome() {
                    Outcome::NotExecuted => refused.push(name(number)),
                    Outcome::Unknown => unknown += 1,
                    outcome => panic!("{outcome:?}: {error}"),
                }
            }
        }
    }
    proxy.settled(ms(200)).await;
    for name in &refused {
        assert!(!server.exists(name), "{name} was said not to be executed, and is locked");
    }
    // Nor was it executed and undone. (An undo closes the connection, and what was under way there
    // is sent a second time: then the count says nothing.)
    let granted = guards.len() as u64;
    let hsets = server.calls("hset");
    assert!(unknown > 0 || hsets <= granted, "{hsets} for {granted} locks");
    let sent_again = guards.len() > MANY as usize / 4;
    soon("unlocking", join_all(guards.into_iter().map(release))).await;
    let gone = || (0..MANY).all(|number| !server.exists(&name(number)));
    wait_until("the undo of what is unknown", SOON, gone).await;
    let (over, as_said) = match held_up {
        HeldUp::Load => (refused.len(), unknown == 0),
        HeldUp::Call => (unknown, refused.is_empty() && server.errors("NOSCRIPT") > 0),
    };
    over >= too_late / 2 && as_said && sent_again
}

/// The release was not sent, and will be: "not executed" would be a promise.
#[tokio::test]
async fn w12_an_unlock_that_goes_on_in_the_background_says_unknown() {
    let (server, proxy) = proxied();
    let client = impatient(proxy.url(&server), ms(1_000)).await;
    let guard = hold(&client.lock("later")).await;
    proxy.refuse(true);
    assert!(proxy.cut_all() >= 1);
    let sent = proxy.sent("EVALSHA");
    let error = soon("unlocking", guard.unlock()).await.expect_err("nobody could be asked");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert_eq!(proxy.sent("EVALSHA"), sent, "it was sent");
    assert!(server.exists("later"));
    proxy.refuse(false);
    wait_until("the release in the background", SOON, || !server.exists("later")).await;
}

/// A waiter that cannot run is handed a lock, whose lease ends before it can. Redis may still carry
/// the hand-off out when the waiter is told that Redis is out of reach.
#[test]
fn w12_a_wait_that_ends_in_an_outage_says_unknown_of_a_hand_off_that_is_under_way() {
    const LEASE: Duration = ms(1_000);
    let (server, proxy) = proxied();
    // The waiter runs only where the test says so.
    let (here, elsewhere) = (runtime(), runtime());
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let client = here.block_on(connected(builder.outage_limit(2 * LEASE)));
    let (old, new) = (client.lock("handed off"), client.lock("handed off"));
    let guard = elsewhere.block_on(old.lock_with_lease(LEASE)).expect("the lock");
    let waiter = here.spawn(async move { new.lock_with_lease(LEASE).await });
    here.block_on(async {
        wait_until("a subscription", SOON, || server.subscribers("handed off") == 1).await;
        proxy.settled(ms(50)).await;
    });
    let faults = proxy.faults();
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    drop(guard);
    block_until("a hand-off that is held up", SOON, || proxy.faults() > faults);
    // All but the connection of the client's thread.
    proxy.refuse(true);
    let killed: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert!(killed >= 2, "{killed}");
    std::thread::sleep(LEASE);
    let error = here.block_on(soon("the waiter", waiter)).expect("no panic");
    let error = error.expect_err("Redis is out of reach");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    proxy.refuse(false);
    proxy.let_go();
    block_until("nothing is left", SOON, || !server.exists("handed off"));
}
