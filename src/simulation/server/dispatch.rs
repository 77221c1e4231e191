//! Finds the command of a request, looks whether it may be carried out now, and calls it.

use super::call::{Call, wrong_arity};
use super::command::{BUSY, CONTAINER, Command, GROWS, LOADING, NO_SCRIPT, STALE, WRITE};
use super::core::Core;
use super::reply::{Failure, Reply, printed};
use super::settings::Version;

/// What a client may ask while it listens, in the older version of the protocol.
const WHILE_LISTENING: [&str; 6] =
    ["ping", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "quit"];

/// What a Sentinel may be asked beside its own commands.
const SENTINELS: [&str; 11] = [
    "acl",
    "auth",
    "client",
    "hello",
    "info",
    "ping",
    "publish",
    "quit",
    "role",
    "subscribe",
    "unsubscribe",
];

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Carries out a request of a client, or refuses it. False if it has to wait.
pub(super) fn request(core: &mut Core, client: u64, args: &[&[u8]]) -> bool {
    let millis = core.millis();
    core.client(client).active = millis;
    let known = lookup(core, args);
    core.client(client).last_command = known.as_ref().map_or("NULL", |command| command.name);
    let checked = known.and_then(|command| {
        let command = fitting(command, args, core.version())?;
        check(core, client, command, args)?;
        Ok(command)
    });
    if checked.as_ref().is_ok_and(|command| core.pauses(command)) {
        core.client(client).is_paused = true;
        return false;
    }
    let reply = checked.map_or_else(Reply::Error, |command| run(core, client, command, args));
    core.end_unit(Some(client));
    if let Reply::Error(failure) = &reply {
        core.count_error(failure);
    }
    if reply != Reply::Later {
        core.send(client, &reply);
    }
    // What it hears behind its answer.
    let pushes = std::mem::take(&mut core.own_pushes);
    pushes.iter().for_each(|push| core.send(client, push));
    true
}

/// The command of that name, if it may have so many words.
pub(super) fn find(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    fitting(lookup(core, args)?, args, core.version())
}

fn lookup(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    let version = core.version();
    let named = |name: &[u8]| super::BY_NAME.get(name).copied().filter(|command| core.has(command));
    let mut name = [0; 64];
    let end = append(&mut name, 0, args[0]);
    let Some(mut command) = named(&name[..end]) else { return Err(unknown(args, version)) };
    if command.is(CONTAINER) && args.len() > 1 {
        let bar = append(&mut name, end, b"|");
        let end = append(&mut name, bar, args[1]);
        command = match named(&name[..end]) {
            // The container says that it is none.
            found if version == Version::Redis62 => {
                found.filter(|found| found.fits(args.len(), version)).unwrap_or(command)
            }
            found => found.ok_or_else(|| unknown_subcommand(args))?,
        };
    }
    Ok(command)
}

/// The command, if it may have so many words.
fn fitting(
    command: &'static Command,
    args: &[&[u8]],
    version: Version,
) -> Result<&'static Command, Failure> {
    if command.fits(args.len(), version) {
        return Ok(command);
    }
    Err(wrong_arity(command.name, version))
}

/// Writes a word in lower case, as far as there is room. Returns where it ends.
fn append(name: &mut [u8; 64], at: usize, word: &[u8]) -> usize {
    let end = (at + word.len()).min(name.len());
    name[at..end].copy_from_slice(&word[..end - at]);
    name[at..end].make_ascii_lowercase();
    end
}

fn unknown(args: &[&[u8]], version: Version) -> Failure {
    let quoted = |word: &[u8]| printed(&word[..word.len().min(128)]);
    let name = quoted(args[0]);
    let mut words = String::new();
    for arg in &args[1..] {
        if words.len() >= 128 {
            break;
        }
        let arg = &arg[..arg.len().min(128 - words.len())];
        words += &match version {
            Version::Redis62 => format!("`{}`, ", quoted(arg)),
            _ => format!("'{}' ", quoted(arg)),
        };
    }
    Failure::from(match version {
        Version::Redis62 => {
            format!("ERR unknown command `{name}`, with args beginning with: {words}")
        }
        _ => format!("ERR unknown command '{name}', with args beginning with: {words}"),
    })
}

fn unknown_subcommand(args: &[&[u8]]) -> Failure {
    let container = printed(args[0]).to_ascii_uppercase();
    let name = printed(&args[1][..args[1].len().min(128)]);
    Failure::from(format!("ERR unknown subcommand '{name}'. Try {container} HELP."))
}

