//! The selling processes, seen from the one that starts them.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::args::{Figures, Way};
use crate::shop::Shop;
use crate::support::Result;
use crate::till;

/// All tills of one sale. They end with this value: they are killed, and each ends by itself when
/// its pipe is closed, which happens even if this process is killed.
pub(crate) struct Tills {
    processes: Vec<Child>,
    pipes: Vec<ChildStdin>,
    said: mpsc::UnboundedReceiver<String>,
}

impl Tills {
    pub(crate) fn open(url: &str, shop: &Shop, figures: Figures, way: Way) -> Result<Self> {
        let (heard, said) = mpsc::unbounded_channel();
        let mut tills = Self { processes: Vec::new(), pipes: Vec::new(), said };
        for number in 0..figures.processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("till").args(["--shop", shop.name(), "--way", way.argument()]);
            for (argument, value) in [
                ("--number", number),
                ("--stock", figures.stock),
                ("--processes", figures.processes),
                ("--buyers", figures.buyers),
            ] {
                command.arg(argument).arg(value.to_string());
            }
            let mut process = command
                .env("REDIS_URL", url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            tills.pipes.extend(process.stdin.take());
            tokio::spawn(forward(process.stdout.take(), heard.clone()));
            tills.processes.push(process);
        }
        Ok(tills)
    }

    /// Waits until all of them are ready and then starts them together.
    pub(crate) async fn start(&mut self) -> Result<()> {
        for _ in &self.processes {
            match self.said.recv().await.as_deref() {
                Some(till::READY) => {}
                _ => return Err("a till did not get ready".into()),
            }
        }
        for pipe in &mut self.pipes {
            pipe.write_all(b"go\n").await?;
        }
        Ok(())
    }

    /// The next line that one of them says; none when all of them have ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.said.recv().await
    }

    /// Waits until all of them have ended, as they do after their last order.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for (number, process) in self.processes.iter_mut().enumerate() {
            let status = process.wait().await?;
            if !status.success() {
                return Err(format!("till {number} failed: {status}").into());
            }
        }
        Ok(())
    }

    /// Ends those that are still there, and returns when they have gone.
    pub(crate) async fn close(mut self) {
        for process in &mut self.processes {
            let _ = process.kill().await;
        }
    }
}

async fn forward(output: Option<ChildStdout>, heard: mpsc::UnboundedSender<String>) {
    let Some(output) = output else { return };
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = heard.send(line);
    }
}
