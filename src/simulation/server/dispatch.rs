//! Finds the command of a request, looks whether it may be carried out now, and calls it.

use super::call::{Call, wrong_arity};
use super::client::{Blocked, Queue, Wants};
use super::command::{
    ADMIN, BUSY, CONTAINER, Command, GROWS, LOADING, MAY_REPLICATE, NO_MULTI, NO_SCRIPT, READ,
    STALE, WRITE,
};
use super::core::Core;
use super::reply::{Failure, Reply, printed};
use super::settings::Version;

/// What came of a request.
pub(super) enum Outcome {
    Done,
    /// It has to be looked at again later.
    Waits,
}

/// Commands that are carried out, not queued, in a transaction.
const UNQUEUED: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];

/// What a client may ask while it listens, in the older version of the protocol.
const WHILE_LISTENING: [&str; 9] = [
    "ping",
    "subscribe",
    "ssubscribe",
    "unsubscribe",
    "sunsubscribe",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
];

/// What a Sentinel may be asked beside its own commands.
const SENTINELS: [&str; 15] = [
    "acl",
    "auth",
    "client",
    "command",
    "hello",
    "info",
    "ping",
    "psubscribe",
    "publish",
    "punsubscribe",
    "quit",
    "reset",
    "role",
    "subscribe",
    "unsubscribe",
];

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A request of a client.
pub(super) fn request(core: &mut Core, client: u64, args: &[&[u8]]) -> Outcome {
    let millis = core.millis();
    core.client(client).active = millis;
    let known = lookup(core, args);
    core.client(client).last_command = known.as_ref().map_or("NULL", |command| command.name);
    let checked = known.and_then(|command| {
        let command = fitting(command, args, core.version())?;
        check(core, client, command, args)?;
        Ok(command)
    });
    let reply = match checked {
        Err(failure) => Reply::Error(refused(core, client, args, failure)),
        Ok(command) => {
            if core.pauses(command, client) {
                core.client(client).blocked = Some(Blocked::Paused);
                return Outcome::Waits;
            }
            let old = core.version() == Version::Redis62;
            let of_client = core.client(client);
            match &mut of_client.queue {
                Some(Queue { requests, is_broken }) if !UNQUEUED.contains(&command.name) => {
                    // There will be no EXEC otherwise.
                    if !*is_broken && (old || !of_client.is_dirty) {
                        requests.push(args.iter().map(|arg| arg.to_vec()).collect());
                    }
                    Reply::Status("QUEUED".into())
                }
                _ => run(core, client, command, args, false),
            }
        }
    };
    core.end_unit(Some(client));
    answer(core, client, &reply);
    Outcome::Done
}

/// Takes note of a request that is not carried out, which ends a transaction. Returns the error.
fn refused(core: &mut Core, client: u64, args: &[&[u8]], failure: Failure) -> Failure {
    let is_valkey = core.version().is_valkey();
    if let Some(queue) = &mut core.client(client).queue {
        queue.is_broken = true;
        if is_valkey {
            queue.requests.clear();
        }
    }
    let failure = if args[0].eq_ignore_ascii_case(b"exec") {
        core.discard(client);
        let why = failure.0.trim_start_matches("ERR ");
        Failure::from(format!("EXECABORT Transaction discarded because of: {why}"))
    } else {
        failure
    };
    core.count_error(&failure);
    failure
}

/// Sends an answer, if the client wants it, and what it hears behind it.
fn answer(core: &mut Core, client: u64, reply: &Reply) {
    let pushes = std::mem::take(&mut core.own_pushes);
    let Some(to) = core.clients.get_mut(&client) else { return };
    let wanted = to.wants == Wants::All;
    to.wants = match to.wants {
        Wants::SkipsNext => Wants::SkipsThis,
        Wants::SkipsThis => Wants::All,
        other => other,
    };
    if wanted && *reply != Reply::Later {
        core.send(client, reply);
    }
    pushes.iter().for_each(|push| core.send(client, push));
}

/// The command of that name, if it may have so many words.
pub(super) fn find(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    fitting(lookup(core, args)?, args, core.version())
}

