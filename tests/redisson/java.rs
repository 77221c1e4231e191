//! A Java process that uses Redisson: `Peer.java`, which does what it is told.

use std::collections::HashMap;
use std::env;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::parties::Micros;
use crate::support::{SOON, soon, unpoisoned, within};

/// Killed when dropped. It ends by itself with its input, so with us too.
pub(crate) struct Java {
    process: Mutex<Child>,
    requests: Mutex<ChildStdin>,
    last: AtomicU64,
    calls: Arc<Calls>,
}

type Calls = Mutex<HashMap<u64, oneshot::Sender<Answer>>>;

/// What came of a call, and when it began and ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) begun: Micros,
    pub(crate) ended: Micros,
    /// What it returned, or what it threw.
    pub(crate) outcome: Result<String, String>,
}

/// A call under way.
pub(crate) struct Call {
    what: String,
    answer: oneshot::Receiver<Answer>,
}

/// A thread of the process, which is an owner to Redisson. Its calls are carried out in order.
#[derive(Clone)]
pub(crate) struct Thread {
    java: Arc<Java>,
    name: String,
}

impl Java {
    /// Starts one of the version whose class path is in that folder. Returns when it is connected.
    pub(crate) fn start(class_path: &Path, redis: &str, watchdog: Duration) -> Arc<Self> {
        let peer = class_path.with_file_name("peer.jar");
        let class_path = class_path.join("*");
        // It does not live long enough for an optimizing compiler to be worth its while.
        let mut process = Command::new(java())
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp"])
            .arg(env::join_paths([&peer, &class_path]).expect("paths without a separator"))
            .args(["interop.Peer", redis])
            .arg(watchdog.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java, of the JDK that has built the program");
        let requests = process.stdin.take().expect("piped");
        let mut answers = BufReader::new(process.stdout.take().expect("piped"));
        let mut ready = String::new();
        answers.read_line(&mut ready).expect("a line");
        assert_eq!(ready, "ready\n", "the Java process did not start, see above");
        let calls = Arc::<Calls>::default();
        let heard = calls.clone();
        thread::spawn(move || listen(answers, &heard));
        let process = Mutex::new(process);
        Arc::new(Self { process, requests: Mutex::new(requests), last: AtomicU64::new(0), calls })
    }

    pub(crate) fn thread(self: &Arc<Self>, name: &str) -> Thread {
        Thread { java: self.clone(), name: name.to_owned() }
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = unpoisoned(&self.process);
        process.kill().expect("killing Java");
        process.wait().expect("its end");
    }

    fn call(&self, what: String) -> Call {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (told, answer) = oneshot::channel();
        self.calls.lock().expect("nobody fails with it").insert(id, told);
        let mut requests = self.requests.lock().expect("nobody fails with it");
        writeln!(requests, "{id} {what}").and_then(|()| requests.flush()).expect("a living Java");
        Call { what, answer }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Thread {
    /// Has the thread call `verb` with these arguments, the lock's name first.
    pub(crate) fn begin(&self, verb: &str, arguments: &[&dyn Display]) -> Call {
        let mut what = format!("{} {verb}", self.name);
        for argument in arguments {
            what = format!("{what} {argument}");
        }
        self.java.call(what)
    }

    /// The answer to a call that has to come soon.
    pub(crate) async fn ask(&self, verb: &str, arguments: &[&dyn Display]) -> Answer {
        self.begin(verb, arguments).answer().await
    }

    /// What a call returns that has to come soon.
    pub(crate) async fn get<T: FromStr>(&self, verb: &str, arguments: &[&dyn Display]) -> T {
        let value = self.ask(verb, arguments).await.value();
        value.parse().unwrap_or_else(|_| panic!("{verb} returned {value}"))
    }

    /// The owner that it is in Redis.
    pub(crate) async fn owner(&self) -> String {
        self.get("owner", &[]).await
    }

    /// Returns when that call of it is in a wait that a message ends. (Or is done.)
    pub(crate) async fn parks(&self, call: &Call) {
        let parks = async {
            while !call.is_done() && !self.get::<bool>("parked", &[]).await {
                tokio::task::yield_now().await;
            }
        };
        soon("Java parks", parks).await;
    }
}

impl Call {
    pub(crate) fn is_done(&self) -> bool {
        !self.answer.is_empty()
    }

    pub(crate) async fn answer(self) -> Answer {
        self.answer_within(SOON).await
    }

    pub(crate) async fn answer_within(self, limit: Duration) -> Answer {
        let answer = within(limit, &self.what, self.answer).await;
        answer.unwrap_or_else(|_| panic!("Java ended without an answer to {}", self.what))
    }
}

impl Answer {
    /// What was returned. What throws fails the test.
    pub(crate) fn value(self) -> String {
        self.outcome.unwrap_or_else(|thrown| panic!("Java threw {thrown}"))
    }

    /// Fails unless it threw what Redisson throws at who unlocks what it does not hold.
    pub(crate) fn assert_not_held(self) {
        let thrown = self.outcome.expect_err("an unlock of a lock that was lost");
        assert!(thrown.starts_with("IllegalMonitorStateException"), "{thrown}");
    }
}

fn java() -> PathBuf {
    match env::var_os("JAVA_HOME") {
        Some(home) => Path::new(&home).join("bin").join("java"),
        None => "java".into(),
    }
}

/// Hands each answer to who asked. At the end of the process, nobody gets one any more.
fn listen(answers: BufReader<ChildStdout>, calls: &Calls) {
    for line in answers.lines().map_while(Result::ok) {
        let (id, answer) = read(&line).unwrap_or_else(|| panic!("Java says {line:?}"));
        let call = calls.lock().expect("nobody fails with it").remove(&id);
        // Who does not wait for it any more need not hear it.
        let _ = call.expect("an answer to a request").send(answer);
    }
    calls.lock().expect("nobody fails with it").clear();
}

fn read(line: &str) -> Option<(u64, Answer)> {
    let mut words = line.splitn(5, ' ');
    let id = words.next()?.parse().ok()?;
    let ok = words.next()? == "ok";
    let (begun, ended) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let value = words.next()?.to_owned();
    Some((id, Answer { begun, ended, outcome: if ok { Ok(value) } else { Err(value) } }))
}
