use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::street::{elsewhere, post, redis, soon, until};
use crate::support::unique;

struct Service {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Service {
    async fn start(patience: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_shutdown"))
            .arg(patience)
            .env("REDIS_URL", redis())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the service");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let address = soon("an address", lines.next_line()).await.unwrap().expect("a line");
        Self { process, lines, address: address.parse().expect("an address") }
    }

    /// Sends SIGTERM.
    async fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.process.id().expect("a running process"));
        let status = Command::new("sh").args(["-c", &kill]).status().await.expect("sh");
        assert!(status.success());
    }

    /// What it says of its locks at its end.
    async fn end(mut self) -> [String; 2] {
        let [mut released, mut unreleased] = [const { String::new() }; 2];
        for line in [&mut released, &mut unreleased] {
            *line = soon("a line", self.lines.next_line()).await.unwrap().expect("a line");
        }
        assert!(soon("its end", self.process.wait()).await.unwrap().success());
        [released, unreleased]
    }
}

#[tokio::test]
async fn requests_under_way_are_answered_and_locks_of_the_others_are_released() {
    let service = Service::start("4").await;
    let (short, long) = (unique("short"), unique("long"));
    let ask = |name: &str, milliseconds: u32| {
        let (address, path) = (service.address, format!("/jobs/{name}/{milliseconds}"));
        tokio::spawn(async move { post(address, &path).await })
    };
    let (answer, unanswered) = (ask(&short, 2_000), ask(&long, 3_600_000));
    let client = elsewhere().await;
    until("both are under way", async || {
        client.lock(&short).is_locked().await.unwrap()
            && client.lock(&long).is_locked().await.unwrap()
    })
    .await;

    service.terminate().await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let [released, unreleased] = service.end().await;
    assert_eq!(released, format!("released under their holders: [{long:?}]"));
    assert_eq!(unreleased, "left to their leases: []");
    // The lease of both would be 30 s.
    for name in [short, long] {
        assert!(client.lock(&name).try_lock_now().await.unwrap().is_some(), "{name} is left");
    }
    unanswered.abort();
}

#[tokio::test]
async fn a_service_without_requests_does_not_wait() {
    let service = Service::start("3600").await;
    service.terminate().await;
    assert_eq!(service.end().await[0], "released under their holders: []");
}
