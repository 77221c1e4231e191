//! A server's own wall clock, which a test can set: a small C library, compiled when it is needed
//! and preloaded into the server, adds an offset to the system's time.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::Server;

pub(crate) struct Clock {
    dir: TempDir,
    offset: File,
}

const LIBRARY: &str = "clock.so";
const OFFSET: &str = "offset";

impl Clock {
    /// A clock that shows the system's time. `None` where no library can be preloaded: the test
    /// is then left out, which is said here because the test itself passes.
    pub(crate) fn new() -> Option<Self> {
        Self::build()
            .map_err(|why| {
                let test = std::thread::current().name().unwrap_or("a test").to_owned();
                // Past the capture of what a passing test prints.
                let _ = writeln!(std::io::stderr(), "{test}: LEFT OUT: {why}");
            })
            .ok()
    }

    fn build() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("a server's clock can be set on Linux only".into());
        }
        let dir = TempDir::with_prefix("redlatch-clock-").expect("a temporary directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-ldl", "-o"])
            .args([&dir.path().join(LIBRARY), &source])
            .output()
            .map_err(|error| format!("no C compiler to build the clock with: {error}"))?;
        // A compiler that is there and fails is a fault of the library.
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let offset = File::create_new(dir.path().join(OFFSET)).expect("a file for the offset");
        let clock = Self { dir, offset };
        clock.set(0);
        clock.write(0, 8);
        clock.write(0, 16);
        Ok(clock)
    }

    /// What the server's environment needs.
    pub(super) fn env(&self) -> Vec<(&'static str, OsString)> {
        let path = |name: &str| self.dir.path().join(name).into_os_string();
        vec![("LD_PRELOAD", path(LIBRARY)), ("TEST_CLOCK", path(OFFSET))]
    }

    /// From now on the server's clock is so many milliseconds ahead of the system's.
    pub(crate) fn set(&self, millis: i64) {
        self.write(millis * 1_000, 0);
    }

    /// From now on the server's clock stands still at that time since 1970, and its monotonic clock
    /// at the other one, which may not be earlier than the last time.
    #[allow(dead_code, reason = "the differential needs it")]
    pub(crate) fn stand_at(&self, time: Duration, monotonic: Duration) {
        self.write(monotonic.as_micros() as i64, 16);
        self.write(time.as_micros() as i64, 8);
    }

    fn write(&self, micros: i64, at: u64) {
        self.offset.write_all_at(&micros.to_ne_bytes(), at).expect("setting the clock");
    }

    /// By how many milliseconds `server` says that it is ahead: the proof that it goes by this
    /// clock.
    pub(crate) fn seen_by(server: &Server) -> i64 {
        let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
        let server = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        server.as_millis() as i64 - here.as_millis() as i64
    }
}
