//! A private `redis-server` on a free port, in a directory of its own, gone with the test.
//!
//! `REDIS_SERVER` names another program to start, for one of another version.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use redis::{Connection, ConnectionLike, FromRedisValue};
use tempfile::TempDir;

use super::process::{Process, free_port};
use super::{channel, is_of_a_lock, unpoisoned as lock};

const START: Duration = Duration::from_secs(10);

/// What INFO says of a server that has its data.
const READY: &str = "loading:0";

/// What INFO says of a Sentinel.
const WATCHES: &str = "sentinel_masters:1";

type Environment = Vec<(&'static str, OsString)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    /// A node of a cluster: which keys it may be asked for depends on the slot.
    Node,
    /// Has no keys.
    Sentinel,
}

/// Killed when dropped, a panicking test included; then also checks that no lock is eternal.
pub(crate) struct Server {
    port: u16,
    password: Option<String>,
    args: Vec<String>,
    env: Environment,
    kind: Kind,
    dir: TempDir,
    process: Mutex<Option<Process>>,
    paused: AtomicBool,
    admin: Mutex<Option<Connection>>,
}

impl Server {
    /// A server with persistence off.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One server for all tests that do nothing to the server itself, in as far as each has names of
    /// its own. It ends with the process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Server> = LazyLock::new(Server::start);
        &SHARED
    }

    /// A server with more arguments, such as `["--maxmemory", "1mb"]`.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_in(args, Vec::new(), Kind::Single, "")
    }

    /// The same in an environment.
    #[allow(dead_code, reason = "the differential needs it")]
    pub(crate) fn start_with_env(args: &[&str], env: Environment) -> Self {
        Self::start_in(args, env, Kind::Single, "")
    }

    /// A node for a cluster, of which it does not know yet.
    pub(crate) fn start_node(args: &[&str]) -> Self {
        let node = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
        Self::start_in(&[&node, args].concat(), Vec::new(), Kind::Node, "")
    }

    /// A Sentinel with these lines in its configuration, which it will write to.
    pub(crate) fn start_sentinel(lines: &str) -> Self {
        Self::start_in(&["--sentinel"], Vec::new(), Kind::Sentinel, lines)
    }

    fn start_in(args: &[&str], env: Environment, kind: Kind, lines: &str) -> Self {
        super::machine::measure();
        let password = args.iter().position(|arg| *arg == "--requirepass");
        let mut server = Self {
            port: 0,
            password: password.map(|at| args[at + 1].to_owned()),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env,
            kind,
            dir: TempDir::with_prefix("redlatch-test-").expect("a temporary directory"),
            process: Mutex::default(),
            paused: AtomicBool::new(false),
            admin: Mutex::default(),
        };
        server.configure(lines);
        for _ in 0..50 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("no free port for a Redis server in 50 attempts");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where the server is, with its password when it has one.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same server behind another port, a proxy's for one.
    pub(crate) fn url_at(&self, port: u16) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}/"),
            None => format!("redis://127.0.0.1:{port}/"),
        }
    }

    /// Kills the server. With persistence off everything in it is gone.
    pub(crate) fn kill(&self) {
        *lock(&self.admin) = None;
        drop(lock(&self.process).take());
        self.paused.store(false, Ordering::SeqCst);
    }

    /// Starts a killed server again, on the same port and with the same arguments.
    pub(crate) fn start_again(&self) {
        let start = Instant::now();
        while !self.launch() {
            assert!(start.elapsed() < START, "port {} is taken", self.port);
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn restart(&self) {
        self.kill();
        self.start_again();
    }

    /// Stops the process, as a machine that hangs: connections stay open, nothing answers.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        self.paused.store(true, Ordering::SeqCst);
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
        self.paused.store(false, Ordering::SeqCst);
    }

    fn signal(&self, signal: &str) {
        lock(&self.process).as_ref().expect("a running server").signal(signal);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Whether it would answer: it is neither killed nor paused.
    pub(crate) fn is_up(&self) -> bool {
        lock(&self.process).is_some() && !self.is_paused()
    }

    /// Asks the server a question, over a connection that no client under test uses.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    pub(crate) fn try_ask<T: FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        let mut admin = lock(&self.admin);
        let mut cmd = redis::cmd(command[0]);
        cmd.arg(&command[1..]);
        // Whoever changes a server's role closes its connections; and a read that has a timeout is
        // interrupted when we are stopped for a moment.
        if let Some(old) = admin.as_mut() {
            match cmd.query(old) {
                Err(error) if error.is_io_error() && !error.is_timeout() => *admin = None,
                Err(error) if error.is_io_error() => {
                    *admin = None;
                    return Err(error);
                }
                answer => return answer,
            }
        }
        let mut connection = self.connection()?;
        let answer = cmd.query(&mut connection);
        *admin = connection.is_open().then_some(connection);
        answer
    }

    /// A new connection of the plainest kind. It waits 10 s for an answer, not for ever.
    pub(crate) fn connection(&self) -> redis::RedisResult<Connection> {
        let client = redis::Client::open(self.url())?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(connection)
    }

    /// How often each command was carried out since the last [`Server::reset_stats`], those
    /// inside scripts included.
    pub(crate) fn commandstats(&self) -> BTreeMap<String, u64> {
        let info: String = self.ask(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let (calls, _) = figures.strip_prefix("calls=")?.split_once(',')?;
            Some((name.to_owned(), calls.parse().ok()?))
        };
        info.lines().filter_map(calls).collect()
    }

    /// How often one command was carried out, by its name in lower case.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.commandstats().get(command).copied().unwrap_or(0)
    }

    pub(crate) fn reset_stats(&self) {
        self.ask::<()>(&["CONFIG", "RESETSTAT"]);
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.ask(&["EXISTS", name])
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask(&["HGETALL", name])
    }

    /// Redis's answer to PTTL: -2 for no key, -1 for a key without an end.
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask(&["PTTL", name])
    }

    /// How many connections wait for a release of `name`.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        let (_, count): (String, u64) = self.ask(&["PUBSUB", "NUMSUB", &channel(name)]);
        count
    }

    /// Takes `name` as a client of another make would, or as one that has since died.
    pub(crate) fn hold_by_hand(&self, name: &str, owner: &str, lease: Duration) {
        self.ask::<()>(&["HSET", name, owner, "1"]);
        self.ask::<()>(&["PEXPIRE", name, &lease.as_millis().to_string()]);
    }

    /// Gives `name` back as a client of another make would.
    pub(crate) fn free_by_hand(&self, name: &str) {
        self.ask::<()>(&["DEL", name]);
        self.ask::<()>(&["PUBLISH", &channel(name), "0"]);
    }

    /// Asks for a key that the server has, whoever may be responsible for it.
    fn look<T: FromRedisValue>(&self, command: &[&str]) -> T {
        if self.kind == Kind::Node {
            // A replica's key, and one of a slot that comes in.
            self.ask::<()>(&["READONLY"]);
            self.ask::<()>(&["ASKING"]);
        }
        self.ask(command)
    }

    /// From now on whatever needs memory is refused.
    pub(crate) fn fill(&self) {
        self.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        self.assert_full();
    }

    pub(crate) fn assert_full(&self) {
        let error = self.try_ask::<()>(&["SET", "filler", "1"]).expect_err("memory is full");
        assert_eq!(error.code(), Some("OOM"), "{error}");
    }

    pub(crate) fn make_room(&self) {
        self.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    /// Fails if a lock has no end, or if a key was left that the protocol does not know.
    pub(crate) fn assert_clean(&self) {
        self.assert_clean_under("");
    }

    /// The same, of the keys alone that have this in their names.
    pub(crate) fn assert_clean_under(&self, prefix: &str) {
        let keys: Vec<String> = self.ask(&["KEYS", &format!("*{prefix}*")]);
        for key in keys {
            // Redisson's counter of fencing tokens is the one key that has no end.
            let known = !key.starts_with("redisson_") || key.starts_with("redisson_lock_token:");
            assert!(known, "a key that is not the lock: {key}");
            let kind: String = self.look(&["TYPE", &key]);
            let eternal = is_of_a_lock(&key, &kind) && self.look::<i64>(&["PTTL", &key]) == -1;
            assert!(!eternal, "{key} has no end");
        }
    }

    /// One line of INFO, without its name.
    pub(crate) fn info(&self, name: &str) -> Option<String> {
        let info: String = self.ask(&["INFO"]);
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        info.lines().find_map(value)
    }

    /// How often the server has answered with that error code since it started.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let line = self.info(&format!("errorstat_{code}"));
        let count = line.as_deref().and_then(|line| line.strip_prefix("count="));
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    /// The same for an error inside a script, which Redis before 7 counts as a plain `ERR`.
    pub(crate) fn errors_in_scripts(&self, code: &str) -> u64 {
        self.errors(code) + self.errors("ERR")
    }

    /// What the server has written to its log since it was started.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("out.log")).unwrap_or_default()
    }

    /// Writes the file that the server reads when it starts.
    pub(crate) fn configure(&self, lines: &str) {
        fs::write(self.configuration(), lines).expect("a file for the configuration");
    }

    fn configuration(&self) -> PathBuf {
        self.dir.path().join("redis.conf")
    }

    /// Starts the process, and waits until it is ready; false if the port went to somebody else
    /// meanwhile.
    fn launch(&self) -> bool {
        let log = fs::File::create(self.dir.path().join("out.log")).expect("a log file");
        let program = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let server = Command::new(program)
            .arg(self.configuration())
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--dir", self.dir.path().to_str().expect("a path in UTF-8")])
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log file"))
            .stderr(log)
            .spawn()
            .expect("redis-server has to be installed: run tests/run, which sees to it");
        let mut process = Process::new(server);
        let start = Instant::now();
        loop {
            // The process id tells our server from one that had the port before.
            if self.is_ready(process.child.id()) {
                *lock(&self.process) = Some(process);
                return true;
            }
            if process.child.try_wait().expect("asking after the server").is_some() {
                let out = self.log();
                assert!(out.contains("in use"), "the server did not start:\n{out}");
                return false;
            }
            assert!(start.elapsed() < START, "the server did not answer within {START:?}");
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn is_ready(&self, pid: u32) -> bool {
        let state = if self.kind == Kind::Sentinel { WATCHES } else { READY };
        let Ok(info) = self.try_ask::<String>(&["INFO"]) else { return false };
        let says = |line: &str| info.lines().any(|said| said == line);
        says(&format!("process_id:{pid}")) && says(state)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let running = lock(&self.process).is_some();
        if running && self.kind != Kind::Sentinel && !thread::panicking() {
            if self.is_paused() {
                self.resume();
            }
            self.assert_clean();
        }
    }
}
