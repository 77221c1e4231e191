//! The examples do what they say: each is run as a program, and its words and its exit status count.
//!
//! They use the server in `REDIS_URL`, else each starts one of its own.

#[path = "../examples/support/mod.rs"]
#[allow(dead_code, reason = "the examples use the rest")]
mod support;

use std::env::consts::EXE_EXTENSION;
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Server;

/// Far more than any of them needs, but it ends a test whose example hangs.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn nested_calls_hold_the_lock_twice_and_leave_it_free() {
    let run = Run::of("nested");
    assert_eq!(
        run.lines(),
        [
            "withdraw 10: hold 1",
            "withdraw 30: hold 2",
            "deposit 30: hold 2",
            "savings 60, current 30, and the lock is free",
        ]
    );
}

#[test]
fn a_lost_lock_stops_the_work() {
    let run = Run::of("lost_lock");
    let lines = run.lines();
    assert!(lines[0].starts_with("removed 1 key after "), "{run:?}");
    let (before, after) = (number_in(lines[0], "after "), number_in(lines[1], "at page "));
    // It worked before, it went on until the watchdog asked, and then it stopped.
    assert!(0 < before && before <= after && after < before + 150, "{run:?}");
    assert!(lines[2].starts_with("unlock says: "), "{run:?}");
}

#[test]
fn a_trace_leads_through_two_services_to_the_wait_and_the_hold() {
    let run = Run::of("traced_request");
    let spans: Vec<Vec<&str>> =
        run.lines().into_iter().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<_> = spans.iter().map(|span| (span[0], span[1])).collect();
    let billing = ["charge", "acquire", "hold", "release"].map(|name| (name, "billing"));
    assert_eq!(names, [&[("checkout", "shop")], &billing[..]].concat(), "{run:?}");
    let depths: Vec<_> =
        run.lines().iter().map(|line| line.len() - line.trim_start().len()).collect();
    assert_eq!(depths, [0, 2, 4, 4, 4], "{run:?}");
    let took: Vec<f64> = spans.iter().map(|span| span[2].parse().expect("a time")).collect();
    let [checkout, charge, acquire, hold, release] = took[..] else { panic!("{run:?}") };
    // The lock's spans are one after the other, within the others. Each is rounded.
    assert!(checkout + 0.1 >= charge && charge + 0.3 >= acquire + hold, "{run:?}");
    assert!(hold >= 30.0 && release >= 0.0, "a charge takes that long: {run:?}");
}

#[test]
fn c12_a_late_write_corrupts_a_table_that_does_not_compare_tokens() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "fenced_write");
    assert_eq!(
        run.lines(),
        [
            "without the check: the new holder withdraws 30: written",
            "without the check: the paused holder withdraws 10: written",
            "without the check: the account has 90, CORRUPT: a withdrawal is gone",
            "with the check: the new holder withdraws 30: written",
            "with the check: the paused holder withdraws 10: refused by the table",
            "with the check: the account has 70, sound",
        ]
    );
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
fn a_scheduled_job_is_run_by_one_instance_a_round() {
    let run = Run::of("scheduled_job");
    let lines = run.lines();
    for (line, round) in lines.iter().zip(1..=3) {
        assert!(line.starts_with(&format!("round {round}: instance ")), "{run:?}");
    }
    assert_eq!(lines[3..], ["3 rounds, 5 instances, one run each round"]);
}

#[test]
fn a_refused_request_is_carried_out_later_and_once() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "delay_queue");
    let lines = run.lines();
    let refused = number_in(lines[0], "40 requests for 4 accounts, ");
    assert!((1..=36).contains(&refused), "{run:?}");
    let killed_after = number_in(lines[1], "a consumer was killed after request ");
    // The request of the consumer that was killed was claimed again, and not paid in again.
    let again = format!("request {killed_after} came again: ");
    let again = lines.iter().find(|line| line.starts_with(&again)).expect("a line");
    let (first, second) = (number_in(again, ": token "), number_in(again, "this is token "));
    assert!(first < second, "{run:?}");
    assert_eq!(lines.last(), Some(&"40 requests, each of them carried out once"));
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
fn a_ticket_counter_serves_first_come_first_served_over_processes() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "ticket_counter");
    let lines = run.lines();
    // One counter in three was killed: those of the customers 3, 6, 9 and 12.
    let served = lines[1..9].iter().map(|line| number_in(line, "customer "));
    assert_eq!(served.collect::<Vec<_>>(), [1, 2, 4, 5, 7, 8, 10, 11], "{run:?}");
    let tickets = lines[1..9].iter().map(|line| number_in(line, "ticket "));
    assert_eq!(tickets.collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>(), "{run:?}");
    assert_eq!(lines[9..], ["8 tickets, first come, first served"]);
    assert_eq!(left_in(&server).connections, 0);
}