/// Whether the client may have this carried out now.
fn check(
    core: &mut Core,
    client: u64,
    command: &'static Command,
    args: &[&[u8]],
) -> Result<(), Failure> {
    let version = core.version();
    let asks = core.client(client);
    let listens = asks.listens();
    if !asks.is_known && !command.is_open(version) {
        return Err("NOAUTH Authentication required.".into());
    }
    core.permitted(client, command, args).map_err(|denied| denied.words(command, client, core))?;
    core.redirect(client, command, args)?;
    if core.memory_is_short() && command.is(GROWS) {
        return Err(OOM.into());
    }
    if command.is(WRITE) {
        core.may_write()?;
    }
    if listens && !WHILE_LISTENING.contains(&command.name) {
        let name = shown(command, version);
        let kinds = if version == Version::Redis62 { "P" } else { "P|S" };
        return Err(format!(
            "ERR Can't execute '{name}': only ({kinds})SUBSCRIBE / ({kinds})UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
        .into());
    }
    core.state_allows(command.is(STALE), command.is(LOADING), command.is(BUSY))
}

/// How an error calls a command.
fn shown(command: &Command, version: Version) -> &'static str {
    match command.name.split_once('|') {
        Some((container, _)) if version == Version::Redis62 => container,
        _ => command.name,
    }
}

/// Carries a command out.
fn run(core: &mut Core, client: u64, command: &'static Command, args: &[&[u8]]) -> Reply {
    let (db, resp3) = match &core.script {
        Some(script) => (script.db, false),
        None => {
            let client = core.client(client);
            (client.db, client.resp3)
        }
    };
    let mut call = Call { core, command, args, client, db, resp3 };
    let reply = (super::TABLE[command.index].run)(&mut call).unwrap_or_else(Reply::Error);
    core.calls[command.index] += 1;
    reply
}

/// A request of the script that runs. The error is about one that was not carried out.
pub(super) fn request_of_script(core: &mut Core, args: &[&[u8]]) -> Result<Reply, Failure> {
    let old = core.version() == Version::Redis62;
    let command = find(core, args).map_err(|failure| {
        let whose = if core.version().is_valkey() { "" } else { "Redis " };
        Failure::from(match (failure.0.starts_with("ERR unknown"), old) {
            (true, true) => "Unknown Redis command called from Lua script".to_owned(),
            (false, true) => "Wrong number of args calling Redis command From Lua script".into(),
            (true, false) => format!("ERR Unknown {whose}command called from script"),
            (false, false) => {
                format!("ERR Wrong number of args calling {whose}command from script")
            }
        })
    })?;
    let script = core.script.as_ref().expect("BUG: no script runs");
    let (client, has_written) = (script.client, script.has_written);
    // Later versions do not wait there.
    let may_wait = command.name == "wait" && core.version() > Version::Redis70;
    if command.is(NO_SCRIPT) && !may_wait {
        return Err(match core.version() {
            Version::Redis62 => "This Redis command is not allowed from scripts",
            Version::Valkey91 => "ERR This Valkey command is not allowed from script",
            _ => "ERR This Redis command is not allowed from script",
        }
        .into());
    }
    let is_short = core.memory_is_short() && command.is(GROWS) && !has_written;
    if is_short && core.version().is_valkey() {
        return Err(OOM.into());
    }
    core.permitted(client, command, args)
        .map_err(|denied| denied.in_script(command, client, core))?;
    if command.is(WRITE) && !has_written {
        core.may_write()?;
    }
    if is_short {
        return Err(OOM.into());
    }
    if command.is(WRITE)
        && let Some(script) = &mut core.script
    {
        script.has_written = true;
    }
    core.redirect_in_script(command, args)?;
    Ok(run(core, client, command, args))
}

impl Core {
    /// Whether such a server has that command.
    fn has(&self, command: &Command) -> bool {
        let is_of_sentinel = command.name.starts_with("sentinel");
        if self.is_sentinel {
            let container = command.name.split('|').next().unwrap_or(command.name);
            return is_of_sentinel || SENTINELS.contains(&container);
        }
        !is_of_sentinel && (self.version() >= Version::Redis80 || command.is_in(self.version()))
    }

    /// Whether clients are paused for such a command.
    fn pauses(&self, command: &Command) -> bool {
        let writes =
            command.is(WRITE) || ["eval", "evalsha", "publish", "spublish"].contains(&command.name);
        self.pause
            .is_some_and(|(until, only_writes)| until > self.millis() && (writes || !only_writes))
    }

    /// Has clients go on that are not paused any more.
    pub(super) fn end_pause(&mut self) -> Vec<u64> {
        let now = self.millis();
        if self.pause.is_none_or(|(until, _)| until > now) {
            return Vec::new();
        }
        self.pause = None;
        let paused = self.clients.iter_mut().filter(|(_, client)| client.is_paused);
        paused
            .map(|(client, paused)| {
                paused.is_paused = false;
                *client
            })
            .collect()
    }

    fn count_error(&mut self, failure: &Failure) {
        let code = failure.0.split(' ').next().unwrap_or_default();
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }
}
