//! Where the shops of these tests are: servers, orders, and customers who speak HTTP.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redlatch::LockClient;
use redlatch_recipes::orders::Orders;
use redlatch_recipes::shop::Shop;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::guardian::{Guardian, free_port};
use crate::postgres::postgres;
use crate::support::Server;

/// Long enough for anything that ought to be quick, on a slow machine under load.
const SOON: Duration = Duration::from_secs(10);

/// The servers of all tests but those that stop theirs. They end with this process.
static REDIS: LazyLock<Server> = LazyLock::new(|| Server::private().expect("a Redis"));
static POSTGRES: LazyLock<(Guardian, String)> = LazyLock::new(|| {
    let port = free_port().expect("a port");
    let server = postgres(port).expect("a PostgreSQL");
    server.wait_until_up().expect("a PostgreSQL that answers");
    (server, format!("postgres://postgres@127.0.0.1:{port}/postgres"))
});

pub(crate) fn redis() -> &'static str {
    REDIS.url()
}

/// A shop on the common servers.
pub(crate) fn shop() -> Shop {
    shop_at(redis())
}

pub(crate) fn shop_at(redis: &str) -> Shop {
    Shop::new(redis, &POSTGRES.1).expect("a shop")
}

/// A client as in another process.
pub(crate) async fn elsewhere() -> LockClient {
    LockClient::connect(redis()).await.expect("a client")
}

/// A new order, whose receipt is to be written.
pub(crate) async fn order(orders: &Orders) -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let order = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    static TABLE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    // Two that create one table at a time are in each other's way.
    TABLE.get_or_init(async || orders.create_table().await.expect("a table")).await;
    let insert = sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(order);
    insert.execute(&orders.database).await.expect("a row");
    order
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, holds).await;
}

/// What a service answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Posts nothing to that path, on a connection of its own.
pub(crate) async fn post(address: SocketAddr, path: &str) -> Answer {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = soon("an answer", exchange).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}
