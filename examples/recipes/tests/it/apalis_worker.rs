use apalis::prelude::{MemoryStorage, TaskSink};
use redlatch_recipes::apalis_worker::{Pay, work};
use redlatch_recipes::shop::lock_of;

use crate::street::{elsewhere, order, shop, until};

#[tokio::test]
async fn a_job_that_finds_its_lock_taken_comes_again_until_it_is_done() {
    let shop = shop();
    let order = order(&shop.orders).await;
    let guard = elsewhere().await.lock(lock_of(order)).lock().await.unwrap();
    let mut jobs = MemoryStorage::new();
    jobs.push(Pay { order }).await.unwrap();
    let worker = tokio::spawn(work(jobs, shop.clone()));
    until("the job came twice", async || shop.locks.stats().busy >= 2).await;
    assert_eq!(shop.orders.receipt(order).await.unwrap(), None);
    guard.unlock().await.unwrap();
    until("a receipt", async || shop.orders.receipt(order).await.unwrap().is_some()).await;
    worker.abort();
}

#[tokio::test]
async fn a_job_whose_write_the_table_refuses_does_not_come_again() {
    let shop = shop();
    let (refused, busy) = (order(&shop.orders).await, order(&shop.orders).await);
    let later =
        sqlx::query("UPDATE orders SET token = $2 WHERE id = $1").bind(refused).bind(i64::MAX);
    later.execute(&shop.orders.database).await.expect("a row");
    let guard = elsewhere().await.lock(lock_of(busy)).lock().await.unwrap();
    let mut jobs = MemoryStorage::new();
    for order in [refused, busy] {
        jobs.push(Pay { order }).await.unwrap();
    }
    let worker = tokio::spawn(work(jobs, shop.clone()));
    // By then the other one would have come again, too: it came first, and each pause is longer.
    until("a job came three times", async || shop.locks.stats().busy >= 3).await;
    assert_eq!(shop.locks.stats().acquired, 1, "the refused job came once");
    worker.abort();
    guard.unlock().await.unwrap();
}
