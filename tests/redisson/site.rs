//! Where the cases of one version of Redisson are played: a server and a Java process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use redlatch::LockClient;

use crate::java::Java;
use crate::support::{SOON, Server, block_until, connect, hold, release, soon};

pub(crate) type Case = for<'a> fn(&'a Site) -> LocalBoxFuture<'a, ()>;

/// A version of Redisson. Its cases share a site, one after the other.
pub(crate) struct Redisson {
    pub(crate) version: &'static str,
    class_path: PathBuf,
    site: Mutex<Option<Site>>,
}

pub(crate) struct Site {
    /// With the watchdog timeout that is Redisson's default, and ours.
    pub(crate) java: Arc<Java>,
    pub(crate) server: Server,
    pub(crate) version: &'static str,
    class_path: PathBuf,
}

impl Redisson {
    /// The version `version` in the folder where `build` has put it.
    pub(crate) fn new(version: &'static str, folder: &str) -> Self {
        Self { version, class_path: PathBuf::from(folder).join(version), site: Mutex::default() }
    }

    /// Plays a case. One that fails takes the site with it, so that it spoils no other.
    pub(crate) fn play(&self, case: Case) {
        let mut place = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        let site = place.take().unwrap_or_else(|| self.open());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(case(&site));
        site.assert_nothing_is_left();
        *place = Some(site);
    }

    fn open(&self) -> Site {
        assert!(self.class_path.is_dir(), "{} is not built", self.class_path.display());
        let server = Server::start();
        let watchdog = Duration::from_secs(30);
        let java = Java::start(&self.class_path, &server.url(), watchdog);
        Site { java, server, version: self.version, class_path: self.class_path.clone() }
    }
}

impl Site {
    /// One more Java process at the same server.
    pub(crate) fn another_java(&self, watchdog: Duration) -> Arc<Java> {
        Java::start(&self.class_path, &self.server.url(), watchdog)
    }

    /// A client of ours whose scripts the server has, so that each is one command.
    pub(crate) async fn client(&self) -> LockClient {
        let client = connect(&self.server).await;
        release(hold(&client.lock("before")).await).await;
        client
    }

    /// The same, with another watchdog timeout.
    pub(crate) async fn client_with(&self, watchdog: Duration) -> LockClient {
        let builder = LockClient::builder().url(self.server.url()).watchdog_timeout(watchdog);
        soon("connecting", builder.connect()).await.expect("connecting")
    }

    /// Whatever Redis has, but for the keys that Redisson leaves behind: its counters of tokens,
    /// which have no end, and the latches of unlocks, which it removes a little later, or in some
    /// versions leaves to their TTL.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.server.ask(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("redisson_lock_token:") && !self.is_latch(key));
        keys
    }

    fn is_latch(&self, key: &str) -> bool {
        // -2: it is gone by now.
        key.starts_with("redisson_unlock_latch:") && self.server.pttl(key) != -1
    }

    /// Waits until no lock is left, as a guard that was dropped is given back in the background.
    fn assert_nothing_is_left(&self) {
        block_until("nothing is left", SOON, || self.keys().is_empty());
        self.server.ask::<()>(&["FLUSHALL"]);
    }
}
