//! Worker processes: the example itself, started again with other arguments. They speak with the
//! process that started them line by line, through their standard input and output.

use std::io::{self, Write};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::support::Result;

/// The workers, seen from the process that started them. They end with this value: they are killed,
/// and each ends by itself when its input is closed, which happens even if this process is killed.
pub(crate) struct Workers {
    processes: Vec<Child>,
    inputs: Vec<ChildStdin>,
    lines: mpsc::UnboundedReceiver<(usize, String)>,
}

impl Workers {
    /// Starts a worker for each list of arguments. The URL of the server goes to them in the
    /// environment, because everybody can read the arguments of a process, and a URL may have a
    /// password in it.
    pub(crate) fn start(url: &str, workers: &[Vec<String>]) -> Result<Self> {
        let (sender, lines) = mpsc::unbounded_channel();
        let mut all = Self { processes: Vec::new(), inputs: Vec::new(), lines };
        for (number, arguments) in workers.iter().enumerate() {
            let mut process = Command::new(std::env::current_exe()?)
                .args(arguments)
                .env("REDIS_URL", url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            all.inputs.extend(process.stdin.take());
            tokio::spawn(forward(number, process.stdout.take(), sender.clone()));
            all.processes.push(process);
        }
        Ok(all)
    }

    /// Writes a line to one of them.
    pub(crate) async fn tell(&mut self, worker: usize, line: &str) -> Result<()> {
        Ok(self.inputs[worker].write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// The next line that one of them writes, and which of them; none when all have ended.
    pub(crate) async fn next_line(&mut self) -> Option<(usize, String)> {
        self.lines.recv().await
    }

    /// Kills one of them as the kernel does when memory is short: it does not notice.
    pub(crate) async fn kill(&mut self, worker: usize) -> Result<()> {
        Ok(self.processes[worker].kill().await?)
    }

    /// Ends those that are still there, and returns when they have gone.
    pub(crate) async fn close(mut self) {
        for process in &mut self.processes {
            let _ = process.kill().await;
        }
    }
}

async fn forward(
    worker: usize,
    output: Option<ChildStdout>,
    sender: mpsc::UnboundedSender<(usize, String)>,
) {
    let Some(output) = output else { return };
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = sender.send((worker, line));
    }
}

/// What the process that started this one writes, line by line; closed when it has gone. A thread of
/// its own reads, because a read that tokio does on standard input would hold up the end of the
/// runtime.
pub(crate) fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(io::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Writes a line to the process that started this one. Not `println!`: that panics when it has gone.
pub(crate) fn say(line: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}
