//! The Lua of a server, and what scripts find there.

use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Value};
use parking_lot::Mutex;

use super::api;
use super::core::{Core, Engine};
use super::dispatch;
use super::reply::{Digits, Failure, Reply};
use super::script::{Ran, Script};
use super::settings::Version;
use super::values::{Raised, caller, code_of, error_table, returned, value};

/// Where scripts run.
pub(super) struct LuaEngine {
    lua: Lua,
    version: Version,
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
        let (redis, math) = api::tables(&lua, &slot, version)?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let core = slot.clone();
            let function = lua.create_function(move |lua, args| call(lua, &core, args, raises))?;
            redis.set(name, function)?;
        }
        redis.set("where", lua.create_function(|lua, ()| Ok(line_of_script(lua)))?)?;
        let raised = |_: &Lua, error: mlua::Error| {
            Ok(match error.downcast_ref::<Raised>() {
                Some(Raised(text)) => text.clone(),
                None => error.to_string(),
            })
        };
        redis.set("raised", lua.create_function(raised)?)?;
        let prelude = lua.load(PRELUDE).set_name("=prelude").into_function()?;
        let (run, protect) = prelude.call((redis, math, code_of(version)))?;
        Ok(Self { lua, version, slot, run, protect })
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
            self.run.call((&script.0, table(keys)?, table(argv)?))?;
        if ok {
            return Ok(Ran::Returned(returned(&value, self.version)?));
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
        self.protect.call(function).map(Script).map_err(|error| error.to_string())
    }

    fn run(&self, core: &mut Core, script: &Script, keys: &[&[u8]], argv: &[&[u8]]) -> Ran {
        std::mem::swap(&mut *self.slot.lock(), core);
        let ran = self.ran(script, keys, argv);
        std::mem::swap(&mut *self.slot.lock(), core);
        ran.unwrap_or_else(|error| Ran::Failed { text: error.to_string(), line: None })
    }
}

/// `redis.call`, or `redis.pcall`, whose errors are values.
fn call(lua: &Lua, slot: &Mutex<Core>, args: MultiValue, raises: bool) -> mlua::Result<Value> {
    let digits = slot.lock().digits();
    let mut bytes = Vec::with_capacity(64);
    let mut ends = Vec::with_capacity(args.len());
    let mut is_readable = true;
    for arg in args {
        match arg {
            Value::String(text) => bytes.extend_from_slice(&text.as_bytes()),
            Value::Integer(number) => {
                bytes.extend_from_slice(written(number as f64, digits).as_bytes())
            }
            Value::Number(number) => bytes.extend_from_slice(written(number, digits).as_bytes()),
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
    let reply = if words.is_empty() || !is_readable {
        refused(&no_command(words.is_empty(), core.version()))
    } else {
        dispatch::request_of_script(&mut core, &words)
    };
    drop(core);
    let error = match reply {
        Ok(Reply::Error(Failure(text))) => text.into_owned(),
        Ok(reply) => return value(lua, reply),
        Err(Failure(text)) if old => {
            let code = text.split(' ').next().unwrap_or_default();
            // An error as it would be sent, then.
            let is_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
            let (before, behind) = if is_code { ("-", "\r\n") } else { ("", "") };
            format!("{}: {before}{text}{behind}", caller(lua))
        }
        Err(Failure(text)) => text.into_owned(),
    };
    if raises {
        return Err(mlua::Error::external(Raised(error)));
    }
    error_table(lua, &error).map(Value::Table)
}

/// Why the arguments are no command: there are none, or one of them is no word.
fn no_command(is_empty: bool, version: Version) -> String {
    let (of_what, whose) = match version {
        Version::Redis62 => ("redis.call()", "Lua redis() command"),
        Version::Valkey91 => ("this call", "Command"),
        _ => ("this redis lib call", "Lua redis lib command"),
    };
    if is_empty {
        format!("Please specify at least one argument for {of_what}")
    } else {
        format!("{whose} arguments must be strings or integers")
    }
}

/// A number as an argument of a command.
fn written(number: f64, digits: Digits) -> String {
    let whole = number as i64;
    if whole as f64 == number && (digits == Digits::Shortest || whole.unsigned_abs() < 1 << 53) {
        return whole.to_string();
    }
    digits.of(number)
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
