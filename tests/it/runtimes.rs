//! Calls outside of a Tokio runtime, and in runtimes that cannot do everything: an error where the
//! client can tell, and the panics that the documentation names.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Instant;

use futures::executor;
use redlatch::redis;
use tokio::runtime::{Builder, Runtime};

use crate::errors::calls;
use crate::prelude::*;

fn refused<T>(call: impl Future<Output = Result<T, Error>>) {
    let error = executor::block_on(call).err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(error.outcome(), Outcome::NotExecuted, "{error}");
    assert!(error.to_string().contains("Tokio runtime"), "{error}");
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error_or_works_and_never_panics() {
    let server = Server::start();
    let runtime = Runtime::new().expect("a runtime");
    refused(LockClient::connect(server.url()));
    refused(LockClient::builder().url(server.url()).connect());
    let lazy = LockClient::builder().url(server.url()).connect_lazy().expect("no runtime needed");
    let client = runtime.block_on(LockClient::connect(server.url())).expect("connecting");
    for client in [lazy, client] {
        let (lock, fenced) = (client.lock("lock"), client.fenced_lock("fenced"));
        for (_, call) in calls(&lock) {
            refused(call);
        }
        refused(fenced.lock());
        assert!(!server.exists("lock") && !server.exists("fenced"));

        let guard = runtime.block_on(hold(&lock));
        refused(guard.extend(MINUTE));
        refused(guard.execute::<()>(redis::pipe().cmd("PING")));
        assert_eq!(executor::block_on(guard.run_until_lost(async { 42 })).expect("held"), 42);
        guard.hold_at_least(Duration::ZERO);
        assert!(!guard.is_lost() && guard.loss().is_none() && !guard.remaining().is_zero());
        refused(guard.unlock());
        // The hold is given back all the same.
        block_until("a release", SOON, || !server.exists("lock"));

        let guard = runtime.block_on(lock.lock_with_lease(ms(500))).expect("the lock");
        let begun = Instant::now();
        executor::block_on(guard.lost());
        assert!(guard.is_lost() && begun.elapsed() < MINUTE / 10, "{:?}", begun.elapsed());
        drop(guard);
        executor::block_on(client.close());
    }
}

/// What a call comes to in a runtime without timers; `None` if it panics, as its documentation says.
fn without_timers<T>(bare: &Runtime, call: impl Future<Output = T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| bare.block_on(call))).ok()
}

/// It panics, or its connection could not be made, because the task panics that makes it.
#[track_caller]
fn fails<T>(bare: &Runtime, call: impl Future<Output = Result<T, Error>>) {
    let error = without_timers(bare, call).map(|result| result.err().expect("a failure"));
    assert!(error.is_none_or(|error| error.kind() == ErrorKind::Unavailable));
}

#[test]
fn in_a_runtime_without_timers_calls_panic_or_fail_and_leave_nothing_behind() {
    let server = Server::start();
    let runtime = Runtime::new().expect("a runtime");
    let bare = Builder::new_current_thread().enable_io().build().expect("a runtime");
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(1_000));
    let client = runtime.block_on(builder.clone().connect()).expect("connecting");
    let lock = client.lock("lock");
    fails(&bare, builder.connect());
    for (_, call) in calls(&lock) {
        fails(&bare, call);
    }
    let guard = runtime.block_on(hold(&lock));
    assert!(without_timers(&bare, guard.lost()).is_none());
    assert!(without_timers(&bare, guard.run_until_lost(pending::<()>())).is_none());
    fails(&bare, guard.extend(MINUTE));
    fails(&bare, guard.execute::<()>(redis::pipe().cmd("PING")));
    // The client's thread sends the release. A call that finds the answer there needs no timer.
    server.pause();
    fails(&bare, guard.unlock());
    server.resume();
    block_until("a release", SOON, || !server.exists("lock"));
    // The client works on.
    runtime.block_on(async { drop(hold(&lock).await) });
    block_until("a release", SOON, || !server.exists("lock"));
    // It panics if it has to wait.
    let _ = without_timers(&bare, client.close());
    runtime.block_on(client.close());
}

#[test]
fn in_a_runtime_without_io_calls_find_no_server() {
    let server = Server::start();
    let runtime = Runtime::new().expect("a runtime");
    let bare = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(1_000));
    let client = runtime.block_on(builder.connect()).expect("connecting");
    let lock = client.lock("lock");
    let error = bare.block_on(lock.try_lock_now()).expect_err("no way to the server");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    runtime.block_on(async { drop(hold(&lock).await) });
}

/// A task whose poll has begun goes on in a runtime that ends meanwhile. There it finds no connection, and each that it
/// asks for is dropped at once.
#[test]
fn a_runtime_that_ends_under_a_call_has_it_end_at_its_next_yield() {
    let server = Server::start();
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = two.expect("a runtime");
    let lock = runtime.block_on(async {
        let client = connect(&server).await;
        release(hold(&client.lock("lock")).await).await;
        client.lock("lock")
    });
    let (others, calls) = (Arc::new(()), Arc::new(()));
    for _ in 0..64 {
        let others = others.clone();
        runtime.spawn(async move {
            pending::<()>().await;
            drop(others);
        });
    }
    let (says, is_inside) = mpsc::channel();
    let (goes_on, may_go_on) = mpsc::channel();
    let call = calls.clone();
    runtime.spawn(async move {
        says.send(()).expect("the test");
        may_go_on.recv().expect("the test");
        let _ = lock.try_lock_now().await;
        pending::<()>().await;
        drop(call);
    });
    is_inside.recv_timeout(SOON).expect("the task");
    runtime.shutdown_background();
    block_until("the end of the others", SOON, || Arc::strong_count(&others) == 1);
    goes_on.send(()).expect("the task");
    block_until("the end of the call", SOON, || Arc::strong_count(&calls) == 1);
}
