//! A server's own clocks, which a test can set: a small C library is compiled when it is needed, and
//! preloaded into the server.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

pub(crate) struct Clock {
    dir: TempDir,
    setting: File,
}

const LIBRARY: &str = "clock.so";
const SETTING: &str = "setting";

impl Clock {
    /// A clock that shows the system's time. An error says why no library can be preloaded.
    pub(crate) fn build() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("a server's clock can be set on Linux only".into());
        }
        let dir = TempDir::with_prefix("redlatch-clock-").expect("a temporary directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-ldl", "-o"])
            .args([&dir.path().join(LIBRARY), &source])
            .output()
            .map_err(|error| format!("no C compiler to build the clock with: {error}"))?;
        // A compiler that is there and fails is a fault of the library.
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let setting = File::create_new(dir.path().join(SETTING)).expect("a file for the setting");
        let clock = Self { dir, setting };
        clock.stand_at(Duration::ZERO, Duration::ZERO);
        Ok(clock)
    }

    /// What the server's environment needs.
    pub(crate) fn env(&self) -> Vec<(&'static str, OsString)> {
        let path = |name: &str| self.dir.path().join(name).into_os_string();
        vec![("LD_PRELOAD", path(LIBRARY)), ("TEST_CLOCK", path(SETTING))]
    }

    /// From now on the server's clock stands still at that time since 1970, and its monotonic clock
    /// at the other one, which may not be earlier than the last time. At the time 0 both go.
    pub(crate) fn stand_at(&self, time: Duration, monotonic: Duration) {
        self.write(monotonic.as_micros() as i64, 8);
        self.write(time.as_micros() as i64, 0);
    }

    fn write(&self, micros: i64, at: u64) {
        self.setting.write_all_at(&micros.to_ne_bytes(), at).expect("setting the clock");
    }
}
