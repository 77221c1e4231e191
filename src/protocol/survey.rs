//! Looks at locks: at one of a name, or at all whose names have a pattern, one server after the other.
//!
//! **A survey leaves the server to others.** It measures, by the server's own clock, how long its requests take there,
//! and pauses between them, so that they are one part in [`SERVER_TIME_DIVISOR`] of the time. It has one page at a time
//! in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Pipeline, Value, from_redis_value};

use super::sight::{
    FIRST_LOOK_COMMANDS, HINT_COMMANDS, Sight, command, connected_clients, first_look, first_sight,
    hint, may_be_a_lock, text, time,
};
use super::{Call, Names};
use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::join::join_all;
use crate::peer::{Peer, Peers};
use crate::transport::{Node, Router, Unread, unread};

/// A survey takes one part in this many of a server's time, as far as the server's clock shows it. The time to receive
/// and to send comes on top of that.
const SERVER_TIME_DIVISOR: u32 = 100;

/// How many keys the server looks at for one answer to `SCAN`.
const SCAN_COUNT: &str = "200";

/// The most locks at which the client looks with one batch of commands.
const LOCKS_PER_LOOK: usize = 100;

/// The most clients of a server for whose list a warning asks.
const LONGEST_LIST: u32 = 1_000;

/// Locks, what the list of the server's clients says if it was asked for, and the server's time in microseconds.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) locks: Vec<(Names, Sight)>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) now: Option<u64>,
}

impl Seen {
    fn is_held(&self) -> bool {
        self.locks.iter().any(|(_, sight)| !sight.holders.is_empty())
    }
}

impl Call<'_> {
    /// Looks at one lock, in one round trip if there is nothing to see, else in two. `knows` says of which clients the
    /// caller knows where they are: if they are all, the server is not asked for its list. Nor is it without `knows`.
    pub(crate) async fn look_at(
        &self,
        names: Names,
        knows: Option<impl Fn(&str) -> bool + Send + Sync>,
    ) -> Result<Option<Seen>, Error> {
        let first = self.read_all(&names, first_look(&names), 3).await?;
        let Some(mut sight) = first_sight(&first) else { return Err(not_a_lock(names.key())) };
        if sight.is_nothing() {
            return Ok(None);
        }
        let mut commands = vec![command(&["TIME"])];
        let asks = knows.is_some_and(|knows| {
            sight.holders.iter().any(|holder| !knows(holder.client())) || sight.has_queue()
        });
        commands.push(if asks { command(&["CLIENT", "LIST"]) } else { command(&["TIME"]) });
        commands.extend(sight.second_look(&names));
        let mut answers = self.read_all(&names, commands, 0).await?.into_iter();
        let now = answers.next().as_ref().and_then(time);
        let peers = answers.next().and_then(|list| text(list.extract_error()));
        sight.add(&mut answers);
        if sight.holders.is_empty() && sight.waiting.is_empty() {
            return Ok(None);
        }
        let peers = peers.filter(|_| asks).map(|list| Peers::of(&list)).unwrap_or_default();
        Ok(Some(Seen { locks: vec![(names, sight)], peers: peers.into(), now }))
    }

    /// Where a client is that has a lock, if its server says so. Not if the list would be long: each of many clients that
    /// wait for one lock may ask for it.
    pub(crate) async fn whereabouts(&self, names: &Names, client: &str) -> Option<Peer> {
        let all = self.read_all(names, vec![command(&["INFO", "clients"])], 0).await.ok()?.pop()?;
        if connected_clients(all).is_some_and(|many| many > LONGEST_LIST) {
            return None;
        }
        let list = self.read_all(names, vec![command(&["CLIENT", "LIST"])], 0).await.ok()?.pop()?;
        Peers::of(&text(Ok(list))?).take(client)
    }

    /// Sends commands about one lock at once. Fails if one of the first `needed` is refused, and else goes without
    /// the answer.
    async fn read_all(
        &self,
        names: &Names,
        commands: Vec<Cmd>,
        needed: usize,
    ) -> Result<Vec<Value>, Error> {
        let read = |cmd| async move {
            let mut request = self.request(None, cmd, names.key());
            Ok(self.router.call(&mut None, &mut request).await?.value)
        };
        let answers: Vec<Result<_, Error>> = join_all(commands.into_iter().map(read)).await;
        let answers = answers.into_iter().enumerate().map(|(at, answer)| match answer {
            Err(error) if at >= needed && error.kind() != ErrorKind::Unavailable => Ok(Value::Nil),
            answer => answer,
        });
        answers.collect()
    }
}

