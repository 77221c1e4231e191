//! What Redis has of one lock, read by commands that only read: which those are, and what their answers mean. Pure.
//!
//! A script would see one instant, but a user that may only read can run none. These commands come in one pipeline,
//! and a second one asks for what the first one has found. A hash is a lock under the same rule as in `lua/lib.lua`.

use std::time::Duration;

use redis::{Cmd, RedisResult, Value, from_redis_value, from_redis_value_ref};

use super::{Mode, Names, WRITER};
use crate::token::FencingToken;

/// The most fields of one hash that the client looks at.
const MAX_FIELDS: usize = 512;

/// The most waiting clients of one queue that the client looks at.
const MAX_WAITING_CLIENTS: usize = 100;

/// The most markers of readers that the client looks at, for one lock.
const MAX_MARKERS: usize = 128;

/// Two times that differ by fewer microseconds are those of one waiter: the time at which the oldest waiter of a client
/// came, and the time at which its oldest waiter came that wants to write.
const SAME_WAITER_MICROS: f64 = 1_000.0;

/// How many commands say whether a hash may be a lock.
pub(super) const HINT_COMMANDS: usize = 2;

/// How many commands the first look at one lock has. Each is about one key: while a slot of a cluster moves, a server
/// answers one about several keys only if it has all of them.
pub(super) const FIRST_LOOK_COMMANDS: usize = 6;

/// How many commands of the second look are about the queues of the lock.
const QUEUE_COMMANDS: usize = 3;

/// What a look at one lock has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The remaining lease; zero if the lock is free.
    pub(crate) remaining: Duration,
    /// What it is held for, if it is a read-write lock that is held.
    pub(crate) mode: Option<Mode>,
    pub(crate) holders: Vec<SeenHolder>,
    /// The last fencing token that was drawn.
    pub(crate) token: Option<FencingToken>,
    /// The clients in its queue, the oldest first.
    pub(crate) waiting: Vec<SeenWaiter>,
    /// Whether clients wait in a queue.
    has_queue: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    pub(crate) owner: String,
    pub(crate) count: u32,
    /// What this holder has of a read-write lock.
    pub(crate) mode: Option<Mode>,
    /// What is left of the lease, if this is a reader that has a lease of its own.
    pub(crate) remaining: Option<Duration>,
    /// When Redis granted it the lock in its turn, by the server's clock in microseconds.
    pub(crate) since: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeenWaiter {
    pub(crate) client: String,
    /// When its oldest waiter came, by the server's clock in microseconds.
    pub(crate) since: u64,
    /// What the oldest waiter wants of a read-write lock.
    pub(crate) wants: Option<Mode>,
}

impl SeenHolder {
    /// `None` if the field is none of an owner.
    fn new(field: &str, count: &str, mode: Option<Mode>) -> Option<Self> {
        let writes = mode.is_some() && field.ends_with(WRITER);
        let owner = field.strip_suffix(WRITER).filter(|_| writes).unwrap_or(field);
        let (id, number) = owner.rsplit_once(':')?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_owner = !id.is_empty() && !digits.is_empty();
        if !is_owner || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // A grant has the time of the server for its number.
        let since = (digits.len() < number.len()).then(|| digits.parse().ok()).flatten();
        let mode = mode.map(|_| if writes { Mode::Write } else { Mode::Read });
        let count = count.parse().unwrap_or(0);
        Some(Self { owner: field.to_owned(), count, mode, remaining: None, since })
    }

    /// The id of the client that it is of.
    pub(crate) fn client(&self) -> &str {
        self.owner.split(':').next().unwrap_or_default()
    }
}

/// A command with these words.
pub(super) fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// The commands that say whether a hash may be a lock, as many as [`HINT_COMMANDS`]: they ask for no value but that of
/// `mode`, because those of a hash that is none can be large.
pub(super) fn hint(names: &Names) -> [Cmd; HINT_COMMANDS] {
    [command(&["HRANDFIELD", names.key(), "2"]), command(&["HGET", names.key(), "mode"])]
}

/// Whether a hash may be a lock, from the answers to [`hint`].
pub(super) fn may_be_a_lock(answers: &[Value]) -> bool {
    let [fields, mode] = answers else { return false };
    let fields: Vec<String> = from_redis_value_ref(fields).unwrap_or_default();
    let mode = mode_of(mode);
    let is_owner = |field: &String| SeenHolder::new(field, "1", mode).is_some();
    match mode {
        Some(_) => fields.iter().all(|field| field == "mode" || is_owner(field)),
        None => fields.len() == 1 && fields.iter().all(is_owner),
    }
}

