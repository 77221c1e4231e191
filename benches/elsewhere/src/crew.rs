//! The processes of a tool, as the program that measures sees them.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::servers::Sites;
use crate::support::Result;

/// For what takes as long as it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Who takes part, and what starts one process of it, but for the sites.
#[derive(Clone)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) part: Part,
}

/// In which scenarios it has something to show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything.
    Lock,
    /// It keeps nobody waiting: no hand-off, and nothing to hold in a crash.
    Optimistic,
    /// A single statement, for the sale alone.
    Statement,
    /// As another one, but for the late write.
    LateWrite,
    /// Whether the sale can fail at all.
    Control,
}

impl Contestant {
    pub(crate) fn sells(&self) -> bool {
        self.part != Part::LateWrite
    }

    pub(crate) fn takes_turns(&self) -> bool {
        matches!(self.part, Part::Lock | Part::Optimistic)
    }

    pub(crate) fn hands_off(&self) -> bool {
        self.part == Part::Lock
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.part, Part::Lock | Part::Optimistic | Part::LateWrite)
    }
}

pub(crate) struct Worker {
    name: &'static str,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Worker {
    pub(crate) async fn start(contestant: &Contestant, sites: &Sites) -> Result<Self> {
        let mut child = Command::new(&contestant.command[0])
            .args(&contestant.command[1..])
            .arg(sites.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("standard input was asked for")?;
        let output = child.stdout.take().ok_or("standard output was asked for")?;
        let output = BufReader::new(output).lines();
        let mut worker = Self { name: contestant.name, input, output, child };
        worker.answer("ready", PATIENCE).await?;
        Ok(worker)
    }

    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// What follows after the word in its next answer.
    pub(crate) async fn answer(&mut self, word: &str, patience: Duration) -> Result<String> {
        let line = timeout(patience, self.output.next_line()).await;
        let line = line.map_err(|_| format!("{}: no {word} in {patience:?}", self.name))??;
        let line = line.ok_or_else(|| format!("{}: the process has ended", self.name))?;
        let rest = line.strip_prefix(word);
        let rest = rest.ok_or_else(|| format!("{}: {word} expected, not {line}", self.name))?;
        Ok(rest.trim_start().to_owned())
    }

    pub(crate) async fn ask(&mut self, order: &str, word: &str) -> Result<String> {
        self.tell(order).await?;
        self.answer(word, PATIENCE).await
    }

    /// Kills it, so that it cannot tidy up.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        let id = self.child.id().ok_or("the process has ended")?.to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status().await?;
        status.success().then_some(()).ok_or_else(|| format!("kill {signal}: {status}").into())
    }
}
