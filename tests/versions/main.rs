//! Which servers are let in: Redis from 6.2 on, and others whatever their number. One that is too
//! old is refused at connect, in words that say so.
//!
//! Redis 5.0 and 6.0 are started where `tests/versions/run --fetch` has brought them, and ignored
//! elsewhere. Beside them a server of a few lines, which answers in their words, is always there,
//! and can change its version.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trials.rs"]
mod trials;

mod script;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use redlatch::{Error, ErrorKind, LockClient, Outcome};
use script::{Says, Script};
use support::{Child, Server, child, hold, release, soon};
use trials::trials;

const PASSWORD: &str = "correct-horse-battery";

/// An error that says of an old server that it is one.
#[track_caller]
fn too_old(result: Result<impl Sized, Error>, why: &str) {
    let error = result.err().expect("it was let in");
    assert_eq!(error.kind(), ErrorKind::Server, "{error}");
    let said = format!(": redlatch needs Redis 6.2 or newer, and {why}");
    assert!(error.to_string().ends_with(&said), "{error}");
}

/// Those that a client makes at first: one for the caller's runtime, and one for its own thread.
const CONNECTIONS: u64 = 2;

async fn connect(url: String) -> Result<LockClient, Error> {
    let result = soon("an answer", LockClient::connect(url)).await;
    if let Err(error) = &result {
        assert_eq!(error.outcome(), Outcome::NotExecuted, "{error}");
    }
    result
}

async fn redis_6_0_is_refused_by_its_number() {
    let script = Script::start(Says::VERSION_6_0);
    too_old(connect(script.url(PASSWORD)).await, "this server is Redis 6.0.16");
    assert_eq!(script.heard("HELLO"), 2, "once by the driver, once more for the number");
    // INFO goes together with the question to which the version is the answer.
    assert_eq!((script.heard("EVALSHA"), script.heard("INFO")), (0, 1), "it was used all the same");
}

async fn redis_5_is_refused_because_it_knows_no_hello() {
    let script = Script::start(Says::VERSION_5);
    too_old(connect(script.url(PASSWORD)).await, "this server does not know HELLO");
    assert_eq!(script.heard("HELLO"), 1);
}

async fn servers_of_another_make_are_let_in_whatever_their_number() {
    let script = Script::start(Says::ANOTHER_1_0);
    soon("closing", connect(script.url(PASSWORD)).await.expect("connecting").close()).await;
    assert_eq!(script.heard("HELLO"), 2 * CONNECTIONS);
}

async fn a_server_that_tells_who_it_is_is_asked_no_more() {
    let script = Script::start(Says::VERSION_6_2);
    soon("closing", connect(script.url(PASSWORD)).await.expect("connecting").close()).await;
    let heard = (script.heard("HELLO"), script.heard("CLIENT"));
    // Two of the driver about its library, the name of the connection, and its number.
    assert_eq!(heard, (CONNECTIONS, 4 * CONNECTIONS));
}

async fn a_server_that_has_become_older_is_refused_when_it_is_dialled_again() {
    let script = Script::start(Says::VERSION_6_2);
    let client = connect(script.url(PASSWORD)).await.expect("connecting");
    script.becomes(Says::VERSION_6_0);
    too_old(
        soon("an answer", client.lock("older").is_locked()).await,
        "this server is Redis 6.0.16",
    );
    script.becomes(Says::VERSION_5);
    too_old(
        soon("an answer", client.lock("older").is_locked()).await,
        "this server does not know HELLO",
    );
}

async fn a_server_that_lost_the_command_client_is_let_in_by_its_number() {
    let server = Server::start_with(&["--rename-command", "CLIENT", ""]);
    let client = connect(server.url()).await.expect("connecting");
    release(hold(&client.lock("renamed")).await).await;
    assert!(server.errors("ERR") > 0, "it has the command");
}

async fn a_server_that_lost_the_command_hello_is_refused_and_its_words_are_not_repeated() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]);
    // What it says of itself to whoever is let in, which has the password in it.
    let words = server.try_ask::<()>(&["HELLO", "3", "AUTH", "default", PASSWORD]);
    assert!(words.expect_err("no such command").to_string().contains(PASSWORD));
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}/", server.port());
    too_old(connect(url).await, "this server does not know HELLO");
}

async fn who_may_not_ask_for_its_connection_is_let_in() {
    let server = Server::start();
    server.ask::<()>(&["ACL", "SETUSER", "me", "on", ">p", "~*", "&*", "+@all", "-client"]);
    let url = format!("redis://me:p@127.0.0.1:{}/", server.port());
    let client = connect(url).await.expect("connecting");
    release(hold(&client.lock("forbidden")).await).await;
    assert!(server.errors("NOPERM") > 0, "it may ask");
}

/// In a child whose `redis-server` is an old one.
async fn an_old_server_says_no() {
    let server = Server::start_with(&["--requirepass", PASSWORD]);
    let info: String = server.ask(&["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    child::say(version.expect("a version"));
    match connect(server.url()).await {
        Ok(_) => child::say("it was let in"),
        Err(error) => {
            let said = error.to_string();
            let (_, why) = said.split_once(": ").expect("an address, and why");
            child::say(format!("{:?}: {why}", error.kind()));
        }
    }
}

fn refused_for_real(program: &Path, version: &str, why: &str) {
    let program = program.to_str().expect("a path in UTF-8");
    let variables = [("REDIS_SERVER", program)];
    let mut child = Child::start_with("an_old_server_says_no", "child", &variables);
    assert!(child.hear().starts_with(version), "another version");
    child.hear_that(&format!("Server: redlatch needs Redis 6.2 or newer, and {why}"));
    // Killed in the middle of it, it would leave its server behind.
    assert!(child.ended().success());
}

/// A server that `tests/versions/run` has brought.
fn brought(version: &str) -> Option<PathBuf> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers");
    Some(servers.join(version).join("redis-server")).filter(|program| program.exists())
}

fn real(name: &str, version: &'static str, why: &'static str) -> Trial {
    let program = brought(version);
    let missing = program.is_none();
    let test = move || {
        refused_for_real(&program.expect("not ignored"), version, why);
        Ok(())
    };
    let kind = if missing { "tests/versions/run --fetch brings it" } else { "" };
    Trial::test(name, test).with_ignored_flag(missing).with_kind(kind)
}

fn main() -> ExitCode {
    let mut trials = trials![
        redis_6_0_is_refused_by_its_number,
        redis_5_is_refused_because_it_knows_no_hello,
        servers_of_another_make_are_let_in_whatever_their_number,
        a_server_that_tells_who_it_is_is_asked_no_more,
        a_server_that_has_become_older_is_refused_when_it_is_dialled_again,
        a_server_that_lost_the_command_client_is_let_in_by_its_number,
        a_server_that_lost_the_command_hello_is_refused_and_its_words_are_not_repeated,
        who_may_not_ask_for_its_connection_is_let_in,
    ];
    trials.push(real("a_real_redis_6_0_is_refused", "6.0", "this server is Redis 6.0.16"));
    trials.push(real("a_real_redis_5_is_refused", "5.0", "this server does not know HELLO"));
    if child::role().is_some() {
        trials = trials![an_old_server_says_no,];
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
