//! What a script finds in `redis` and `math`, beside the calls of commands. What may raise an error is
//! no function of Lua's, so that the error is where it was called.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};
use parking_lot::Mutex;

use super::core::Core;
use super::settings::Version;
use super::sha1::sha1_hex;
use super::values::{Raised, caller, code_of, error_table};

type Slot = Arc<Mutex<Core>>;

/// The tables `redis` and `math`, as far as they are not Lua's own.
pub(super) fn tables(lua: &Lua, slot: &Slot, version: Version) -> mlua::Result<(Table, Table)> {
    let (redis, math) = (lua.create_table()?, lua.create_table()?);
    let fail = move |text: &str| {
        let text = format!("{}{text}", code_of(version));
        mlua::Error::external(Raised(text))
    };
    let sha1hex = lua.create_function(move |lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(fail("wrong number of arguments"));
        }
        lua.create_string(sha1_hex(&text(args.front())))
    })?;
    redis.set("sha1hex", sha1hex)?;
    let wrong = move |lua: &Lua| {
        let text = "wrong number or type of arguments";
        let before = match version {
            Version::Redis62 => format!("{}: ", caller(lua)),
            _ => code_of(version).to_owned(),
        };
        error_table(lua, &format!("{before}{text}"))
    };
    let status_reply = lua.create_function(move |lua, args: MultiValue| {
        let Some(Value::String(text)) = args.front().filter(|_| args.len() == 1) else {
            return wrong(lua);
        };
        let table = lua.create_table()?;
        table.raw_set("ok", text)?;
        Ok(table)
    })?;
    redis.set("status_reply", status_reply)?;
    let error_reply = lua.create_function(move |lua, args: MultiValue| {
        let Some(Value::String(text)) = args.front().filter(|_| args.len() == 1) else {
            return wrong(lua);
        };
        let text = text.to_string_lossy();
        if version == Version::Redis62 {
            return error_table(lua, &text);
        }
        let text = text.strip_prefix('-').unwrap_or(&text);
        let code = if text.contains(' ') { "" } else { "ERR " };
        error_table(lua, &format!("{code}{text}"))
    })?;
    redis.set("error_reply", error_reply)?;
    redis.set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.set("REDIS_VERSION", version.of_redis())?;
    let core = slot.clone();
    let random = lua.create_function(move |_, (low, high): (Option<f64>, Option<f64>)| {
        let fraction = (core.lock().random() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn(fraction, low, high).ok_or_else(|| fail("interval is empty"))
    })?;
    math.set("random", random)?;
    math.set("randomseed", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok((redis, math))
}

/// The whole number at that fraction of an interval, or the fraction without one. `None` if the interval is empty.
fn drawn(fraction: f64, low: Option<f64>, high: Option<f64>) -> Option<f64> {
    let (low, high) = match (low, high) {
        (None, _) => return Some(fraction),
        (Some(high), None) => (1.0, high),
        (Some(low), Some(high)) => (low, high),
    };
    if low > high { None } else { Some((fraction * (high - low + 1.0)).floor() + low) }
}

fn text(value: Option<&Value>) -> Vec<u8> {
    match value {
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(Value::Integer(number)) => number.to_string().into_bytes(),
        Some(Value::Number(number)) => number.to_string().into_bytes(),
        _ => Vec::new(),
    }
}
