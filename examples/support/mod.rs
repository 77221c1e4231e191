//! The Redis server that the examples run against: the one in `REDIS_URL`, or a private one that
//! lives exactly as long as the example.

mod install;

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What every example returns; it has nothing better to do with an error than to show it.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Runs the server beside `cat`, which ends when the pipe to this process closes, and that happens
/// however this process ends: by returning, by a panic, by Ctrl-C, even by `kill -9`. A `Drop`
/// alone would leave the server and its directory behind in the last two.
const GUARDED: &str = r#"
    trap '' HUP INT QUIT TERM
    "$@" & cat
    kill -9 $!
    rm -f log port; rmdir "$PWD"
"#;

/// How long a server may take until it answers; a hundred times what it needs.
const STARTUP: Duration = Duration::from_secs(10);

/// How many ports are tried.
const ATTEMPTS: u32 = 10;

/// A server to run against.
pub(crate) struct Server {
    url: String,
    /// Held for its `Drop`.
    _private: Option<Private>,
}

/// A server of our own: nothing is persisted, and nobody else on the network can reach it.
struct Private(Child);

impl Server {
    /// The server in `REDIS_URL`, else a private one.
    #[allow(dead_code, reason = "an example that stops its server has a private one")]
    pub(crate) fn from_env_or_private() -> Result<Self> {
        match std::env::var("REDIS_URL") {
            Ok(url) if !url.is_empty() => {
                // The URL itself is not shown: it may have a password in it.
                eprintln!("redis: the one in REDIS_URL");
                Ok(Self { url, _private: None })
            }
            _ => Self::private(),
        }
    }

    /// A private server on a free port: whichever of `redis-server` and `valkey-server` is
    /// installed, else `meebis`.
    pub(crate) fn private() -> Result<Self> {
        for _ in 0..ATTEMPTS {
            if let Some(server) = Self::at(free_port()?)? {
                return Ok(server);
            }
        }
        Err("each port that was free was taken before the server started".into())
    }

    /// The same on that port; `None` if another server took it meanwhile. `meebis` chooses its own.
    pub(crate) fn at(port: u16) -> Result<Option<Self>> {
        let program = install::find_or_install()?;
        let dir = tempfile::Builder::new().prefix("redlatch-example-").tempdir()?;
        let log = dir.path().join("log");
        let port_file = dir.path().join("port");
        let is_meebis = program.file_stem().is_some_and(|name| name == "meebis");
        let mut command = Command::new("sh");
        command.args(["-c", GUARDED, "sh"]).arg(&program).args(["--bind", "127.0.0.1"]);
        if is_meebis {
            command.args(["--port", "0"]).arg("--port-file").arg(&port_file);
        } else {
            fs::write(&port_file, port.to_string())?;
            command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        }
        let guardian = command
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()
            .map_err(|e| format!("cannot start {} through sh: {e}", program.display()))?;
        // From here on it is the guardian that tidies up, also after an early return.
        let private = Private(guardian);
        let dir = dir.keep().canonicalize()?;
        let Some(port) = wait_until_up(&port_file) else {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{} did not come up; it said:\n{said}", program.display()).into());
        };
        // The other one may end just then.
        if !is_meebis && !is_in(&dir, port).unwrap_or(false) {
            return Ok(None);
        }
        eprintln!("redis: a private {} on 127.0.0.1:{port}", name_of(&program));
        Ok(Some(Self { url: format!("redis://127.0.0.1:{port}/"), _private: Some(private) }))
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The server has ended when this is over, not some time later.
        let _ = self.0.wait();
    }
}

/// A key or lock name that no other run uses, for servers which other people use as well.
pub(crate) fn unique(what: &str) -> String {
    format!("redlatch-example:{what}:{}", uuid::Uuid::new_v4())
}

/// The port, as soon as the server behind it answers.
fn wait_until_up(port_file: &Path) -> Option<u16> {
    let started = Instant::now();
    while started.elapsed() < STARTUP {
        let port = fs::read_to_string(port_file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(port) = port.filter(|port| answers(*port).unwrap_or(false)) {
            return Some(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

fn answers(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    Ok(&reply == b"+PONG")
}

/// Whether the server at that port runs in that directory.
fn is_in(dir: &Path, port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(STARTUP))?;
    stream.write_all(b"CONFIG GET dir\r\n")?;
    // Its name and its value, each behind a line with its length, behind a line with their number.
    let lines = BufReader::new(stream).lines().take(5).collect::<io::Result<Vec<_>>>()?;
    Ok(lines.last().is_some_and(|line| Path::new(line) == dir))
}

/// Redis cannot be told to choose a port itself. Between this and its start somebody else could
/// take the port.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn name_of(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
