use std::net::{SocketAddr, TcpListener};

use redlatch_recipes::actix_service::serve;
use redlatch_recipes::shop::{Shop, lock_of};

use crate::street::{elsewhere, order, post, shop, shop_at, until};
use crate::support::{Server, unique};

const WORKERS: usize = 3;

fn start(shop: &Shop) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, shop.clone(), WORKERS).expect("a server"));
    address
}

#[tokio::test]
async fn a_request_that_finds_the_lock_taken_is_answered_at_once_with_409() {
    let shop = shop();
    let (order, address) = (order(&shop.orders).await, start(&shop));
    let guard = elsewhere().await.lock(lock_of(order)).lock().await.unwrap();
    let path = format!("/orders/{order}/pay");
    let answer = post(address, &path).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert_eq!(shop.orders.receipt(order).await.unwrap(), None);
    guard.unlock().await.unwrap();
    let answer = post(address, &path).await;
    assert_eq!((answer.status, answer.body), (200, format!("receipt of order {order}")));
}

#[tokio::test]
async fn a_request_without_redis_is_answered_with_503_and_when_to_come_again() {
    let redis = Server::private().expect("a Redis");
    let shop = shop_at(redis.url());
    let (order, address) = (order(&shop.orders).await, start(&shop));
    drop(redis);
    let answer = post(address, &format!("/orders/{order}/pay")).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
}

#[tokio::test]
async fn the_workers_share_a_client_with_a_connection_for_each() {
    let redis = Server::private().expect("a Redis");
    let shop = shop_at(redis.url());
    let (order, address) = (order(&shop.orders).await, start(&shop));
    // Workers take connections in turns.
    for _ in 0..4 * WORKERS {
        assert_eq!(post(address, &format!("/orders/{order}/pay")).await.status, 200);
    }
    let client = redlatch::redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // One of the client's thread, which connects beside the first call, and one of each worker. This runtime has made no
    // call.
    until("all of them", async || {
        let list = redlatch::redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await;
        let list: String = list.unwrap();
        let own = list.lines().filter(|line| line.contains(" name=redlatch:")).count();
        assert!(own <= 1 + WORKERS, "{list}");
        own == 1 + WORKERS
    })
    .await;
}

/// Each worker has a runtime of its own: here are two.
#[tokio::test]
async fn the_lock_goes_to_a_waiter_of_another_runtime_and_its_guard_comes_back() {
    let (locks, name) = (shop().locks, unique("worker"));
    // A waiter that is asking Redis at that moment gets the lock from there.
    for _ in 0..20 {
        let guard = locks.lock(&name).lock().await.unwrap();
        let (other, same) = (locks.clone(), name.clone());
        let waiter = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async { other.lock(&same).lock().await })
        });
        until("the other one waits", async || locks.stats().waiting == 1).await;
        guard.unlock().await.unwrap();
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
        assert!(!locks.lock(&name).is_locked().await.unwrap());
        if locks.stats().handed_off > 0 {
            return;
        }
    }
    panic!("no waiter got the lock from another runtime");
}