fn lookup(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    let version = core.version();
    let named = |name: &[u8]| {
        let at = core.table.binary_search_by(|one| one.name.as_bytes().cmp(name)).ok()?;
        Some(&core.table[at]).filter(|command| core.has(command))
    };
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
    let in_queue = asks.queue.is_some();
    let listens = asks.listens();
    if !asks.is_known && !command.is_open(version) {
        return Err("NOAUTH Authentication required.".into());
    }
    if in_queue && version.is_valkey() && ["multi", "watch"].contains(&command.name) {
        let name = command.name;
        return Err(format!("ERR Command '{name}' not allowed inside a transaction").into());
    }
    if in_queue && command.is(NO_MULTI) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    core.permitted(client, command, args).map_err(|denied| denied.words(command, client, core))?;
    core.redirect(client, command, args)?;
    let mut flags = core.flags_of(command, args);
    if command.name == "exec" {
        flags |= core.flags_of_queue(client);
    }
    // Up to Redis 7.0 a queue counts as data that grows.
    let queues = in_queue
        && version <= Version::Redis70
        && !["exec", "discard", "quit", "reset"].contains(&command.name);
    if core.memory_is_short() && (flags & GROWS != 0 || queues) {
        return Err(OOM.into());
    }
    if flags & WRITE != 0 {
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
    core.state_allows(flags & STALE != 0, command.is(LOADING), command.is(BUSY))
}

/// How an error calls a command.
fn shown(command: &Command, version: Version) -> &'static str {
    match command.name.split_once('|') {
        Some((container, _)) if version == Version::Redis62 => container,
        _ => command.name,
    }
}

/// Carries a command out.
pub(super) fn run(
    core: &mut Core,
    client: u64,
    command: &'static Command,
    args: &[&[u8]],
    in_unit: bool,
) -> Reply {
    let (db, resp3) = match &core.script {
        Some(script) => (script.db, script.resp3),
        None => {
            let client = core.client(client);
            (client.db, client.resp3)
        }
    };
    let mut call = Call { core, command, args, client, db, resp3, in_unit };
    let reply = (super::TABLE[command.index].run)(&mut call).unwrap_or_else(Reply::Error);
    // Redis 6.2 does not take it for a command.
    if command.name != "quit" || core.version() > Version::Redis62 {
        core.calls[command.index] += 1;
    }
    let is_counted = std::mem::take(&mut core.error_is_counted);
    if let Reply::Error(failure) = &reply
        && !is_counted
    {
        core.count_error(failure);
    }
    reply
}

/// A request of the script that runs. The error is about one that was not carried out.
pub(super) fn request_of_script(core: &mut Core, args: &[&[u8]]) -> Result<Reply, Failure> {
    let reply = script_call(core, args);
    if let Err(failure) = &reply
        && core.version() > Version::Redis62
    {
        let is_denied = core.version().is_valkey() && failure.0.starts_with("ERR ACL failure");
        let denied = Failure::from("NOPERM in a script");
        core.count_error(if is_denied { &denied } else { failure });
    }
    reply
}

fn script_call(core: &mut Core, args: &[&[u8]]) -> Result<Reply, Failure> {
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
    let (client, only_reads, has_written) = (script.client, script.only_reads, script.has_written);
    let allows_oom = script.allows_oom;
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
    core.permitted(client, command, args)
        .map_err(|denied| denied.in_script(command, client, core))?;
    let is_short = core.memory_is_short() && command.is(GROWS) && !has_written && !allows_oom;
    if is_short && core.version().is_valkey() {
        return Err(OOM.into());
    }
    if only_reads && command.flags & (WRITE | MAY_REPLICATE) != 0 {
        return Err("ERR Write commands are not allowed from read-only scripts.".into());
    }
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
    core.redirect_in_script(client, command, args)?;
    Ok(run(core, client, command, args, true))
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

    /// The flags of all commands that a transaction has.
    fn flags_of_queue(&mut self, client: u64) -> u32 {
        let queue = self.clients.get(&client).and_then(|client| client.queue.as_ref());
        let requests = queue.map(|queue| &queue.requests[..]).unwrap_or_default();
        let flags = requests.iter().map(|request| {
            let words: Vec<&[u8]> = request.iter().map(|word| &**word).collect();
            find(self, &words).map_or(0, |command| self.flags_of(command, &words))
        });
        flags.fold(0, |all, flags| all | flags) & (READ | WRITE | GROWS | ADMIN | MAY_REPLICATE)
    }

    /// Whether clients are paused for such a command.
    fn pauses(&mut self, command: &Command, client: u64) -> bool {
        let Some((until, only_writes)) = self.pause else { return false };
        if until <= self.millis() {
            return false;
        }
        let mut flags = command.flags;
        if command.name == "exec" {
            flags |= self.flags_of_queue(client);
        }
        !only_writes || flags & (WRITE | MAY_REPLICATE) != 0
    }

    pub(super) fn count_error(&mut self, failure: &Failure) {
        let code = failure.0.split_once(' ').map_or("ERR", |(code, _)| code);
        let code = &*code.replace(['#', ':', '\n', '\r'], "_");
        match self.errors.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(self.errors.insert(code.to_owned(), 1)),
        }
    }
}