#[test]
fn a_web_service_says_busy_and_unavailable() {
    let run = Run::of("axum_handler");
    assert_eq!(
        run.lines(),
        [
            "200 OK: charged the order",
            "409 Conflict: this order is being charged",
            "409 Conflict: this order is being charged",
            "409 Conflict: it has been charged",
            "503 Service Unavailable: try again",
        ]
    );
}

#[test]
#[cfg(unix)]
fn a_process_that_is_told_to_stop_blocks_nobody_for_a_lease() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "shutdown");
    let lines = run.lines();
    assert_eq!(
        lines[..5],
        [
            "the first process: the endless job stops: its client was shut down",
            "the first process: locks released under their holders: 1",
            "the first process: locks that Redis may keep: 0",
            "the second process: has the lock of the short job",
            "the second process: has the lock of the endless job",
        ]
    );
    // It waited for its jobs, and the lease is 30 s.
    let took = number_in(lines[5], "it had both locks ");
    assert!((1_000..15_000).contains(&took), "{run:?}");
    assert_eq!(left_in(&server), NOTHING);
}

/// Two tests had one server once, which ended with the first of them.
#[test]
fn a_private_server_is_no_other_that_took_its_port() {
    let other = Server::private().expect("a server");
    let port = other.url().trim_end_matches('/').rsplit_once(':').expect("a port").1;
    assert!(Server::at(port.parse().expect("a port")).expect("no error").is_none());
}

#[test]
fn a_leader_that_stops_or_loses_the_lock_is_followed_by_another() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "leader");
    let lines = run.lines();
    let first = number_in(lines[0], "instance ");
    assert_eq!(
        lines[..2],
        [&format!("instance {first} leads"), "an operator takes the lock from the first leader"]
    );
    assert!(lines.contains(&&*format!("instance {first} is not the leader any more")), "{run:?}");
    for instance in 1..=3 {
        assert!(lines.contains(&&*format!("instance {instance} stops")), "{run:?}");
    }
    let terms: u64 =
        lines.last().and_then(|line| line.split_once(' ')?.0.parse().ok()).expect("a number");
    // One that was lost, and three that ended.
    assert!(terms >= 4, "{run:?}");
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
fn transfers_lose_no_money_and_do_not_wait_for_each_other() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "transfer");
    let [transfers, wrong, ..] = run.row("without a lock")[..] else { panic!("{run:?}") };
    assert!(transfers == 300.0 && wrong > 0.0, "{run:?}");
    assert_eq!(run.row("with multi_lock")[..3], [300.0, 0.0, 400.0]);
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
fn a_shared_configuration_is_torn_without_the_lock_and_not_with_it() {
    let server = Server::private().expect("a server");
    let run = Run::at(&server, "shared_config");
    for (way, is_torn) in [("without a lock", true), ("with a lock", false)] {
        let [refreshes, reads, torn, _longest] = run.row(way)[..] else { panic!("{run:?}") };
        assert_eq!(refreshes, 40.0);
        assert!(reads > 100.0 && (torn > 0.0) == is_torn, "{run:?}");
    }
    eventually("its processes are gone", || left_in(&server).connections == 0);
}