/// Where a survey is.
pub(crate) struct Survey {
    /// The pattern for `MATCH`, with the prefix of the client.
    pattern: String,
    prefix: String,
    /// The servers yet to be looked at; `None` before the first request.
    servers: Option<VecDeque<Arc<Node>>>,
    at: Option<At>,
    /// The keys of the last answer at which it has yet to look.
    keys: VecDeque<String>,
    /// Those that another server of the cluster has, or is about to have: a slot moves, or has just moved.
    elsewhere: Vec<Names>,
    /// What it has seen there, or why it has not.
    ready: VecDeque<Result<Seen, Error>>,
    /// For how long its last requests have kept the server busy.
    owes: Duration,
    /// When the next request may be sent.
    not_before: Option<Instant>,
}

/// Where it is at one server.
struct At {
    node: Arc<Node>,
    /// The connection on which the cursor was given: another one may lead to a server that was restarted.
    connection: Option<u64>,
    /// `None` at the end.
    cursor: Option<String>,
    peers: Option<Arc<Peers>>,
    /// It has refused a command about a key for now, and the survey has said so.
    has_refused: bool,
    /// A server did not answer that has keys which this one lists.
    has_silent_neighbour: bool,
}

impl Survey {
    /// A survey of the locks whose names have the pattern, with the prefix that they have in Redis.
    pub(crate) fn new(prefix: &str, pattern: &str) -> Self {
        let special = |c: &char| ['*', '?', '[', ']', '\\'].contains(c);
        let escape = |c: char| special(&c).then_some('\\').into_iter().chain([c]);
        let pattern = prefix.chars().flat_map(escape).chain(pattern.chars()).collect();
        Self {
            pattern,
            prefix: prefix.to_owned(),
            servers: None,
            at: None,
            keys: VecDeque::new(),
            elsewhere: Vec::new(),
            ready: VecDeque::new(),
            owes: Duration::ZERO,
            not_before: None,
        }
    }

    /// The next locks; `None` at the end. After an error the survey goes on.
    pub(crate) async fn next(&mut self, router: &Router) -> Option<Result<Seen, Error>> {
        loop {
            if let Some(seen) = self.ready.pop_front() {
                return Some(seen);
            }
            if let Some(at) = self.not_before.take() {
                clock::sleep_until(at).await;
            }
            let page = match self.page(router).await {
                Ok(Some(page)) => page,
                Ok(None) => return None,
                Err(error) => {
                    // At a server that does not answer there is nothing more to see.
                    (self.at, self.servers) = (None, Some(self.servers.take().unwrap_or_default()));
                    self.keys.clear();
                    self.elsewhere.clear();
                    return Some(Err(error));
                }
            };
            let owes = std::mem::take(&mut self.owes);
            self.not_before = Some(
                clock::now()
                    + owes.saturating_mul(SERVER_TIME_DIVISOR - 1).min(router.answer_timeout()),
            );
            if !page.locks.is_empty() {
                return Some(Ok(page));
            }
        }
    }

    /// The locks among the next keys, if any; `None` at the end.
    async fn page(&mut self, router: &Router) -> Result<Option<Seen>, Error> {
        let deadline = clock::now() + router.answer_timeout();
        if self.servers.is_none() {
            self.servers = Some(router.primaries(deadline).await?.into());
        }
        if !self.elsewhere.is_empty() {
            self.look_elsewhere(router, deadline).await;
            return Ok(Some(Seen::default()));
        }
        while self.keys.is_empty() {
            if self.at.as_ref().is_none_or(|at| at.cursor.is_none()) {
                let next = self.servers.as_mut().and_then(VecDeque::pop_front);
                let Some(node) = next else { return Ok(None) };
                let (connection, cursor, peers) = (None, Some("0".into()), None);
                let (has_refused, has_silent_neighbour) = (false, false);
                self.at =
                    Some(At { node, connection, cursor, peers, has_refused, has_silent_neighbour });
            }
            self.scan(router).await?;
            if self.keys.is_empty() {
                // A pause comes before the next request.
                return Ok(Some(Seen::default()));
            }
        }
        self.look(router).await.map(Some)
    }

