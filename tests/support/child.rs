//! A process of a test's own: this test binary again, in a role that the test gives it.
//!
//! The child runs one test function, which does nothing in any other process (see [`role`]).
//! Parent and child tell each other lines, so that neither has to guess how far the other is.

use std::env;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use super::process::Process;
use super::{SOON, block_until};

/// What a child is to be: set for it alone.
const ROLE: &str = "REDLATCH_TEST_CHILD";

/// Says that a process runs one test alone.
const ALONE: &str = "REDLATCH_TEST_ALONE";

/// Tells a child's lines from those that its test harness prints.
const MARK: &str = "the child says: ";

/// Killed when dropped, stopped or not, so that a test that fails leaves none behind.
pub(crate) struct Child {
    process: Process,
    lines: Receiver<String>,
}

impl Child {
    /// Starts this binary with nothing but the test `entry` to run, in a role of some words.
    pub(crate) fn start(entry: &str, role: &str) -> Self {
        Self::start_with(entry, role, &[])
    }

    /// The same, with more variables in its environment.
    pub(crate) fn start_with(entry: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", entry, "--nocapture", "--quiet"])
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary again");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (heard, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(MARK) {
                    let _ = heard.send(line.to_owned());
                }
            }
        });
        Self { process: Process::new(child), lines }
    }

    /// Waits for the next line that the child says.
    pub(crate) fn hear(&mut self) -> String {
        match self.lines.recv_timeout(SOON) {
            Ok(line) => line,
            Err(error) => panic!("not a word from the child: {error}; {:?}", self.process.child),
        }
    }

    /// The next line, if the child has said it already.
    pub(crate) fn heard(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    pub(crate) fn hear_that(&mut self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    /// Says a line to the child, which hears it when it listens.
    pub(crate) fn say(&mut self, line: &str) {
        let to = self.process.child.stdin.as_mut().expect("piped");
        writeln!(to, "{line}").and_then(|()| to.flush()).expect("a child that lives");
    }

    /// SIGSTOP. When this returns, the child stands still.
    pub(crate) fn stop(&self) {
        self.process.signal("STOP");
        block_until("the child stands still", SOON, || self.is_stopped());
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        assert!(self.is_stopped(), "the child ran all the time");
        self.process.signal("CONT");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.child.kill().expect("killing a child");
    }

    /// Waits for the child's end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        block_until("the end of the child", SOON, || {
            status = self.process.child.try_wait().expect("asking after the child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let pid = self.process.child.id();
        let state = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            // The state comes behind the program's name in parentheses.
            Ok(stat) => stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()),
            Err(_) => {
                let ps = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
                ps.ok().map(|ps| String::from_utf8_lossy(&ps.stdout).trim().to_owned())
            }
        };
        state.expect("a child").starts_with('T')
    }
}

/// Runs a test in a process of its own, because it measures the process or changes it: this binary
/// again, with nothing but that test to run. `name` is the test's, with its modules.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let mut process = Command::new(env::current_exe().expect("this binary"));
    process.args(["--exact", name, "--nocapture"]).env(ALONE, "");
    let output = process.output().expect("this binary again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 1 passed"), "{name}: {output:#?}");
    println!("{said}");
}

/// How many bytes of this process are in memory, as Linux counts them.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process on Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// In a child, what it is to be. `None` in a process that is none.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Says a line to the parent.
pub(crate) fn say(line: impl Display) {
    // Past the harness, which would hold back what a thread of the child's prints.
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).expect("a parent that listens");
}

/// Blocks the thread until the parent says something. Without a parent there is no more to do.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(length) if length > 0 => line.trim_end().to_owned(),
        _ => std::process::exit(0),
    }
}
