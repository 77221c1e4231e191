//! The processes under test, seen from their parent.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use crate::history::Process;
use crate::nemesis::late;
use crate::prelude::*;
use crate::record::Log;
use crate::round::Size;

/// How to start one more.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) folder: PathBuf,
    /// Of the server and of its proxies, as each process reaches them; of the Sentinel that names
    /// it, and of the protected resource.
    pub(crate) servers: Vec<String>,
    pub(crate) proxies: Vec<String>,
    pub(crate) sentinel: String,
    pub(crate) resource: String,
    pub(crate) seed: u64,
    pub(crate) size: Size,
}

pub(crate) struct Processes {
    plan: Plan,
    members: Mutex<Vec<Member>>,
    /// Every process that there ever was.
    all: Mutex<Vec<Process>>,
}

struct Member {
    process: Child,
    orders: ChildStdin,
    said: mpsc::Receiver<String>,
    number: usize,
}

/// What a call coming home may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

impl Processes {
    pub(crate) fn start(plan: Plan) -> Result<Self, String> {
        let slots = plan.size.processes;
        let processes = Self { plan, members: Mutex::default(), all: Mutex::default() };
        for slot in 0..slots {
            let member = processes.member(slot)?;
            lock(&processes.members).push(member);
        }
        processes.hear("ready")?;
        Ok(processes)
    }

    fn member(&self, slot: usize) -> Result<Member, String> {
        let (plan, size) = (&self.plan, self.plan.size);
        let own = vec![slot % 2];
        let straight = size.twice == 0;
        let server = if straight { &plan.servers[slot] } else { &plan.proxies[slot] };
        let (second, sentinel, proxies) = match slot {
            last if !straight && last + 1 == size.processes => {
                (server, Some(&plan.sentinel), [own, late::TWO.to_vec()].concat())
            }
            _ if !straight => (server, None, own),
            // One process goes straight to the server with all of its clients.
            0 => (server, None, Vec::new()),
            // One goes where a Sentinel says that the server is.
            last if last + 1 == size.processes => {
                (server, Some(&plan.sentinel), late::TWO.to_vec())
            }
            _ => (&plan.proxies[slot], None, own),
        };
        let (number, path) = {
            let mut all = lock(&self.all);
            let path = plan.folder.join(format!("{}.log", all.len()));
            let log = Log::File(path.clone());
            all.push(Process { log, proxies, ..Process::default() });
            (all.len() - 1, path)
        };
        let seed = plan.seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut process = Command::new(program)
            .arg("client")
            .arg("--log")
            .arg(path)
            .args(["--urls", server, second, &plan.resource])
            .args(sentinel.iter().flat_map(|url| ["--sentinel", url]))
            .args(["--seed", &seed.to_string(), "--names", &size.names.to_string()])
            .args(["--tasks", &size.tasks.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting a process: {error}"))?;
        let orders = process.stdin.take().ok_or("a process without an input")?;
        let output = process.stdout.take().ok_or("a process without an output")?;
        let (heard, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = heard.send(line);
            }
        });
        Ok(Member { process, orders, said, number })
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.members).len()
    }

    /// Stops one for so long. Returns its number in the history.
    pub(crate) fn pause(&self, slot: usize, time: Duration) -> Option<usize> {
        let (pid, number) = {
            let members = lock(&self.members);
            (pid(&members[slot].process)?, members[slot].number)
        };
        kill_process(pid, Signal::STOP).ok()?;
        std::thread::sleep(time);
        kill_process(pid, Signal::CONT).ok()?;
        Some(number)
    }

    /// Kills one and starts another in its place. Returns the dead one's number in the history,
    /// unless it had ended by itself.
    pub(crate) fn replace(&self, slot: usize) -> Result<Option<usize>, String> {
        let fresh = self.member(slot)?;
        let mut old = std::mem::replace(&mut lock(&self.members)[slot], fresh);
        let by_itself = old.process.try_wait().map_err(|error| error.to_string())?.is_some();
        old.process.kill().map_err(|error| error.to_string())?;
        old.process.wait().map_err(|error| error.to_string())?;
        lock(&self.all)[old.number].killed = Some(now());
        Ok((!by_itself).then_some(old.number))
    }

    /// Tells all of them something and waits for the same answer of each.
    pub(crate) fn tell(&self, order: &str, answer: &str) -> Result<(), String> {
        for member in lock(&self.members).iter_mut() {
            let told = writeln!(member.orders, "{order}");
            told.map_err(|_| format!("process {} ended by itself", member.number))?;
        }
        self.hear(answer)
    }

    fn hear(&self, answer: &str) -> Result<(), String> {
        for member in lock(&self.members).iter() {
            loop {
                match member.said.recv_timeout(PATIENCE) {
                    Ok(said) if said == answer => break,
                    Ok(_) => {}
                    Err(error) => {
                        let number = member.number;
                        return Err(format!("process {number} did not say {answer}: {error}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets all of them end.
    pub(crate) fn end(&self) -> Result<(), String> {
        let mut members = std::mem::take(&mut *lock(&self.members));
        for member in &mut members {
            let _ = writeln!(member.orders, "end");
        }
        for mut member in members {
            let status = member.process.wait().map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("process {} failed: {status}", member.number));
            }
        }
        Ok(())
    }

    /// Ends all of them as they are.
    pub(crate) fn kill(&self) {
        for mut member in std::mem::take(&mut *lock(&self.members)) {
            let _ = member.process.kill();
            let _ = member.process.wait();
            lock(&self.all)[member.number].killed = Some(now());
        }
    }

    /// What all of them have written down.
    pub(crate) fn read(&self, history: &mut History) -> Result<(), String> {
        for process in lock(&self.all).clone() {
            history.add(process)?;
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid(process: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.id()).ok()?)
}

pub(crate) mod trials {
    use super::*;
    use crate::support::Server;

    pub(crate) fn a_process_that_is_told_to_stop_while_it_starts_stops() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start();
        let plan = Plan {
            folder: folder.path().into(),
            servers: vec![server.url()],
            proxies: Vec::new(),
            sentinel: String::new(),
            resource: server.url(),
            seed: 0,
            size: Size { processes: 2, tasks: 1, names: 4, far: false, twice: 0 },
        };
        let processes = Processes { plan, members: Mutex::default(), all: Mutex::default() };
        let member = processes.member(0).unwrap();
        lock(&processes.members).push(member);
        processes.tell("stop", "kept").unwrap();
        processes.end().unwrap();
    }
}
