//! A server of any kind, a process of its own on a port, in a directory that goes with it.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Result;

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

/// Dropping it ends the server.
pub(crate) struct Guardian {
    name: &'static str,
    port: u16,
    log: PathBuf,
    child: Child,
}

impl Guardian {
    pub(crate) fn start(
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

    pub(crate) fn wait_until_up(&self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if begun.elapsed() > STARTUP {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} did not come up; it said:\n{said}", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(50));
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

/// It goes with the server, not with this program.
pub(crate) fn directory(name: &str) -> Result<PathBuf> {
    let prefix = format!("redlatch-{name}-");
    Ok(tempfile::Builder::new().prefix(&prefix).tempdir()?.keep())
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    status.success().then_some(()).ok_or_else(|| format!("{command:?}: {status}").into())
}

pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
