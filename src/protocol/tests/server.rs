//! A private `redis-server` on a socket in a directory of its own, gone with the test.
//!
//! `REDIS_SERVER` names another program to start, for one of another version.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) struct Server {
    child: Child,
    dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let dir = TempDir::with_prefix("redlatch-unit-").expect("a temporary directory");
        let child = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .arg("--unixsocket")
            .arg(dir.path().join("socket"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs `{program}` on the PATH (or REDIS_SERVER set): {error}")
            });
        Self { child, dir }
    }

    pub(crate) fn connect(&self) -> redis::Connection {
        let url = format!("unix:{}", self.dir.path().join("socket").display());
        let client = redis::Client::open(url).expect("the path of a socket");
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            match client.get_connection() {
                Ok(connection) => return connection,
                Err(error) if Instant::now() > give_up => {
                    panic!("the Redis server of this test does not answer: {error}")
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
