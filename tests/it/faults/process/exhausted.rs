//! W19: a process that may open no more files.
//!
//! The limit is walked upwards one by one, from one under which nothing can be opened to three under
//! which the client works. In between, each thing that connecting makes is once the first that
//! cannot be made.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

const NAME: &str = "scarce";

const WATCHDOG_TIMEOUT: Duration = ms(2_400);

/// More files than a client needs.
const ENOUGH: u64 = 100;

const TIMES: usize = 3;

fn count(directory: &str) -> usize {
    fs::read_dir(directory).expect("a process that can look at itself").count()
}

/// Open files and threads.
fn resources() -> (usize, usize) {
    (count("/proc/self/fd"), count("/proc/self/task"))
}

pub(super) fn child(url: &str) {
    std::panic::set_hook(Box::new(|panic| {
        child::say(format!("panicked: {panic}"));
        std::process::exit(1);
    }));
    let runtime = runtime();
    let admin = redis::Client::open(url).expect("an address");
    let mut admin = admin.get_connection().expect("a server");
    let before = resources();
    let limits = getrlimit(Resource::Nofile);
    let mut worked = 0;
    for limit in 0..ENOUGH {
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..limits }).expect("a limit");
        let used = runtime.block_on(use_a_client(url, &mut admin));
        setrlimit(Resource::Nofile, limits).expect("the limit from before");
        // In the runtime, whose tasks close what it has.
        let ended = wait_until("the end of thread and connections", SOON, || resources() == before);
        runtime.block_on(ended);
        match used {
            Ok(()) => {
                child::say("works");
                worked += 1;
            }
            Err(refusal) => child::say(refusal),
        }
        if worked == TIMES {
            break;
        }
    }
    child::say("done");
}

/// All of a client's life, or what `connect` says.
async fn use_a_client(url: &str, admin: &mut redis::Connection) -> Result<(), String> {
    let builder = LockClient::builder().url(url).watchdog_timeout(WATCHDOG_TIMEOUT);
    let client = match soon("connecting", builder.connect()).await {
        Ok(client) => client,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert_eq!(error.outcome(), Outcome::NotExecuted, "{error}");
            return Err(error.to_string());
        }
    };
    let (first, second) = (client.lock(NAME), client.lock(NAME));
    let guard = hold(&first).await;
    renewed(&guard).await;
    let parked = async {
        wait_until("a subscription", SOON, || {
            let mut asked = redis::cmd("PUBSUB");
            asked.arg("NUMSUB").arg(channel(NAME));
            asked.query::<(String, u64)>(admin).expect("an answer").1 == 1
        })
        .await;
        release(guard).await;
    };
    let (next, ()) = tokio::join!(hold(&second), parked);
    release(next).await;
    drop(hold(&first).await);
    soon("closing", client.close()).await;
    let left: u64 = redis::cmd("EXISTS").arg(NAME).query(admin).expect("an answer");
    assert_eq!(left, 0, "a lock that nobody holds");
    Ok(())
}

#[test]
fn w19_with_too_few_files_connect_fails_or_the_client_works() {
    let server = Server::start();
    let mut child = start_child(&format!("exhausted {}", server.url()));
    let mut said = Vec::new();
    while said.last().is_none_or(|line| line != "done") {
        said.push(child.hear());
        assert!(!said[said.len() - 1].starts_with("panicked"), "{said:#?}");
    }
    said.pop();
    let works = |line: &String| line == "works";
    assert_eq!(said.iter().filter(|line| works(line)).count(), TIMES, "{said:#?}");
    // Nothing that works under a limit fails under a higher one.
    assert_eq!(said.iter().position(works), Some(said.len() - TIMES), "{said:#?}");
    // Each was missing at least once: a connection of this runtime, the thread's runtime, and the
    // connection of that one, the last before it works.
    let refusals = &said[..said.len() - TIMES];
    let of_runtime = |line: &String| line.contains("the runtime of the client's thread");
    let no_connection = |line: &String| line.contains("could not connect");
    assert!(no_connection(&refusals[0]), "{said:#?}");
    assert!(refusals.iter().any(of_runtime), "{said:#?}");
    assert!(no_connection(&refusals[refusals.len() - 1]), "{said:#?}");
    assert!(child.ended().success());
}
