//! How values go into a script, and out of it.

use std::fmt;

use mlua::{Lua, Table, Value};

use super::reply::{Digits, Failure, Reply};
use super::settings::Version;

/// An error that a function of `redis` raises.
#[derive(Debug)]
pub(super) struct Raised {
    pub(super) text: String,
    /// It is one of a command.
    pub(super) is_counted: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// What the table of an error has if it was counted already.
pub(super) const COUNTED: &str = "ignore_error_stats_update";

/// What a script returns, as an answer, and the errors in it that were not counted yet.
pub(super) fn returned(
    value: &Value,
    resp3: bool,
    version: Version,
    errors: &mut Vec<Failure>,
) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(&text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::Boolean(yes) if resp3 => Reply::Bool(*yes),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => returned_table(table, resp3, version, errors)?,
        _ => Reply::Nil,
    })
}

/// As C does it on most processors.
fn truncated(number: f64) -> i64 {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    if (-TOO_LARGE..TOO_LARGE).contains(&number) { number as i64 } else { i64::MIN }
}

fn returned_table(
    table: &Table,
    resp3: bool,
    version: Version,
    errors: &mut Vec<Failure>,
) -> mlua::Result<Reply> {
    let is_old = version == Version::Redis62;
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.to_string_lossy()),
        _ => None,
    };
    let plain = |text: &str| text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ");
    if let Some(error) = text(&table.raw_get("err")?) {
        let text = if is_old { None } else { error.strip_prefix('-') };
        let failure = Failure::from(plain(text.unwrap_or(&error)));
        if !table.raw_get::<bool>(COUNTED)? {
            errors.push(failure.clone());
        }
        return Ok(Reply::Error(failure));
    }
    if let Some(status) = text(&table.raw_get("ok")?) {
        return Ok(Reply::Status(plain(&status).into()));
    }
    match table.raw_get("double")? {
        Value::Number(number) => return Ok(Reply::Double(number, Digits::of_version(version))),
        Value::Integer(number) => {
            return Ok(Reply::Double(number as f64, Digits::of_version(version)));
        }
        _ => {}
    }
    if let Some(number) = text(&table.raw_get("big_number")?).filter(|_| !is_old) {
        return Ok(Reply::BigNumber(plain(&number)));
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && !is_old
    {
        let (format, text): (Value, Value) =
            (verbatim.raw_get("format")?, verbatim.raw_get("string")?);
        if let (Value::String(format), Value::String(text)) = (format, text) {
            let mut name = *b"   ";
            name.iter_mut().zip(format.as_bytes().iter()).for_each(|(to, from)| *to = *from);
            return Ok(Reply::Verbatim(name, text.as_bytes().to_vec()));
        }
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let pairs = map.pairs::<Value, Value>().map(|pair| {
            let (key, value) = pair?;
            Ok((returned(&key, resp3, version, errors)?, returned(&value, resp3, version, errors)?))
        });
        return pairs.collect::<mlua::Result<_>>().map(Reply::Map);
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let members =
            set.pairs::<Value, Value>().map(|pair| returned(&pair?.0, resp3, version, errors));
        return members.collect::<mlua::Result<_>>().map(Reply::Set);
    }
    let mut all = Vec::new();
    loop {
        match table.raw_get(all.len() + 1)? {
            Value::Nil => break,
            value => all.push(returned(&value, resp3, version, errors)?),
        }
    }
    Ok(Reply::Array(all))
}

pub(super) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// An answer as a script sees it.
pub(super) fn value(lua: &Lua, reply: Reply, resp3: bool) -> mlua::Result<Value> {
    let field = |name: &str, value: Value| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    let sequence = |all: Vec<Reply>| {
        let table = lua.create_table_with_capacity(all.len(), 0)?;
        for (at, one) in all.into_iter().enumerate() {
            table.raw_set(at + 1, value(lua, one, resp3)?)?;
        }
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Bulk(bytes) => text(&bytes),
        Reply::Nil | Reply::NilArray if resp3 => Ok(Value::Nil),
        Reply::Nil | Reply::NilArray | Reply::Later => Ok(Value::Boolean(false)),
        Reply::Status(status) => field("ok", text(status.as_bytes())?),
        Reply::Error(Failure(error)) => error_table(lua, &error).map(Value::Table),
        Reply::Text(said) if !resp3 => text(said.as_bytes()),
        Reply::Verbatim(_, bytes) if !resp3 => text(&bytes),
        Reply::Text(said) => {
            let table = lua.create_table()?;
            table.raw_set("format", "txt")?;
            table.raw_set("string", text(said.as_bytes())?)?;
            field("verbatim_string", Value::Table(table))
        }
        Reply::Verbatim(format, bytes) => {
            let table = lua.create_table()?;
            table.raw_set("format", text(&format)?)?;
            table.raw_set("string", text(&bytes)?)?;
            field("verbatim_string", Value::Table(table))
        }
        Reply::Map(pairs) if resp3 => {
            let table = lua.create_table()?;
            for (key, one) in pairs {
                table.raw_set(value(lua, key, resp3)?, value(lua, one, resp3)?)?;
            }
            field("map", Value::Table(table))
        }
        Reply::Map(pairs) => {
            sequence(pairs.into_iter().flat_map(|(key, one)| [key, one]).collect())
        }
        Reply::Set(all) if resp3 => {
            let table = lua.create_table()?;
            for one in all {
                table.raw_set(value(lua, one, resp3)?, true)?;
            }
            field("set", Value::Table(table))
        }
        Reply::In(_, one) => value(lua, *one, resp3),
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) | Reply::Many(all) => sequence(all),
        Reply::Double(number, _) if resp3 => field("double", Value::Number(number)),
        Reply::Double(number, digits) => text(digits.of(number).as_bytes()),
        Reply::Bool(yes) if resp3 => Ok(Value::Boolean(yes)),
        Reply::Bool(yes) => Ok(Value::Number(f64::from(u8::from(yes)))),
        Reply::BigNumber(digits) if resp3 => field("big_number", text(digits.as_bytes())?),
        Reply::BigNumber(digits) => text(digits.as_bytes()),
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
