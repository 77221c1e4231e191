//! Finds the command of a request, looks whether it may be carried out now, and calls it.

use super::call::{Call, wrong_arity};
use super::client::{Blocked, Queue, Wants};
use super::command::{
    ADMIN, BUSY, CONTAINER, Command, GROWS, LOADING, MAY_REPLICATE, NO_AUTH, NO_MULTI, NO_SCRIPT,
    READ, STALE, WRITE,
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
            let of_client = core.client(client);
            match &mut of_client.queue {
                Some(Queue { requests, is_broken }) if !UNQUEUED.contains(&command.name) => {
                    // There will be no EXEC otherwise.
                    if !*is_broken && !of_client.is_dirty {
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
    if let Some(queue) = &mut core.client(client).queue {
        queue.is_broken = true;
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

/// Sends an answer, if the client wants it.
fn answer(core: &mut Core, client: u64, reply: &Reply) {
    let Some(to) = core.clients.get_mut(&client) else { return };
    to.wants = match to.wants {
        Wants::SkipsNext => Wants::SkipsThis,
        Wants::SkipsThis => Wants::All,
        Wants::None => return,
        Wants::All => {
            if *reply != Reply::Later {
                core.send(client, reply);
            }
            let pushes = std::mem::take(&mut core.own_pushes);
            pushes.iter().for_each(|push| core.send(client, push));
            return;
        }
    }
}

/// The command of that name, if it may have so many words.
pub(super) fn find(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    fitting(lookup(core, args)?, args, core.version())
}

fn lookup(core: &Core, args: &[&[u8]]) -> Result<&'static Command, Failure> {
    let version = core.version();
    let named = |name: &[u8]| {
        let at = core.table.binary_search_by(|one| one.name.as_bytes().cmp(name)).ok()?;
        Some(&core.table[at])
    };
    let mut name = [0; 64];
    let end = append(&mut name, 0, args[0]);
    let Some(mut command) = named(&name[..end]) else { return Err(unknown(args, version)) };
    if command.is(CONTAINER) && args.len() > 1 {
        let bar = append(&mut name, end, b"|");
        let end = append(&mut name, bar, args[1]);
        command = named(&name[..end]).ok_or_else(|| unknown_subcommand(args, version))?;
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
    if version == Version::Redis62 && command.name.contains('|') {
        return Err(unknown_subcommand(args, version));
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

fn unknown_subcommand(args: &[&[u8]], version: Version) -> Failure {
    let container = printed(args[0]).to_ascii_uppercase();
    let name = printed(&args[1][..args[1].len().min(128)]);
    Failure::from(match version {
        Version::Redis62 => format!(
            "ERR Unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        ),
        _ => format!("ERR unknown subcommand '{name}'. Try {container} HELP."),
    })
}

/// Whether the client may have this carried out now.
fn check(
    core: &mut Core,
    client: u64,
    command: &'static Command,
    args: &[&[u8]],
) -> Result<(), Failure> {
    let asks = core.client(client);
    let in_queue = asks.queue.is_some();
    let listens = asks.listens();
    if !asks.is_known && !command.is(NO_AUTH) {
        return Err("NOAUTH Authentication required.".into());
    }
    if in_queue && command.is(NO_MULTI) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    let user = core.client(client).user.clone();
    core.permitted(&user, command, args).map_err(|denied| denied.words(command, &user, core))?;
    core.redirect(client, command, args)?;
    let mut flags = core.flags_of(command, args);
    if command.name == "exec" {
        flags |= core.flags_of_queue(client);
    }
    let queues = in_queue && !["exec", "discard", "quit", "reset"].contains(&command.name);
    if core.memory_is_short() && (flags & GROWS != 0 || queues) {
        return Err(OOM.into());
    }
    if flags & WRITE != 0 {
        core.may_write()?;
    }
    if listens && !WHILE_LISTENING.contains(&command.name) {
        let name = shown(command, core.version());
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
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
    core.calls[command.index] += 1;
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
    if let Err(failure) = &reply {
        core.count_error(failure);
    }
    reply
}

fn script_call(core: &mut Core, args: &[&[u8]]) -> Result<Reply, Failure> {
    let old = core.version() == Version::Redis62;
    let command = find(core, args).map_err(|failure| {
        let known = !failure.0.starts_with("ERR unknown");
        Failure::from(match (known, old) {
            (true, true) => "Wrong number of args calling Redis command From Lua script",
            (true, false) => "ERR Wrong number of args calling Redis command from script",
            (false, true) => "Unknown Redis command called from Lua script",
            (false, false) => "ERR Unknown Redis command called from script",
        })
    })?;
    let script = core.script.as_ref().expect("BUG: no script runs");
    let (client, only_reads, has_written) = (script.client, script.only_reads, script.has_written);
    let allows_oom = script.allows_oom;
    if command.is(NO_SCRIPT) {
        return Err(if old {
            "This Redis command is not allowed from scripts".into()
        } else {
            "ERR This Redis command is not allowed from script".into()
        });
    }
    let user = core.client(client).user.clone();
    core.permitted(&user, command, args)
        .map_err(|denied| denied.in_script(command, &user, core))?;
    if only_reads && command.flags & (WRITE | MAY_REPLICATE) != 0 {
        return Err("ERR Write commands are not allowed from read-only scripts.".into());
    }
    if command.is(WRITE) && !has_written {
        core.may_write()?;
    }
    if core.memory_is_short() && command.is(GROWS) && !has_written && !allows_oom {
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
