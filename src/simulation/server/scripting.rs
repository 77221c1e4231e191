//! Commands that run scripts, and that keep them.

use std::sync::Arc;

use super::call::{Call, Row, command, no_subcommand};
use super::command::{
    BUSY, CONTAINER, Command, GROWS, Keys, MAY_REPLICATE, NO_KEYS, NO_SCRIPT, STALE, WRITE,
};
use super::core::{Core, Engine, Running};
use super::lua::LuaEngine;
use super::reply::{Answer, Failure, OK, Reply};
use super::script::{Ran, Script, Shebang};
use super::settings::Version;
use super::sha1::sha1_hex;

const RUNS: u32 = NO_SCRIPT | STALE | MAY_REPLICATE;
const READS: u32 = NO_SCRIPT | STALE;

pub(super) const COMMANDS: [Row; 9] = [
    command("eval", -3, RUNS, Keys::Counted(2), |call| eval(call, false)),
    command("eval_ro", -3, READS, Keys::Counted(2), |call| eval(call, true)),
    command("evalsha", -3, RUNS, Keys::Counted(2), |call| evalsha(call, false)),
    command("evalsha_ro", -3, READS, Keys::Counted(2), |call| evalsha(call, true)),
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
        let (code, shebang) = if self.version() == Version::Redis62 {
            (body, None)
        } else {
            shebang(body, self.version())?
        };
        let script = self.engine().compile(code).map_err(|error| {
            Failure::from(format!("ERR Error compiling script (new function): {error}"))
        })?;
        let script = Arc::new(Script { shebang, ..script });
        self.scripts.insert(digest, script.clone());
        Ok((digest, script))
    }

    /// The flags of a request, which a script may have instead of those of the command.
    pub(super) fn flags_of(&self, command: &Command, args: &[&[u8]]) -> u32 {
        let shebang = match command.name {
            _ if self.version() == Version::Redis62 => None,
            "eval" | "eval_ro" if args[1].starts_with(b"#!") => {
                match shebang(args[1], self.version()) {
                    Ok((_, shebang)) => shebang,
                    // One of another engine.
                    Err(why) if why.0.contains("scripting engine") => Some(Shebang::default()),
                    Err(_) => None,
                }
            }
            "evalsha" | "evalsha_ro" => self.known(args[1]).and_then(|script| script.shebang),
            _ => None,
        };
        let Some(Shebang { only_reads, allows_oom }) = shebang else { return command.flags };
        let mut flags = command.flags & !(STALE | GROWS | WRITE | MAY_REPLICATE);
        if !only_reads {
            flags |= WRITE;
        }
        if !only_reads && !allows_oom {
            flags |= GROWS;
        }
        flags
    }
}

/// The script without its first line, if that says how to run it, and what it says.
fn shebang(body: &[u8], version: Version) -> Result<(&[u8], Option<Shebang>), Failure> {
    if !body.starts_with(b"#!") {
        return Ok((body, None));
    }
    let end = body.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = String::from_utf8_lossy(&body[..end]).into_owned();
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Failure::from(match version {
            Version::Valkey91 => {
                format!("ERR Could not find scripting engine '{}'", engine.trim_start_matches("#!"))
            }
            _ => format!("ERR Unexpected engine in script shebang: {engine}"),
        }));
    }
    let mut shebang = Shebang::default();
    for word in words {
        let flags = word.strip_prefix("flags=");
        let flags = flags
            .ok_or_else(|| Failure::from(format!("ERR Unknown lua shebang option: {word}")))?;
        for flag in flags.split(',') {
            match flag {
                "no-writes" => shebang.only_reads = true,
                "allow-oom" => shebang.allows_oom = true,
                "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}").into()),
            }
        }
    }
    Ok((&body[end..], Some(shebang)))
}

fn eval(call: &mut Call<'_>, only_reads: bool) -> Answer {
    let keys = keys(call)?;
    let (digest, script) = call.core.learn(call.args[1])?;
    run(call, &digest, &script, keys, only_reads)
}

fn evalsha(call: &mut Call<'_>, only_reads: bool) -> Answer {
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
    run(call, &digest, &script, keys, only_reads)
}

/// How many keys are declared.
fn keys(call: &Call<'_>) -> Result<usize, Failure> {
    let keys = call.int(2)?;
    if keys > call.many() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative".into())
}

fn run(
    call: &mut Call<'_>,
    digest: &Digest,
    script: &Script,
    keys: usize,
    only_reads: bool,
) -> Answer {
    let (args, client) = (call.args, call.client);
    let is_asking = call.core.client(client).was_asking;
    let shebang = script.shebang.unwrap_or_default();
    if only_reads && script.shebang.is_some() && !shebang.only_reads {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    call.core.script = Some(Running {
        db: call.db,
        resp3: false,
        only_reads: only_reads || shebang.only_reads,
        allows_oom: shebang.allows_oom,
        has_written: false,
        is_asking,
        client,
    });
    if call.version() == Version::Redis62 {
        call.core.random_of_scripts = 0x330E;
    }
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
