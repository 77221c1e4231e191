//! The processes of one contestant, as the program that measures sees them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::orders::{Done, Mode, Order, Work};
use super::peer::Peer;
use crate::support::Result;

/// How long a process may take for what takes no time, or longer than it was allowed to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Who takes part.
#[derive(Clone)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// What starts one process of it, but for the address of the server, which comes last.
    pub(crate) command: Vec<OsString>,
    /// What it sends besides what only a client can send.
    pub(crate) sends: Sends,
}

/// What another version of a contestant is called.
pub(crate) const BEFORE: &str = "before";

/// The server counts what is sent and what scripts call in the same place.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sends {
    /// Commands that it sends.
    pub(crate) also: &'static [&'static str],
    /// Commands that its scripts call each time that they call one of those as well.
    pub(crate) called_with: &'static [&'static str],
}

impl Contestant {
    pub(crate) fn of<P: Peer>() -> Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        let command = vec![program, "--worker".into(), P::NAME.into()];
        Ok(Self { name: P::NAME, command, sends: Sends { also: P::SENDS, called_with: &[] } })
    }

    /// As it is in another build of the program.
    pub(crate) fn before<P: Peer>(program: &Path) -> Self {
        let command = vec![program.into(), "--worker".into(), P::NAME.into()];
        Self { name: BEFORE, command, sends: Sends { also: P::SENDS, called_with: &[] } }
    }
}

/// They live as long as this does: a contestant that needs a while to become fast keeps it.
pub(crate) struct Crew(Vec<Worker>);

impl Crew {
    pub(crate) async fn start(contestant: &Contestant, url: &str, size: usize) -> Result<Self> {
        let workers = (0..size).map(|_| Worker::start(contestant, url));
        let mut crew = Self(workers.collect::<Result<_>>()?);
        for worker in &mut crew.0 {
            worker.answer("ready").await?;
        }
        Ok(crew)
    }

    /// Starts one more as the last one; it may reach the server another way than the others.
    pub(crate) async fn join(&mut self, contestant: &Contestant, url: &str) -> Result<()> {
        let mut worker = Worker::start(contestant, url)?;
        worker.answer("ready").await?;
        self.0.push(worker);
        Ok(())
    }

    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn worker(&mut self, at: usize) -> &mut Worker {
        &mut self.0[at]
    }

    /// Has these of them prepare the work; then they wait for `go`.
    pub(crate) async fn set(
        &mut self,
        members: impl IntoIterator<Item = usize> + Clone,
        work: &Work,
    ) -> Result<()> {
        for at in members.clone() {
            let mut work = work.clone();
            if work.mode == Mode::Apart {
                // No name of one process is that of another.
                work.name += &format!(":{at}");
            }
            self.worker(at).order(&Order::Work(work)).await?;
        }
        for at in members {
            self.worker(at).answer("set").await?;
        }
        Ok(())
    }

    /// What each of these has done, in the same order.
    pub(crate) async fn go(
        &mut self,
        members: impl IntoIterator<Item = usize> + Clone,
        limit: Duration,
    ) -> Result<Vec<Done>> {
        for at in members.clone() {
            self.worker(at).tell("go").await?;
        }
        let mut done = Vec::new();
        for at in members {
            done.push(Done::parse(&self.worker(at).any_answer(limit + PATIENCE).await?)?);
        }
        Ok(done)
    }
}

pub(crate) struct Worker {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Held because it is killed when this is dropped.
    _child: Child,
}

impl Worker {
    fn start(contestant: &Contestant, url: &str) -> Result<Self> {
        let mut child = Command::new(&contestant.command[0])
            .args(&contestant.command[1..])
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("standard input was asked for")?;
        let output = child.stdout.take().ok_or("standard output was asked for")?;
        Ok(Self { input, output: BufReader::new(output).lines(), _child: child })
    }

    pub(crate) async fn order(&mut self, order: &Order) -> Result<()> {
        self.tell(&order.line()).await
    }

    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// What follows after the word in its next answer.
    pub(crate) async fn answer(&mut self, word: &str) -> Result<String> {
        let line = self.any_answer(PATIENCE).await?;
        let rest = line.strip_prefix(word).ok_or_else(|| format!("{word} expected, not {line}"))?;
        Ok(rest.trim_start().to_owned())
    }

    /// A time that it says.
    pub(crate) async fn when(&mut self, word: &str) -> Result<u64> {
        Ok(self.answer(word).await?.parse()?)
    }

    pub(crate) async fn any_answer(&mut self, patience: Duration) -> Result<String> {
        let line = timeout(patience, self.output.next_line()).await;
        let line = line.map_err(|_| format!("no answer in {patience:?}"))??;
        line.ok_or_else(|| "the process has ended".into())
    }
}
