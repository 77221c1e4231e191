use super::*;
use crate::tests::suspended::suspend;

#[test]
fn it_goes_on_by_itself() {
    let before = Instant::now();
    let (start, reference) = (now(), Instant::now());
    while reference.elapsed() < Duration::from_millis(20) {
        assert!(now() >= start);
        std::thread::yield_now();
    }
    let passed = now() - start;
    assert!(passed >= Duration::from_millis(20), "{passed:?}");
    assert!(passed <= before.elapsed() + Duration::from_millis(5), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sleep_notices_that_the_machine_was_suspended() {
    let timers = tokio::time::Instant::now();
    let minute = Duration::from_secs(60);
    let sleep = sleep_until(now() + minute);
    tokio::pin!(sleep);
    tokio::select! {
        () = &mut sleep => panic!("too early"),
        () = tokio::time::sleep(Duration::from_millis(1)) => {}
    }
    suspend(minute);
    sleep.await;
    assert!(timers.elapsed() <= LONGEST_SLEEP + Duration::from_millis(5));
}
