use std::time::Duration;

use redlatch_recipes::shop::{Shop, lock_of};
use redlatch_recipes::tonic_service::generated::till_client::TillClient;
use redlatch_recipes::tonic_service::generated::till_server::TillServer;
use redlatch_recipes::tonic_service::{PayReply, PayRequest};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server as Service};
use tonic::{Code, Request, Status};

use crate::street::{elsewhere, order, shop, shop_at, soon, until};
use crate::support::Server;

async fn start(shop: &Shop) -> TillClient<Channel> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let service = Service::builder().add_service(TillServer::new(shop.clone()));
    tokio::spawn(service.serve_with_incoming(TcpIncoming::from(listener)));
    TillClient::connect(format!("http://127.0.0.1:{port}")).await.expect("a connection")
}

/// A call whose caller waits for so long.
async fn pay(
    till: &TillClient<Channel>,
    order: i64,
    deadline: Duration,
) -> Result<PayReply, Status> {
    let mut request = Request::new(PayRequest { order });
    request.set_timeout(deadline);
    let reply = soon("a reply", till.clone().pay(request)).await?;
    Ok(reply.into_inner())
}

#[tokio::test]
async fn a_call_waits_for_the_lock_while_its_caller_does() {
    let shop = shop();
    let (order, till) = (order(&shop.orders).await, start(&shop).await);
    let guard = elsewhere().await.lock(lock_of(order)).lock().await.unwrap();
    let call = tokio::spawn(async move { pay(&till, order, Duration::from_secs(30)).await });
    until("the call waits", async || shop.locks.stats().waiting == 1).await;
    guard.unlock().await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().receipt, format!("receipt of order {order}"));
}

#[tokio::test]
async fn a_call_whose_lock_stays_busy_is_aborted_before_its_caller_gives_up() {
    let shop = shop();
    let (order, till) = (order(&shop.orders).await, start(&shop).await);
    let guard = elsewhere().await.lock(lock_of(order)).lock().await.unwrap();
    let refused = pay(&till, order, Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused:?}");
    assert_eq!(shop.locks.stats().waited, 1, "it waited");
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_call_without_redis_is_unavailable() {
    let redis = Server::private().expect("a Redis");
    let shop = shop_at(redis.url());
    let (order, till) = (order(&shop.orders).await, start(&shop).await);
    drop(redis);
    let refused = pay(&till, order, Duration::from_secs(9)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
}

#[tokio::test]
async fn a_call_whose_write_the_table_refuses_says_that_the_outcome_is_unknown() {
    let shop = shop();
    let (order, till) = (order(&shop.orders).await, start(&shop).await);
    let later =
        sqlx::query("UPDATE orders SET token = $2 WHERE id = $1").bind(order).bind(i64::MAX);
    later.execute(&shop.orders.database).await.expect("a row");
    let refused = pay(&till, order, Duration::from_secs(9)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown, "{refused:?}");
}
