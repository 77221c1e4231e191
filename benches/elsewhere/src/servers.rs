//! The servers, each a process of its own on a free port, in a directory that goes with it.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::network::{Distance, Network};
use crate::support::{Result, Server};

/// Runs a server beside `cat`, which ends when the pipe to this process closes, and that happens
/// however this process ends. The first word is the signal that ends the server, the second the
/// directory that nobody needs then.
const GUARDED: &str = r#"
    trap '' HUP INT QUIT TERM
    signal=$1 directory=$2; shift 2
    "$@" <&- & cat
    kill "-$signal" $!; wait
    rm -rf "$directory"
"#;

const STARTUP: Duration = Duration::from_secs(30);

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
            guardian.wait_until_up().await?;
        }
        crate::tools::prepare_postgres(&sites).await?;
        Ok(Self { sites, _redis: redis, _others: others })
    }

    /// Longer ways to all of them.
    pub(crate) fn at_distance(&self, round_trip: Duration) -> ([Network; 4], Sites) {
        let Sites { redis, postgres, etcd, zookeeper } = self.sites;
        let distance = Distance::round_trip(round_trip);
        let ways = [redis, postgres, etcd, zookeeper].map(|port| Network::to_port(port, distance));
        let [redis, postgres, etcd, zookeeper] = ways.each_ref().map(Network::port);
        (ways, Sites { redis, postgres, etcd, zookeeper })
    }
}

/// Dropping it ends the server.
struct Guardian {
    name: &'static str,
    port: u16,
    log: PathBuf,
    child: Child,
}

impl Guardian {
    fn start(
        name: &'static str,
        port: u16,
        signal: &str,
        directory: &Path,
        command: &[String],
    ) -> Result<Self> {
        let log = directory.join("log");
        let child = Command::new("sh")
            .args(["-c", GUARDED, "sh", signal])
            .arg(directory)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()?;
        Ok(Self { name, port, log, child })
    }

    async fn wait_until_up(&self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if begun.elapsed() > STARTUP {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} did not come up; it said:\n{said}", self.name).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        eprintln!("{}: a private one on 127.0.0.1:{}", self.name, self.port);
        Ok(())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// As `initdb` configures it, so `fsync` and `synchronous_commit` are on.
fn postgres(port: u16) -> Result<Guardian> {
    let bin = newest_postgres()?;
    let directory = directory("postgres")?;
    let user = user_for_postgres(&directory)?;
    let data = directory.join("data").display().to_string();

    let options = ["-A", "trust", "-U", "postgres", "-D", &data];
    let init = command(&user, &bin.join("initdb"), &options);
    run(Command::new(&init[0]).args(&init[1..]).current_dir("/").stdout(Stdio::null()))?;

    let port_option = port.to_string();
    let options = ["-D", &data, "-p", &port_option, "-h", "127.0.0.1", "-k", "", "-N", "300"];
    let serve = command(&user, &bin.join("postgres"), &options);
    Guardian::start("PostgreSQL", port, "QUIT", &directory, &serve)
}

/// What makes a command one of the user `postgres`, where this is root: PostgreSQL refuses that.
fn user_for_postgres(directory: &Path) -> Result<Vec<&'static str>> {
    if Command::new("id").arg("-u").output()?.stdout != b"0\n" {
        return Ok(Vec::new());
    }
    run(Command::new("chown").arg("postgres:postgres").arg(directory))?;
    Ok(vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"])
}

fn command(before: &[&str], program: &Path, options: &[&str]) -> Vec<String> {
    let program = program.display().to_string();
    [before, &[&*program], options].concat().into_iter().map(str::to_owned).collect()
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

fn newest_postgres() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .map_err(|e| format!("PostgreSQL is not installed: {e}"))?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(number);
    Ok(newest.ok_or("PostgreSQL is not installed")?.join("bin"))
}

/// It goes with the server, not with this program.
fn directory(name: &str) -> Result<PathBuf> {
    let prefix = format!("redlatch-elsewhere-{name}-");
    Ok(tempfile::Builder::new().prefix(&prefix).tempdir()?.keep())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    status.success().then_some(()).ok_or_else(|| format!("{command:?}: {status}").into())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