    /// Asks for the next keys.
    async fn scan(&mut self, router: &Router) -> Result<(), Error> {
        let Some(cursor) = self.at.as_ref().and_then(|at| at.cursor.clone()) else { return Ok(()) };
        let words = ["SCAN", &cursor, "MATCH", &self.pattern, "COUNT", SCAN_COUNT, "TYPE", "hash"];
        let answer = self.read(router, vec![command(&words)]).await?.into_iter().next();
        let Some(at) = &mut self.at else { return Ok(()) };
        let answer = answer.unwrap_or(Value::Nil).extract_error();
        let answer = answer.map_err(|error| router.read_refused(&at.node, "`SCAN`", error))?;
        let (cursor, keys): (String, Vec<Vec<u8>>) =
            from_redis_value(answer).map_err(|_| unexpected())?;
        at.cursor = Some(cursor).filter(|cursor| cursor != "0");
        // A name is a text.
        self.keys.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
        Ok(())
    }

    /// Looks at the next of the keys.
    async fn look(&mut self, router: &Router) -> Result<Seen, Error> {
        let many = self.keys.len().min(LOCKS_PER_LOOK);
        let keys = self.keys.drain(..many);
        let names =
            keys.filter_map(|key| Some(Names::new(&self.prefix, key.strip_prefix(&self.prefix)?)));
        // In a cluster no client can lock the others.
        let names: Vec<Names> = names.filter(|names| names.check(router).is_ok()).collect();
        let hints = self.read(router, names.iter().flat_map(hint).collect()).await?;
        let hints = hints.chunks(HINT_COMMANDS);
        let hinted = self.answered(router, names, hints, &["`HRANDFIELD`", "`HGET`"])?;
        let hinted = hinted.into_iter().filter(|(_, hints)| may_be_a_lock(hints));
        let names: Vec<Names> = hinted.map(|(names, _)| names).collect();
        if names.is_empty() {
            return Ok(Seen::default());
        }
        let first = self.read(router, names.iter().flat_map(first_look).collect()).await?;
        let first = first.chunks(FIRST_LOOK_COMMANDS);
        let seen = self.answered(router, names, first, &["`HSCAN`", "`HGET`", "`PTTL`"])?;
        let locks =
            seen.into_iter().filter_map(|(names, answers)| Some((names, first_sight(answers)?)));
        // The others were released meanwhile.
        let mut locks: Vec<_> = locks.filter(|(_, sight)| !sight.holders.is_empty()).collect();
        if locks.is_empty() {
            return Ok(Seen::default());
        }
        let known = self.at.as_ref().and_then(|at| at.peers.clone());
        let mut commands = vec![command(&["TIME"])];
        commands.extend(known.is_none().then(|| command(&["CLIENT", "LIST"])));
        commands.extend(locks.iter_mut().flat_map(|(names, sight)| sight.second_look(names)));
        let needs_time = locks.iter().any(|(_, sight)| sight.needs_time());
        if let (Some(peers), [_], false) = (&known, &*commands, needs_time) {
            return Ok(Seen { locks, peers: peers.clone(), now: None });
        }
        let mut answers = self.read(router, commands).await?.into_iter();
        let now = answers.next().as_ref().and_then(time);
        let peers = known.unwrap_or_else(|| {
            let list = answers.next().and_then(|list| text(list.extract_error()));
            Arc::new(list.map(|list| Peers::of(&list)).unwrap_or_default())
        });
        locks.iter_mut().for_each(|(_, sight)| sight.add(&mut answers));
        if let Some(at) = &mut self.at {
            at.peers = Some(peers.clone());
        }
        Ok(Seen { locks, peers, now })
    }