fn mode_of(answer: &Value) -> Option<Mode> {
    match from_redis_value_ref::<String>(answer).ok()?.as_str() {
        "read" => Some(Mode::Read),
        "write" => Some(Mode::Write),
        _ => None,
    }
}

/// The commands of the first look, as many as [`FIRST_LOOK_COMMANDS`].
pub(super) fn first_look(names: &Names) -> Vec<Cmd> {
    let [queue, _] = names.queue_keys_of(false);
    let [rw_queue, _] = names.queue_keys_of(true);
    vec![
        command(&["HSCAN", names.key(), "0", "COUNT", &MAX_FIELDS.to_string()]),
        command(&["HGET", names.key(), "mode"]),
        command(&["PTTL", names.key()]),
        command(&["EXISTS", &queue]),
        command(&["EXISTS", &rw_queue]),
        command(&["GET", &names.token_key()]),
    ]
}

/// What is beside the lock, from the answers of the first look. `None` for what is no lock.
pub(super) fn first_sight(answers: &[Value]) -> Option<Sight> {
    let [fields, mode, ttl, queue, rw_queue, token] = answers else { return None };
    let (cursor, fields): (String, Vec<(String, String)>) = from_redis_value_ref(fields).ok()?;
    let mut sight = Sight {
        remaining: lease(ttl).unwrap_or_default(),
        // A user who may not look there sees the lock alone.
        has_queue: [queue, rw_queue].into_iter().filter_map(number).any(|many| many > 0),
        token: from_redis_value_ref(token).ok().and_then(FencingToken::of),
        ..Sight::default()
    };
    sight.mode = match fields.iter().find(|(field, _)| field == "mode") {
        Some((_, mode)) => Some(mode_of(&Value::BulkString(mode.clone().into_bytes()))?),
        // There are more fields than Redis returns at once: only those of readers are as many.
        None if cursor != "0" => Some(mode_of(mode)?),
        None => None,
    };
    for (field, count) in &fields {
        if field != "mode" {
            sight.holders.push(SeenHolder::new(field, count, sight.mode)?);
        }
    }
    let many = sight.holders.len();
    let is_lock = if sight.mode.is_some() { many > 0 } else { many <= 1 };
    sight.holders.sort_by(|a, b| a.owner.cmp(&b.owner));
    is_lock.then_some(sight)
}

impl Sight {
    /// Whether clients wait in a queue.
    pub(super) fn has_queue(&self) -> bool {
        self.has_queue
    }

    /// Whether one of its holders says when it began.
    pub(super) fn needs_time(&self) -> bool {
        self.holders.iter().any(|holder| holder.since.is_some())
    }

    /// Whether no client has it, and none waits in a queue.
    pub(super) fn is_nothing(&self) -> bool {
        self.holders.is_empty() && !self.has_queue
    }

    /// The readers that have leases of their own, and how many markers each has, as far as they are looked at.
    fn readers(&mut self) -> impl Iterator<Item = (&mut SeenHolder, u32)> {
        let mut left = MAX_MARKERS;
        let read = self.holders.iter_mut().filter(|holder| holder.mode == Some(Mode::Read));
        read.map_while(move |holder| {
            let many = (holder.count as usize).min(left);
            left -= many;
            (many > 0).then_some((holder, many as u32))
        })
    }

    /// The commands of the second look: about the queues, if there are any, and about the leases of readers.
    pub(super) fn second_look(&mut self, names: &Names) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if self.has_queue {
            let most = (MAX_WAITING_CLIENTS - 1).to_string();
            let ([queue, _], [rw_queue, rw_waiting]) =
                (names.queue_keys_of(false), names.queue_keys_of(true));
            let fields = MAX_FIELDS.to_string();
            commands.extend([
                command(&["ZRANGE", &queue, "0", &most, "WITHSCORES"]),
                command(&["ZRANGE", &rw_queue, "0", &most, "WITHSCORES"]),
                command(&["HSCAN", &rw_waiting, "0", "MATCH", "writer:*", "COUNT", &fields]),
            ]);
        }
        for (reader, many) in self.readers() {
            let markers = (1..=many).map(|marker| names.marker_key(&reader.owner, marker));
            commands.extend(markers.map(|marker| command(&["PTTL", &marker])));
        }
        commands
    }

    /// Adds what the answers of the second look say. Takes as many of them as there were commands.
    pub(super) fn add(&mut self, answers: &mut impl Iterator<Item = Value>) {
        if self.has_queue {
            let [queue, rw_queue, writers] = std::array::from_fn::<_, QUEUE_COMMANDS, _>(|_| {
                answers.next().unwrap_or(Value::Nil)
            });
            self.wait(queue, |_, _| None);
            let writers = from_redis_value::<(String, Vec<(String, f64)>)>(writers).ok();
            self.wait(rw_queue, |client, came| {
                let (_, writers) = writers.as_ref()?;
                let field = format!("writer:{client}");
                let first = writers.iter().find(|(name, _)| *name == field).map(|(_, at)| *at);
                let is_first = first.is_some_and(|at| at < came + SAME_WAITER_MICROS);
                Some(if is_first { Mode::Write } else { Mode::Read })
            });
        }
        for (reader, many) in self.readers() {
            let markers = answers.by_ref().take(many as usize);
            reader.remaining = markers.filter_map(|ttl| lease(&ttl)).max();
        }
    }

    /// These clients wait, too, since those times.
    fn wait(&mut self, queue: Value, wants: impl Fn(&str, f64) -> Option<Mode>) {
        let queue: Vec<(String, f64)> = from_redis_value(queue).unwrap_or_default();
        self.waiting.extend(queue.into_iter().map(|(client, came)| {
            let wants = wants(&client, came);
            SeenWaiter { client, since: came as u64, wants }
        }));
    }
}

