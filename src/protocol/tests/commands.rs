//! The table of commands, against examples and against the server's own table.

use redis::Value;

use super::super::commands::{COMMANDS, Keys, keys_of};
use super::server::Server;

fn keys(command: &str) -> Option<String> {
    let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
    let keys = keys_of(&words)?;
    Some(keys.iter().map(|key| str::from_utf8(key).unwrap()).collect::<Vec<_>>().join(" "))
}

#[test]
fn the_keys_of_a_command_are_where_its_kind_has_them() {
    for (command, expected) in [
        ("SET k v EX 10", "k"),
        ("decrby k 2", "k"),
        ("RENAME a b", "a b"),
        ("DEL a b c", "a b c"),
        ("MSET a 1 b 2", "a b"),
        ("BITOP AND to a b", "to a b"),
        ("XGROUP CREATE s g 0", "s"),
        ("ZUNION 2 a b WITHSCORES", "a b"),
        ("ZUNIONSTORE to 2 a b WEIGHTS 1 2", "a b to"),
        ("PUBLISH channel text", ""),
        ("SPUBLISH channel text", ""),
    ] {
        assert_eq!(keys(command).as_deref(), Some(expected), "{command}");
    }
}

#[test]
fn a_command_is_refused_whose_keys_are_not_known() {
    for command in [
        "BLPOP q 0",
        "SUBSCRIBE c",
        "MULTI",
        "EXEC",
        "WATCH k",
        "EVAL s 0",
        "SELECT 1",
        "FLUSHALL",
        "SORT k BY w_*",
        "XREAD STREAMS s 0",
        "JSON.SET k $ 1",
        "SETT k v",
        "",
        "SET",
        "RENAME a",
        "SPUBLISH",
        "DEL",
        "ZUNION x a",
        "ZUNION 3 a b",
        "ZUNION 18446744073709551615 a",
        "CLIENT INFO",
    ] {
        assert_eq!(keys(command), None, "{command}");
    }
}

#[test]
fn a_command_is_in_the_table_once() {
    let mut names: Vec<&str> =
        COMMANDS.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
    let many = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), many);
}

#[test]
fn the_server_has_the_keys_there_and_lets_a_script_run_the_command() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut known = 0;
    for (keys, names) in COMMANDS {
        for name in names.split_whitespace() {
            let mut ask = redis::cmd("COMMAND");
            let info: Vec<Value> = ask.arg("INFO").arg(name).query(&mut connection).unwrap();
            // Not every version knows every command.
            let Some(Value::Array(info)) = info.first() else { continue };
            known += 1;
            let flags: Vec<String> = redis::from_redis_value_ref(&info[2]).unwrap();
            let has = |flag: &str| flags.iter().any(|one| one == flag);
            assert!(!has("noscript") && !has("blocking"), "{name}: {flags:?}");
            let at = |field: usize| redis::from_redis_value_ref::<i64>(&info[field]).unwrap();
            let (first, last, step) = (at(3), at(4), at(5));
            let expected = match keys {
                Keys::None => (0, 0, 0),
                // Its parts have them.
                Keys::At(2, 2) => continue,
                // The server counts it among the keys, but asks for no permission for that.
                Keys::Channel => (1, 1, 1),
                Keys::At(first, last) => (first as i64, last as i64, 1),
                Keys::From(first, step) => (first as i64, -1, step as i64),
                Keys::Counted(..) => {
                    assert!(has("movablekeys"), "{name}: {flags:?}");
                    continue;
                }
            };
            assert_eq!((first, last, step), expected, "{name}");
        }
    }
    assert!(known > 100, "{known}");
}
