//! Commands about the connection of a client, and about other clients.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{BUSY, CONTAINER, LOADING, NO_AUTH, NO_KEYS, NO_SCRIPT, STALE};
use super::core::DBS;
use super::number;
use super::reply::{Answer, OK, Reply};
use super::settings::Version;

const OPEN: u32 = NO_AUTH | LOADING | STALE | BUSY | NO_SCRIPT;
const MINE: u32 = NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 10] = [
    command("hello", -1, OPEN, NO_KEYS, hello),
    command("ping", -1, 0, NO_KEYS, ping),
    command("echo", 2, LOADING | STALE, NO_KEYS, |call| Ok(Reply::bulk(call.arg(1)))),
    command("select", 2, LOADING | STALE, NO_KEYS, select),
    command("quit", -1, OPEN, NO_KEYS, |call| {
        call.core.close(call.client);
        Ok(OK)
    }),
    command("client", -2, CONTAINER | MINE, NO_KEYS, no_subcommand),
    command("client|id", 2, MINE, NO_KEYS, |call| {
        let client = call.client;
        Ok(Reply::Int(call.core.client(client).id as i64))
    }),
    command("client|getname", 2, MINE, NO_KEYS, |call| {
        let client = call.client;
        let name = &call.core.client(client).name;
        Ok(Reply::maybe(Some(&**name).filter(|name| !name.is_empty())))
    }),
    command("client|setname", 3, MINE, NO_KEYS, setname),
    command("client|setinfo", 4, MINE, NO_KEYS, setinfo),
];

fn hello(call: &mut Call<'_>) -> Answer {
    let client = call.client;
    let mut resp3 = None;
    if call.many() > 1 {
        let unreadable = "ERR Protocol version is not an integer or out of range";
        resp3 = match number::integer(call.arg(1)).ok_or(unreadable)? {
            2 => Some(false),
            3 => Some(true),
            _ => return Err("NOPROTO unsupported protocol version".into()),
        };
    }
    // Up to Redis 7.0 each option counts at once, whatever is wrong with those behind it.
    let at_once = call.version() <= Version::Redis70;
    let (mut at, mut user) = (2, None);
    while at < call.many() {
        match (&*call.option(at), call.many() - at - 1) {
            ("auth", 2..) => {
                let (its_name, password) = (call.text(at + 1), call.text(at + 2));
                if at_once {
                    call.core.authenticate(client, &its_name, &password)?;
                } else {
                    user = Some((its_name, password));
                }
                at += 2;
            }
            _ => return Err(format!("ERR Syntax error in HELLO option '{}'", call.text(at)).into()),
        }
        at += 1;
    }
    if let Some((user, password)) = user
        && let Err(failure) = call.core.authenticate(client, &user, &password)
    {
        return call.core.refusal(client, failure);
    }
    if !call.core.client(client).is_known {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    if let Some(resp3) = resp3 {
        call.core.client(client).resp3 = resp3;
    }
    Ok(greeting(call))
}

/// What a server says of itself.
fn greeting(call: &mut Call<'_>) -> Reply {
    let text = |text: &str| Reply::bulk(text.as_bytes());
    let (client, version) = (call.client, call.version());
    let (id, resp3) = (call.core.client(client).id, call.core.client(client).resp3);
    let mode = call.core.mode();
    let role = if call.core.is_replica() { "replica" } else { "master" };
    let module = |name: &str, path: &str| {
        Reply::Array(vec![Reply::Map(vec![
            (text("name"), text(name)),
            (text("ver"), Reply::Int(1)),
            (text("path"), text(path)),
            (text("args"), Reply::Array(Vec::new())),
        ])])
    };
    // Those that are built in.
    let modules = match version {
        Version::Redis80 => module("vectorset", ""),
        Version::Valkey91 => module("lua", "lua"),
        _ => Reply::Array(Vec::new()),
    };
    Reply::Map(vec![
        (text("server"), text(version.name())),
        (text("version"), text(version.own())),
        (text("proto"), Reply::Int(if resp3 { 3 } else { 2 })),
        (text("id"), Reply::Int(id as i64)),
        (text("mode"), text(mode)),
        (text("role"), text(role)),
        (text("modules"), modules),
    ])
}

fn ping(call: &mut Call<'_>) -> Answer {
    if call.many() > 2 {
        return Err(call.wrong_arity());
    }
    let word = call.args.get(1).map(|word| Reply::bulk(word));
    let client = call.client;
    if call.core.client(client).listens() {
        return Ok(Reply::Array(vec![
            Reply::bulk(b"pong"),
            word.unwrap_or_else(|| Reply::bulk(b"")),
        ]));
    }
    Ok(word.unwrap_or(Reply::Status("PONG".into())))
}

fn select(call: &mut Call<'_>) -> Answer {
    let db = call.int(1)?;
    if call.core.settings.cluster && db != 0 && !call.version().is_valkey() {
        return Err("ERR SELECT is not allowed in cluster mode".into());
    }
    let db =
        usize::try_from(db).ok().filter(|db| *db < DBS).ok_or("ERR DB index is out of range")?;
    let client = call.client;
    match &mut call.core.script {
        Some(script) => script.db = db,
        None => call.core.client(client).db = db,
    }
    Ok(OK)
}

fn setname(call: &mut Call<'_>) -> Answer {
    let (client, name) = (call.client, call.arg(2));
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(
            "ERR Client names cannot contain spaces, newlines or special characters.".into()
        );
    }
    call.core.client(client).name = name.to_vec();
    Ok(OK)
}

fn setinfo(call: &mut Call<'_>) -> Answer {
    let (client, value) = (call.client, call.arg(3).to_vec());
    let of_client = call.core.client(client);
    match &*String::from_utf8_lossy(call.args[2]).to_ascii_lowercase() {
        "lib-name" => of_client.library = value,
        "lib-ver" => of_client.library_version = value,
        _ => return Err(format!("ERR Unrecognized option '{}'", call.text(2)).into()),
    }
    Ok(OK)
}
