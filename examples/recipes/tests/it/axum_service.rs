use std::net::SocketAddr;

use redlatch_recipes::axum_service::router;
use redlatch_recipes::shop::{Shop, lock_of};
use tokio::net::TcpListener;

use crate::street::{elsewhere, order, post, shop, shop_at};
use crate::support::Server;

async fn serve(shop: &Shop) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, router(shop.clone())).into_future());
    address
}

#[tokio::test]
async fn an_order_is_charged_once_and_its_receipt_has_the_token_of_its_lock() {
    let shop = shop();
    let (order, address) = (order(&shop.orders).await, serve(&shop).await);
    let path = format!("/orders/{order}/pay");
    let answer = post(address, &path).await;
    assert_eq!((answer.status, answer.body), (200, format!("receipt of order {order}")));
    assert_eq!(post(address, &path).await.status, 200);

    let token: i64 = sqlx::query_scalar("SELECT token FROM orders WHERE id = $1")
        .bind(order)
        .fetch_one(&shop.orders.database)
        .await
        .expect("a row");
    let next = elsewhere().await.fenced_lock(lock_of(order)).lock().await.unwrap();
    assert!(token > 0 && u64::try_from(token).unwrap() < next.token().get());
    next.unlock().await.unwrap();
}

#[tokio::test]
async fn a_request_that_finds_the_lock_taken_is_answered_at_once_with_409() {
    let shop = shop();
    let (order, address) = (order(&shop.orders).await, serve(&shop).await);
    let guard = elsewhere().await.lock(lock_of(order)).lock().await.unwrap();
    let path = format!("/orders/{order}/pay");
    let answer = post(address, &path).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert_eq!(shop.orders.receipt(order).await.unwrap(), None);
    assert!(!guard.is_lost(), "the answer did not wait for that");
    guard.unlock().await.unwrap();
    assert_eq!(post(address, &path).await.status, 200);
}

#[tokio::test]
async fn a_request_without_redis_is_answered_with_503_and_when_to_come_again() {
    let redis = Server::private().expect("a Redis");
    let shop = shop_at(redis.url());
    let (order, address) = (order(&shop.orders).await, serve(&shop).await);
    drop(redis);
    let answer = post(address, &format!("/orders/{order}/pay")).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    assert_eq!(shop.orders.receipt(order).await.unwrap(), None);
}

#[tokio::test]
async fn a_request_whose_write_the_table_refuses_is_answered_with_409() {
    let shop = shop();
    let (order, address) = (order(&shop.orders).await, serve(&shop).await);
    // As if a later holder had written, and gone back on it.
    let later =
        sqlx::query("UPDATE orders SET token = $2 WHERE id = $1").bind(order).bind(i64::MAX);
    later.execute(&shop.orders.database).await.expect("a row");
    let answer = post(address, &format!("/orders/{order}/pay")).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.body.contains("look at it"), "{answer:?}");
    assert_eq!(shop.orders.receipt(order).await.unwrap(), None);
}