#[test]
fn a_flash_sale_oversells_without_the_lock_and_not_with_it() {
    let server = Server::private().expect("a server");
    let figures = ["--stock", "40", "--processes", "3", "--buyers", "240"];
    let run = Run::new(flash_sale(&server).args(figures));
    run.must_succeed();
    let row = |name| run.row(name);
    let [stock, buyers, sold, oversold, ..] = row("without a lock")[..] else { panic!("{run:?}") };
    assert_eq!((stock, buyers), (40.0, 240.0));
    assert!(oversold > 0.0 && sold == stock + oversold, "{run:?}");
    for way in ["with redlatch", "with execute"] {
        let [stock, buyers, sold, oversold, twice, waits, _seconds] = row(way)[..] else {
            panic!("{run:?}")
        };
        assert_eq!((stock, buyers, sold, oversold, twice), (40.0, 240.0, 40.0, 0.0, 0.0));
        // Three processes with eight orders each at a time: somebody always waits.
        assert!(waits > 0.0, "{run:?}");
        let exactly = "sold exactly what was there, and nobody was served twice.\n";
        assert!(run.out.contains(&format!("{way}: {exactly}")), "{run:?}");
    }
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
fn a_flash_sale_refuses_figures_that_make_no_sense() {
    for (arguments, complaint) in [
        (["--stock", "0"], "0 is not in 1..=100000"),
        (["--processes", "65"], "65 is not in 1..=64"),
        (["--buyers", "many"], "invalid digit"),
        (["--buyers", "3"], "4 processes for 3 buyers"),
    ] {
        let run = Run::new(program("flash_sale").args(arguments));
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        assert!(run.err.contains(complaint) && run.out.is_empty(), "{run:?}");
    }
    let help = Run::new(program("flash_sale").arg("--help"));
    help.must_succeed();
    for argument in ["--stock", "--processes", "--buyers", "REDIS_URL"] {
        assert!(help.out.contains(argument), "{help:?}");
    }
}

#[test]
fn a_flash_sale_says_so_when_redis_is_out_of_reach() {
    let run = Run::new(program("flash_sale").env("REDIS_URL", "redis://127.0.0.1:1/"));
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(run.err.contains("cannot use Redis"), "{run:?}");
}

#[test]
#[cfg(unix)]
fn a_flash_sale_that_is_told_to_stop_tidies_up() {
    let server = Server::private().expect("a server");
    let mut sale = LongSale::start(&mut flash_sale(&server));
    // The shell's own `kill`: the program of that name is not everywhere.
    let kill = format!("kill -TERM {}", sale.process.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
    let status = wait(&mut sale.process);
    assert_eq!(status.code(), Some(1));
    assert_eq!(left_in(&server), NOTHING);
}

#[test]
#[cfg(unix)]
fn a_flash_sale_that_is_killed_leaves_no_process_behind() {
    let server = Server::private().expect("a server");
    let mut on_shared = LongSale::start(&mut flash_sale(&server));
    on_shared.process.kill().expect("kill");
    eventually("the tills end", || left_in(&server).connections == 0);

    let mut on_private = LongSale::start(program("flash_sale").env_remove("REDIS_URL"));
    let said = on_private.said();
    let port = number_in(&said, "127.0.0.1:") as u16;
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{said}");
    on_private.process.kill().expect("kill");
    eventually("the server ends", || TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Where there is neither `redis-server` nor `valkey-server`.
#[test]
#[cfg(unix)]
#[ignore = "installs meebis, which needs the network and half a minute"]
fn a_flash_sale_brings_its_own_server() {
    let without_redis = tempfile::tempdir().expect("a directory");
    let path = std::env::var_os("PATH").expect("a PATH");
    let dirs = std::env::split_paths(&path).filter_map(|dir| dir.read_dir().ok());
    for program in dirs.flatten().flatten() {
        if !["redis-server", "valkey-server"].iter().any(|server| program.file_name() == **server) {
            let link = without_redis.path().join(program.file_name());
            // The first one on the path counts.
            let _ = std::os::unix::fs::symlink(program.path(), link);
        }
    }
    let mut command = program("flash_sale");
    command.env_remove("REDIS_URL").env("PATH", without_redis.path());
    let run = Run::new(command.args(["--stock", "40", "--buyers", "240"]));
    run.must_succeed();
    assert!(run.err.contains("a private meebis on 127.0.0.1:"), "{run:?}");
    assert_eq!(run.row("with redlatch")[2], 40.0, "{run:?}");
}

/// An example, beside the directory that this is in. Cargo builds them before it runs this unless it
/// is told to build this alone (`--test examples`); what is there may then be missing or old.
fn program(name: &str) -> Command {
    let this = std::env::current_exe().expect("the path of this program");
    let profile = this.ancestors().nth(2).expect("target/<profile>/deps");
    let program = profile.join("examples").join(name).with_extension(EXE_EXTENSION);
    let built = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    // `<program>: <source> <source> ...`, with spaces in names escaped.
    let sources = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split_whitespace().skip(1).map(|name| name.replace('\0', " "));
    let fresh = program.is_file() && sources.all(|s| built(s.as_ref()) <= built(&program));
    assert!(fresh, "{program:?} is missing or old: run `cargo build --examples` (same profile)");
    Command::new(program)
}

fn flash_sale(server: &Server) -> Command {
    let mut command = program("flash_sale");
    command.env("REDIS_URL", server.url());
    command
}

/// A program that has run to its end.
#[derive(Debug)]
struct Run {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Run {
    /// One that succeeds.
    fn of(name: &str) -> Self {
        let run = Self::new(&mut program(name));
        run.must_succeed();
        run
    }

    /// One that uses that server, and succeeds.
    fn at(server: &Server, name: &str) -> Self {
        let run = Self::new(program(name).env("REDIS_URL", server.url()));
        run.must_succeed();
        run
    }

    fn new(command: &mut Command) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = start(command, dir.path());
        let status = wait(&mut process);
        let read = |name| std::fs::read_to_string(dir.path().join(name)).expect("UTF-8");
        Self { status, out: read("out"), err: read("err") }
    }

    fn must_succeed(&self) {
        assert!(self.status.success(), "{self:#?}");
    }

    fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }

    /// The numbers in a row of the table; a dash is not one.
    fn row(&self, name: &str) -> Vec<f64> {
        let rows = self.out.lines().filter_map(|line| line.trim().strip_prefix(name));
        let mut rows = rows.filter(|row| row.starts_with(' '));
        let row = rows.next().unwrap_or_else(|| panic!("no row {name:?}: {self:?}"));
        row.split_whitespace().filter_map(|cell| cell.parse().ok()).collect()
    }
}

/// A sale that is still selling when it is interfered with.
struct LongSale {
    process: Child,
    dir: tempfile::TempDir,
}

impl LongSale {
    fn start(command: &mut Command) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        command.args(["--stock", "100000", "--buyers", "100000", "--processes", "2"]);
        let process = start(command, dir.path());
        let sale = Self { process, dir };
        eventually("the sale begins", || sale.said().contains("orders"));
        // Into the middle of it; whether it is 200 ms or 2 s into it makes no difference.
        sleep(Duration::from_millis(200));
        sale
    }

    fn said(&self) -> String {
        let read = |name| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        read("err") + &read("out")
    }
}

impl Drop for LongSale {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(command: &mut Command, dir: &Path) -> Child {
    let file = |name| File::create(dir.join(name)).expect("a file");
    let process = command.stdout(file("out")).stderr(file("err")).spawn();
    process.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

fn wait(process: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("a child process") {
            return status;
        }
        if started.elapsed() > PATIENCE {
            let _ = process.kill();
            panic!("not done after {PATIENCE:?}");
        }
        sleep(Duration::from_millis(10));
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "in vain: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// The whole number that follows these words.
fn number_in(text: &str, words: &str) -> u64 {
    let after = text.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {text:?}")).1;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {words:?} in {text:?}"))
}

/// What an example has left in its server.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    keys: usize,
    /// Those of its processes.
    connections: usize,
}

const NOTHING: Left = Left { keys: 0, connections: 0 };

/// One connection asks for both. A second one could count the first: what this process has closed,
/// a process that another test starts meanwhile holds open until it runs its program.
#[tokio::main(flavor = "current_thread")]
async fn left_in(server: &Server) -> Left {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut redis = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut questions = redis::pipe();
    questions.cmd("DBSIZE").cmd("CLIENT").arg("LIST");
    let (keys, clients): (usize, String) =
        questions.query_async(&mut redis).await.expect("an answer");
    Left { keys, connections: clients.lines().count() - 1 }
}