    /// Those of the names of which the server has answered the commands that it must answer, with the answers about each.
    /// Leaves out what the user may not read, what is no hash, and what the server cannot serve now; what is at another
    /// server it looks at there. Fails if the user may not run a command.
    fn answered<'a>(
        &mut self,
        router: &Router,
        names: Vec<Names>,
        answers: impl Iterator<Item = &'a [Value]>,
        commands: &[&str],
    ) -> Result<Vec<(Names, &'a [Value])>, Error> {
        let mut answered = Vec::new();
        for (names, answers) in names.into_iter().zip(answers) {
            let refused = commands.iter().zip(answers).find_map(|(command, answer)| {
                let error = matches!(answer, Value::ServerError(_)).then(|| answer.clone());
                Some((command, error?.extract_error().err()?))
            });
            let Some((command, error)) = refused else {
                answered.push((names, answers));
                continue;
            };
            match unread(&error) {
                Unread::Elsewhere if self.at.as_ref().is_some_and(|at| at.has_silent_neighbour) => {
                }
                Unread::Elsewhere => self.elsewhere.push(names),
                Unread::Key => {}
                why => {
                    let Some(at) = &mut self.at else { continue };
                    let error = router.read_refused(&at.node, command, error);
                    if why == Unread::Command {
                        return Err(error);
                    }
                    if !std::mem::replace(&mut at.has_refused, true) {
                        self.ready.push_back(Err(error));
                    }
                }
            }
        }
        Ok(answered)
    }

    /// Looks at each of the locks that are at another server, by way of the one that is responsible.
    async fn look_elsewhere(&mut self, router: &Router, deadline: Instant) {
        let names = std::mem::take(&mut self.elsewhere);
        let asked = clock::now();
        let looks = names.into_iter().map(|names| async move {
            let call = Call::new(router, deadline);
            let hints = call.read_all(&names, hint(&names).into(), HINT_COMMANDS).await?;
            if !may_be_a_lock(&hints) {
                return Ok(None);
            }
            // Without the list of that server's clients: there can be many such locks.
            call.look_at(names, None::<fn(&str) -> bool>).await
        });
        for seen in join_all(looks).await {
            match seen {
                Ok(seen) => self.ready.extend(seen.filter(Seen::is_held).map(Ok)),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    let Some(at) = &mut self.at else { continue };
                    if !std::mem::replace(&mut at.has_silent_neighbour, true) {
                        self.ready.push_back(Err(error));
                    }
                }
                // It is no lock any more, or the user may not read it.
                Err(_) => {}
            }
        }
        // They kept servers busy for no longer than this took.
        self.owes += clock::now().saturating_duration_since(asked);
    }

    /// Sends commands to the server at which the survey is, and measures for how long they keep it busy.
    async fn read(&mut self, router: &Router, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let Some(at) = &mut self.at else { return Ok(Vec::new()) };
        let clock = command(&["TIME"]);
        let mut all = Pipeline::with_capacity(commands.len() + 2);
        all.add_command(clock.clone());
        for command in commands {
            all.add_command(command);
        }
        all.add_command(clock);
        let asked = clock::now();
        let deadline = asked + router.answer_timeout();
        let (mut answers, connection) = router.read(&at.node, &all, deadline).await?;
        if at.connection.replace(connection).is_some_and(|before| before != connection) {
            let message = "the connection broke on which the client looked at all locks";
            return Err(Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message));
        }
        let end = answers.pop().as_ref().and_then(time);
        let begin = if answers.is_empty() { None } else { time(&answers.remove(0)) };
        // A user who may not ask for the time: it took no longer than the answer.
        let took =
            begin.zip(end).map(|(begin, end)| Duration::from_micros(end.saturating_sub(begin)));
        self.owes += took.unwrap_or_else(|| clock::now().saturating_duration_since(asked));
        Ok(answers)
    }
}

fn not_a_lock(key: &str) -> Error {
    let message = format!(
        "the key `{key}` holds something that is not a lock; \
         give the lock another name, or the client a `name_prefix`"
    );
    Error::new(ErrorKind::NotALock, Outcome::NotExecuted, message)
}

fn unexpected() -> Error {
    super::unexpected("SCAN", &Value::Nil)
}
