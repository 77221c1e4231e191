//! The servers, each a process of its own on a free port, in a directory that goes with it.

use std::fs;
use std::net::TcpListener;
use std::str::FromStr;
use std::time::Duration;

use crate::guardian::{Guardian, directory, free_port};
use crate::network::{Distance, Network};
use crate::postgres::postgres;
use crate::support::{Result, Server};

/// Which ports lead to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sites {
    pub(crate) redis: u16,
    pub(crate) postgres: u16,
    pub(crate) etcd: u16,
    pub(crate) zookeeper: u16,
}

/// As a worker is told, and as `FromStr` understands it.
impl std::fmt::Display for Sites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.redis, self.postgres, self.etcd, self.zookeeper)
    }
}

impl FromStr for Sites {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self> {
        let ports: Vec<u16> = text.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [redis, postgres, etcd, zookeeper] = ports[..] else {
            return Err(format!("not four ports: {text}").into());
        };
        Ok(Self { redis, postgres, etcd, zookeeper })
    }
}

pub(crate) struct Servers {
    pub(crate) sites: Sites,
    _redis: Server,
    _others: [Guardian; 3],
}

impl Servers {
    pub(crate) async fn start() -> Result<Self> {
        let redis = Server::private()?;
        let port = redis.url().trim_end_matches('/').rsplit(':').next().unwrap_or_default();
        let sites = Sites {
            redis: port.parse()?,
            postgres: free_port()?,
            etcd: free_port()?,
            zookeeper: free_port()?,
        };
        let others = [postgres(sites.postgres)?, etcd(sites.etcd)?, zookeeper(sites.zookeeper)?];
        for guardian in &others {
            guardian.wait_until_up()?;
        }
        crate::tools::prepare_postgres(&sites).await?;
        Ok(Self { sites, _redis: redis, _others: others })
    }

    /// Longer ways to all of them.
    pub(crate) fn at_distance(&self, round_trip: Duration) -> Result<([Network; 4], Sites)> {
        let Sites { redis, postgres, etcd, zookeeper } = self.sites;
        let distance = Distance::round_trip(round_trip);
        let way =
            |port| TcpListener::bind("127.0.0.1:0").map(|at| Network::to_port(at, port, distance));
        let ways = [way(redis)?, way(postgres)?, way(etcd)?, way(zookeeper)?];
        let [redis, postgres, etcd, zookeeper] = ways.each_ref().map(Network::port);
        Ok((ways, Sites { redis, postgres, etcd, zookeeper }))
    }
}

fn etcd(port: u16) -> Result<Guardian> {
    let directory = directory("etcd")?;
    let (client, peer) =
        (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()?));
    let data = directory.join("data").display().to_string();
    let command = [
        "etcd".to_owned(),
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
    ];
    Guardian::start("etcd", port, "KILL", &directory, &command)
}

/// Debian's jar names what else it needs.
fn zookeeper(port: u16) -> Result<Guardian> {
    let directory = directory("zookeeper")?;
    let config = directory.join("zoo.cfg");
    let data = directory.join("data").display().to_string();
    let settings = format!(
        "tickTime=2000\ndataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         maxClientCnxns=0\nadmin.enableServer=false\n"
    );
    fs::write(&config, settings)?;
    let command = [
        java(),
        "-cp".to_owned(),
        "/usr/share/java/zookeeper.jar".to_owned(),
        "org.apache.zookeeper.server.ZooKeeperServerMain".to_owned(),
        config.display().to_string(),
    ];
    Guardian::start("ZooKeeper", port, "KILL", &directory, &command)
}

pub(crate) fn java() -> String {
    match std::env::var("JAVA_HOME") {
        Ok(home) => format!("{home}/bin/java"),
        Err(_) => "java".into(),
    }
}
