//! The Lua of a server, and what scripts find there.

use std::fmt;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Value};
use parking_lot::Mutex;

use super::core::{Core, Engine};
use super::dispatch;
use super::number;
use super::reply::{Failure, Reply};
use super::script::{Ran, Script};
use super::settings::Version;
use super::sha1::sha1_hex;
use super::values::{error_table, returned, value};

/// Where scripts run.
pub(super) struct LuaEngine {
    lua: Lua,
    /// Where scripts find the server while one runs.
    slot: Arc<Mutex<Core>>,
    run: Function,
    protect: Function,
}

/// What scripts find beside Lua's own. An error is raised here: one that comes from outside of Lua is
/// no table.
const PRELUDE: &str = include_str!("prelude.lua");

impl LuaEngine {
    pub(super) fn new(version: Version) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let slot = Arc::new(Mutex::new(Core::default()));
        let redis = lua.create_table()?;
        let core = slot.clone();
        redis.set("call", lua.create_function(move |lua, args| call(lua, &core, args, true))?)?;
        let core = slot.clone();
        redis.set("pcall", lua.create_function(move |lua, args| call(lua, &core, args, false))?)?;
        let core = slot.clone();
        redis.set(
            "setresp",
            lua.create_function(move |_, version: i64| {
                if let Some(script) = &mut core.lock().script {
                    script.resp3 = version == 3;
                }
                Ok(())
            })?,
        )?;
        redis.set(
            "sha1hex",
            lua.create_function(|lua, text: LuaString| {
                lua.create_string(sha1_hex(&text.as_bytes()))
            })?,
        )?;
        redis.set("where", lua.create_function(|lua, ()| Ok(line_of_script(lua)))?)?;
        redis.set(
            "text",
            lua.create_function(|_, error: mlua::Error| {
                Ok(error
                    .downcast_ref::<Raised>()
                    .map_or_else(|| error.to_string(), |raised| raised.0.clone()))
            })?,
        )?;
        let core = slot.clone();
        redis.set(
            "random",
            lua.create_function(move |_, ()| {
                Ok(core.lock().script.as_mut().map_or(0, |script| next_random(&mut script.random)))
            })?,
        )?;
        let core = slot.clone();
        redis.set(
            "seed",
            lua.create_function(move |_, seed: f64| {
                if let Some(script) = &mut core.lock().script {
                    script.random = (u64::from(seed as i64 as u32) << 16) + 0x330E;
                }
                Ok(())
            })?,
        )?;
        let is_old = version == Version::Redis62;
        let prelude = lua.load(PRELUDE).set_name("=prelude").into_function()?;
        let (run, protect) = prelude.call((redis, is_old, version.of_redis()))?;
        Ok(Self { lua, slot, run, protect })
    }

    fn ran(&self, script: &Script, keys: &[&[u8]], argv: &[&[u8]]) -> mlua::Result<Ran> {
        let table = |words: &[&[u8]]| {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            for (at, word) in words.iter().enumerate() {
                table.raw_set(at + 1, self.lua.create_string(word)?)?;
            }
            Ok::<_, mlua::Error>(table)
        };
        let (ok, value, line): (bool, Value, Option<i64>) =
            self.run.call((&script.function, table(keys)?, table(argv)?))?;
        if ok {
            let core = self.slot.lock();
            let resp3 = core.script.as_ref().is_some_and(|script| script.resp3);
            return Ok(Ran::Returned(returned(&value, resp3, core.digits())?));
        }
        let text = match &value {
            Value::String(text) => text.to_string_lossy(),
            other => format!("{other:?}"),
        };
        Ok(Ran::Failed { text, line })
    }
}

impl Engine for LuaEngine {
    fn compile(&self, body: &[u8]) -> Result<Script, String> {
        let chunk = self.lua.load(body).set_name("@user_script").set_mode(ChunkMode::Text);
        let function = chunk.into_function().map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })?;
        let function = self.protect.call(function).map_err(|error| error.to_string())?;
        Ok(Script { function, only_reads: false })
    }

    fn run(&self, core: &mut Core, script: &Script, keys: &[&[u8]], argv: &[&[u8]]) -> Ran {
        std::mem::swap(&mut *self.slot.lock(), core);
        let ran = self.ran(script, keys, argv);
        std::mem::swap(&mut *self.slot.lock(), core);
        ran.unwrap_or_else(|error| Ran::Failed { text: error.to_string(), line: None })
    }
}

/// The error that `redis.call` raises.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// `redis.call`, or `redis.pcall`, whose errors are values.
fn call(lua: &Lua, slot: &Mutex<Core>, args: MultiValue, raises: bool) -> mlua::Result<Value> {
    let mut bytes = Vec::with_capacity(64);
    let mut ends = Vec::with_capacity(args.len());
    let mut is_readable = true;
    for arg in args {
        match arg {
            Value::String(text) => bytes.extend_from_slice(&text.as_bytes()),
            Value::Integer(number) if number.unsigned_abs() < 100_000_000_000_000_000 => {
                bytes.extend_from_slice(number.to_string().as_bytes());
            }
            Value::Integer(number) => {
                bytes.extend_from_slice(number::general(number as f64, 17).as_bytes());
            }
            Value::Number(number) => {
                bytes.extend_from_slice(number::general(number, 17).as_bytes());
            }
            _ => is_readable = false,
        }
        ends.push(bytes.len());
    }
    let mut start = 0;
    let words: Vec<&[u8]> = ends
        .iter()
        .map(|end| {
            let word = &bytes[start..*end];
            start = *end;
            word
        })
        .collect();
    let mut core = slot.lock();
    let old = core.version() == Version::Redis62;
    let refused =
        |text: &str| Err(Failure::from(if old { text.to_owned() } else { format!("ERR {text}") }));
    let reply = if words.is_empty() {
        refused("Please specify at least one argument for this redis lib call")
    } else if !is_readable && old {
        refused("Lua redis() command arguments must be strings or integers")
    } else if !is_readable {
        refused("Lua redis lib command arguments must be strings or integers")
    } else {
        dispatch::request_of_script(&mut core, &words)
    };
    let resp3 = core.script.as_ref().is_some_and(|script| script.resp3);
    drop(core);
    let error = match reply {
        Ok(Reply::Error(Failure(text))) => text.into_owned(),
        Ok(reply) => return value(lua, reply, resp3),
        Err(Failure(text)) if old => {
            let code = text.split(' ').next().unwrap_or_default();
            let dash = if code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
                "-"
            } else {
                ""
            };
            format!("@user_script: {}: {dash}{text}", line_of_script(lua).unwrap_or(0))
        }
        Err(Failure(text)) => text.into_owned(),
    };
    if raises { Err(mlua::Error::external(Raised(error))) } else { error_table(lua, &error) }
}

/// The line of the script that is at work.
fn line_of_script(lua: &Lua) -> Option<usize> {
    let at = |level| {
        lua.inspect_stack(level, |debug| {
            let is_script = debug.source().source.is_some_and(|source| source == "@user_script");
            is_script.then(|| debug.current_line()).flatten()
        })
    };
    (0..).map_while(at).flatten().next()
}

/// Redis's own numbers that look random: the same in each script.
fn next_random(state: &mut u64) -> i64 {
    *state = state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & 0xFFFF_FFFF_FFFF;
    (*state >> 17) as i64
}
