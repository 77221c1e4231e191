//! How values go into a script, and out of it.

use std::fmt;

use mlua::{Lua, Table, Value};

use super::reply::{Failure, Reply};
use super::settings::Version;

/// An error that a function of `redis` raises.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// What a script returns, as an answer.
pub(super) fn returned(value: &Value, version: Version) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(&text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => returned_table(table, version)?,
        _ => Reply::Nil,
    })
}

/// As C does it on most processors.
fn truncated(number: f64) -> i64 {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    if (-TOO_LARGE..TOO_LARGE).contains(&number) { number as i64 } else { i64::MIN }
}

fn returned_table(table: &Table, version: Version) -> mlua::Result<Reply> {
    let text = |name: &str| {
        Ok::<_, mlua::Error>(match table.raw_get(name)? {
            Value::String(text) => Some(text.to_string_lossy()),
            _ => None,
        })
    };
    let plain = |text: &str| text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ");
    if let Some(error) = text("err")? {
        let is_old = version == Version::Redis62;
        let text = if is_old { None } else { error.strip_prefix('-') };
        return Ok(Reply::Error(plain(text.unwrap_or(&error)).into()));
    }
    if let Some(status) = text("ok")? {
        return Ok(Reply::Status(plain(&status).into()));
    }
    let mut all = Vec::new();
    loop {
        match table.raw_get(all.len() + 1)? {
            Value::Nil => break,
            value => all.push(returned(&value, version)?),
        }
    }
    Ok(Reply::Array(all))
}

pub(super) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// An answer as a script sees it.
pub(super) fn value(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    match reply {
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Bulk(bytes) => text(&bytes),
        Reply::Text(said) => text(said.as_bytes()),
        Reply::Double(number, digits) => text(digits.of(number).as_bytes()),
        Reply::Nil | Reply::NilArray | Reply::Later => Ok(Value::Boolean(false)),
        Reply::Status(status) => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", &*status)?;
            Ok(Value::Table(table))
        }
        Reply::Error(Failure(error)) => error_table(lua, &error).map(Value::Table),
        Reply::Map(pairs) => {
            let all = pairs.into_iter().flat_map(|(key, one)| [key, one]).collect();
            value(lua, Reply::Array(all))
        }
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) | Reply::Many(all) => {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for (at, one) in all.into_iter().enumerate() {
                table.raw_set(at + 1, value(lua, one)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

/// What calls the function that is at work, and its line there.
pub(super) fn caller(lua: &Lua) -> String {
    let caller = lua.inspect_stack(1, |debug| {
        let source = debug.source().source.unwrap_or_default().into_owned();
        (source, debug.current_line().map_or(-1, |line| line as i64))
    });
    let (source, line) = caller.unwrap_or_default();
    format!("{source}: {line}")
}

/// The code that an error of Lua gets.
pub(super) fn code_of(version: Version) -> &'static str {
    if version == Version::Redis62 { "" } else { "ERR " }
}
