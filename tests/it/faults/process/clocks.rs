//! C14: the client's wall clock jumps. It has no effect at all, because nothing looks at it.
//!
//! Shown on a whole process, with the runtime and the driver in it: that no file of `src` names
//! the wall clock would say nothing of those. A library that is loaded before all others answers
//! every look at that clock, and each time it is an hour off, ahead or back. (C13, where another
//! clock stands still, is a unit test of the clock.)

use std::process::Command;
use std::time::SystemTime;

use tempfile::TempDir;

use super::*;

const LEASE: Duration = ms(1_800);

/// Of a lock that is not renewed. It is believed for a little less.
const FIXED: Duration = ms(2_700);
const BELIEVED: Duration = ms(2_700 * 49 / 50);

/// How far two looks in a row are apart, whichever way.
fn jump() -> Duration {
    let (first, second) = (SystemTime::now(), SystemTime::now());
    second.duration_since(first).unwrap_or_else(|back| back.duration())
}

pub(super) fn child(url: &str) {
    assert!(jump() > HOUR / 2 && jump() > HOUR / 2, "the clock does not jump");
    runtime().block_on(async {
        let client = client_with(url, LEASE).await;
        let (kept, held) = (hold(&client.lock("kept")).await, hold(&client.lock("held")).await);
        let start = Instant::now();
        let fixed = client.lock("fixed").lock_with_lease(FIXED).await.expect("locking");
        child::say("held");

        // A wait takes as long as it was to take.
        let asked = Instant::now();
        let other = client.lock("kept").try_lock(ms(300), Lease::Watchdog).await;
        assert!(other.expect("trying").is_none());
        assert!(asked.elapsed() >= ms(300), "gave up after {:?}", asked.elapsed());
        assert!(asked.elapsed() < HOUR / 2);

        // A lease neither: no guard is lost before its time, or believed after it.
        renewed(&kept).await;
        assert!(start.elapsed() > BELIEVED || !fixed.is_lost(), "lost at {:?}", start.elapsed());
        soon("the end of a lease", fixed.lost()).await;
        assert!(start.elapsed() > BELIEVED, "lost after {:?}", start.elapsed());
        assert_eq!(fixed.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
        while start.elapsed() < FIXED + LEASE {
            assert!(!kept.is_lost() && kept.remaining() <= LEASE);
            tokio::time::sleep(ms(5)).await;
        }

        // A waiter is woken, and a release arrives.
        let next = waiting(&client, "held");
        child::say("waiting");
        tokio::task::spawn_blocking(child::hear).await.unwrap();
        drop(held);
        release(soon("the next has the lock", next).await.unwrap()).await;
        release(kept).await;
        assert!(jump() > HOUR / 2, "the clock has stopped jumping");
        client.close().await;
    });
    child::say("given back");
}

#[test]
#[cfg(target_os = "linux")]
fn c14_a_wall_clock_that_jumps_all_the_time_has_no_effect() {
    undisturbed(ms(100), || workers().block_on(hold_under_a_jumping_clock()));
}

async fn hold_under_a_jumping_clock() {
    let folder = TempDir::with_prefix("redlatch-test-").expect("a temporary directory");
    let shim = folder.path().join("wall_clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/faults/process/wall_clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source).status();
    assert!(built.expect("a C compiler, as Rust has one to link").success());

    assert!(jump() < HOUR / 2, "our own clock stands");
    let server = Server::start();
    let preload = [("LD_PRELOAD", shim.to_str().expect("a path in UTF-8"))];
    let role = format!("jumping {}", server.url());
    let mut child = Child::start_with("faults::process::the_child", &role, &preload);
    child.hear_that("held");
    // For others it is a lock like any other.
    let client = connect(&server).await;
    assert!(client.lock("kept").try_lock_now().await.expect("trying").is_none());
    child.hear_that("waiting");
    wait_until("the child's waiter", SOON, || server.subscribers("held") == 1).await;
    child.say("go on");
    child.hear_that("given back");
    assert!(child.ended().success());
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
