//! Commands that run scripts, and that keep them.

use std::sync::Arc;

use super::call::{Call, Row, command, no_subcommand};
use super::command::{BUSY, CONTAINER, Keys, NO_KEYS, NO_SCRIPT, STALE};
use super::core::{Core, Engine, Running};
use super::lua::LuaEngine;
use super::reply::{Answer, Failure, OK, Reply};
use super::script::{Ran, Script};
use super::settings::Version;
use super::sha1::sha1_hex;

const RUNS: u32 = NO_SCRIPT | STALE;

pub(super) const COMMANDS: [Row; 7] = [
    command("eval", -3, RUNS, Keys::Counted(2), eval),
    command("evalsha", -3, RUNS, Keys::Counted(2), evalsha),
    command("script", -2, CONTAINER | NO_SCRIPT, NO_KEYS, no_subcommand),
    command("script|load", 3, NO_SCRIPT | STALE, NO_KEYS, |call| {
        let digest = call.core.learn(call.args[2])?.0;
        Ok(Reply::bulk(&digest))
    }),
    command("script|exists", -3, NO_SCRIPT, NO_KEYS, |call| {
        let known = |digest: &&[u8]| call.core.known(digest).is_some();
        Ok(Reply::Array(
            call.args[2..].iter().map(|digest| Reply::Int(known(digest).into())).collect(),
        ))
    }),
    command("script|flush", -2, NO_SCRIPT, NO_KEYS, |call| {
        let fits =
            call.many() == 2 || call.many() == 3 && ["sync", "async"].contains(&&*call.option(2));
        if !fits {
            return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
        }
        call.core.scripts.clear();
        Ok(OK)
    }),
    command("script|kill", 2, NO_SCRIPT | BUSY, NO_KEYS, |call| {
        if std::mem::take(&mut call.core.is_busy) {
            return Ok(OK);
        }
        Err("NOTBUSY No scripts in execution right now.".into())
    }),
];

type Digest = [u8; 40];

impl Core {
    fn engine(&mut self) -> Arc<dyn Engine> {
        let version = self.version();
        let make = || -> Arc<dyn Engine> {
            Arc::new(LuaEngine::new(version).expect("BUG: Lua cannot be made ready"))
        };
        self.engine.get_or_insert_with(make).clone()
    }

    fn known(&self, digest: &[u8]) -> Option<Arc<Script>> {
        let mut digest: Digest = digest.try_into().ok()?;
        digest.make_ascii_lowercase();
        self.scripts.get(&digest).cloned()
    }

    /// Keeps a script.
    fn learn(&mut self, body: &[u8]) -> Result<(Digest, Arc<Script>), Failure> {
        let digest = sha1_hex(body);
        if let Some(script) = self.scripts.get(&digest) {
            return Ok((digest, script.clone()));
        }
        let script = self.engine().compile(body).map_err(|error| {
            Failure::from(format!("ERR Error compiling script (new function): {error}"))
        })?;
        let script = Arc::new(script);
        self.scripts.insert(digest, script.clone());
        Ok((digest, script))
    }
}

fn eval(call: &mut Call<'_>) -> Answer {
    let keys = keys(call)?;
    let (digest, script) = call.core.learn(call.args[1])?;
    run(call, &digest, &script, keys)
}

fn evalsha(call: &mut Call<'_>) -> Answer {
    let unknown = match call.version() {
        Version::Valkey91 => "NOSCRIPT No matching script.",
        _ => "NOSCRIPT No matching script. Please use EVAL.",
    };
    if call.arg(1).len() != 40 {
        return Err(unknown.into());
    }
    let keys = keys(call)?;
    let script = call.core.known(call.arg(1)).ok_or(unknown)?;
    let mut digest: Digest = call.arg(1).try_into().expect("forty bytes");
    digest.make_ascii_lowercase();
    run(call, &digest, &script, keys)
}

/// How many keys are declared.
fn keys(call: &Call<'_>) -> Result<usize, Failure> {
    let keys = call.int(2)?;
    if keys > call.many() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative".into())
}

fn run(call: &mut Call<'_>, digest: &Digest, script: &Script, keys: usize) -> Answer {
    let (args, client) = (call.args, call.client);
    let is_asking = call.core.client(client).was_asking;
    call.core.script = Some(Running { db: call.db, has_written: false, is_asking, client });
    let engine = call.core.engine();
    let (keys, argv) = args[3..].split_at(keys);
    let ran = engine.run(call.core, script, keys, argv);
    call.core.script = None;
    match ran {
        Ran::Returned(reply) => Ok(reply),
        Ran::Failed { text, line } => Err(failure(&text, line, digest, call.version())),
    }
}

/// The error of a script, as it is told to the client.
fn failure(text: &str, line: Option<i64>, digest: &Digest, version: Version) -> Failure {
    let digest = str::from_utf8(digest).unwrap_or_default();
    let place = line.map_or("@err_handler_def:9".into(), |line| format!("@user_script:{line}"));
    Failure::from(match version {
        Version::Redis62 => {
            format!("ERR Error running script (call to f_{digest}): {place}: {text}")
        }
        Version::Redis70 | Version::Redis80 => format!("{text} script: {digest}, on {place}."),
        Version::Valkey91 => format!("{text} script: on {place}."),
    })
}
