//! Fair locks, where the moment counts at which something happens to their waiters.

use redlatch::test_util::Redis;
use redlatch::{ErrorKind, LockClient, LockGuard, Loss};
use tokio::time::{Instant, sleep, timeout};

use crate::scene::play;
use crate::support::ms;

/// In real time, a waiter that was asking just then had the lock anew instead.
#[tokio::test(start_paused = true)]
async fn x3_a_hand_off_of_a_lock_that_is_gone_is_lost_for_both_and_leaves_no_place() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = Redis::new();
        redis.delay(each_way);
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
        let keys: Vec<String> = redis.query(redis::cmd("KEYS").arg("*")).unwrap();
        assert!(keys.is_empty(), "{keys:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x5_a_client_that_lives_has_the_lock_at_once_between_hundreds_that_are_dead() {
    for (before, behind) in [(102, 102), (150, 999), (1_000, 500)] {
        let redis = Redis::new();
        let each_way = ms(10);
        redis.delay(each_way);
        let (one, other) = (redis.client(), redis.client());
        let guard = one.fair_lock("sale").lock().await.unwrap();
        let next = other.fair_lock("sale");
        let waiting = tokio::spawn(async move { next.lock().await });
        sleep(ms(1_000)).await;
        let late = u64::MAX >> 12;
        let scores = (0..before).chain(late..late + behind);
        for (number, score) in scores.enumerate() {
            let client = format!("dead:{number}");
            let zadd =
                redis::cmd("ZADD").arg("redlatch_queue:{sale}").arg(score).arg(&client).take();
            redis.query::<()>(&zadd).unwrap();
            let hset =
                redis::cmd("HSET").arg("redlatch_waiting:{sale}").arg(client).arg(late).take();
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

/// The server grants it with the release. A waiter of a plain lock hears of the release, and asks.
#[test]
fn a_release_gives_the_lock_to_the_next_client_in_one_round_trip() {
    for away in [2, 20, 100].map(ms) {
        for (is_fair, way) in [(true, away), (false, 2 * away)] {
            play(0, async |scene| {
                let clients = [
                    scene.client(away, LockClient::builder()).await,
                    scene.client(away, LockClient::builder()).await,
                ];
                for round in 0..6 {
                    let (machine, client) = &clients[(round + 1) % 2];
                    let guard = turn(&clients[round % 2].1, is_fair).await;
                    let client = client.clone();
                    let waiter = machine
                        .spawn(async move { (turn(&client, is_fair).await, Instant::now()) });
                    sleep(10 * away).await;
                    let begun = Instant::now();
                    guard.unlock().await.expect("a release");
                    let (guard, granted) = waiter.await.expect("no panic");
                    assert_eq!(granted - begun, way, "{away:?}, fair: {is_fair}");
                    guard.unlock().await.expect("a release");
                }
            });
        }
    }
}

async fn turn(client: &LockClient, is_fair: bool) -> LockGuard {
    match is_fair {
        true => client.fair_lock("turns").lock().await.expect("a turn"),
        false => client.lock("turns").lock().await.expect("a turn"),
    }
}