/// What is left of a lease, from an answer to `PTTL`; the longest time of all if it has no end.
fn lease(answer: &Value) -> Option<Duration> {
    number(answer).map(|ttl| match u64::try_from(ttl) {
        Ok(millis) => Duration::from_millis(millis),
        Err(_) if ttl == -1 => Duration::MAX,
        // There is none any more.
        Err(_) => Duration::ZERO,
    })
}

fn number(answer: &Value) -> Option<i64> {
    if let Value::Int(number) = answer { Some(*number) } else { None }
}

/// The time of the server in an answer to `TIME`, in microseconds.
pub(super) fn time(answer: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = from_redis_value_ref(answer).ok()?;
    Some(seconds * 1_000_000 + micros)
}

/// How many clients a server has, from its answer to `INFO clients`; none if the user may not ask.
pub(super) fn connected_clients(answer: Value) -> Option<u32> {
    let info = text(Ok(answer))?;
    info.lines().find_map(|line| line.strip_prefix("connected_clients:")?.parse().ok())
}

/// The text of an answer to `CLIENT LIST`; none if the user may not ask.
pub(super) fn text(answer: RedisResult<Value>) -> Option<String> {
    from_redis_value(answer.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cursor: &str, mode: Option<&str>, fields: &[(&str, &str)]) -> Option<Sight> {
        let text = |text: &str| Value::BulkString(text.into());
        let fields = fields.iter().flat_map(|(field, count)| [text(field), text(count)]);
        let found = Value::Array(vec![text(cursor), Value::Array(fields.collect())]);
        let mode = mode.map_or(Value::Nil, text);
        let (ttl, none) = (Value::Int(1_000), Value::Int(0));
        first_sight(&[found, mode, ttl, none.clone(), none, Value::Nil])
    }

    #[test]
    fn of_more_owners_than_come_at_once_the_mode_says_whether_they_are_readers() {
        let owners = [("client:1", "1"), ("client:2", "3")];
        assert!(look("0", None, &owners).is_none(), "two owners of a plain lock");
        let sight = look("7", Some("read"), &owners).expect("readers");
        assert_eq!((sight.mode, sight.holders.len()), (Some(Mode::Read), 2));
        let fields = [owners[0], ("a field", "1")];
        assert!(look("7", Some("read"), &fields).is_none(), "it is no lock");
        for mode in [None, Some("a mode")] {
            assert!(look("7", mode, &owners).is_none(), "the pages of a site, say");
        }
    }

    #[test]
    fn a_hash_may_be_a_lock_if_it_has_one_owner_or_a_mode() {
        let hinted = |fields: &[&str], mode: Option<&str>| {
            let text = |text: &&str| Value::BulkString((*text).into());
            let mode = mode.as_ref().map_or(Value::Nil, text);
            may_be_a_lock(&[Value::Array(fields.iter().map(text).collect()), mode])
        };
        assert!(hinted(&["client:1"], None) && hinted(&["client:1", "mode"], Some("read")));
        for fields in [["client:1:write", "mode"], ["client:1", "client:1:write"]] {
            assert!(hinted(&fields, Some("write")), "it writes, and reads beside that");
        }
        let none = [(&["client:1", "client:2"][..], None), (&["name"], None), (&[], None)];
        assert!(!none.iter().any(|(fields, mode)| hinted(fields, *mode)));
        assert!(!hinted(&["client:1", "mode"], Some("dark")));
        assert!(!hinted(&["text", "mode"], Some("write")), "how a file is opened, say");
    }
}
