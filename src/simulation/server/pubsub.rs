//! Messages: plain channels, and sharded ones.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, Row, command, no_subcommand};
use super::client::Client;
use super::command::{CONTAINER, Keys, LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::{Core, leave};
use super::data::Bytes;
use super::glob;
use super::reply::{Answer, Reply};

const LISTENS: u32 = NO_SCRIPT | LOADING | STALE;
const TELLS: u32 = LOADING | STALE;

pub(super) const COMMANDS: [Row; 10] = [
    command("subscribe", -2, LISTENS, NO_KEYS, |call| subscribe(call, &CHANNELS)),
    command("unsubscribe", -1, LISTENS, NO_KEYS, |call| unsubscribe(call, &CHANNELS)),
    command("ssubscribe", -2, LISTENS, Keys::Channels, |call| subscribe(call, &SHARDED)),
    command("sunsubscribe", -1, LISTENS, Keys::Channels, |call| unsubscribe(call, &SHARDED)),
    command("publish", 3, TELLS, NO_KEYS, publish),
    command("spublish", 3, TELLS, Keys::At(1, 1, 1), spublish),
    command("pubsub", -2, CONTAINER | TELLS, NO_KEYS, no_subcommand),
    command("pubsub|channels", -2, TELLS, NO_KEYS, channels),
    command("pubsub|numsub", -2, TELLS, NO_KEYS, |call| numsub(call, &CHANNELS)),
    command("pubsub|shardnumsub", -2, TELLS, NO_KEYS, |call| numsub(call, &SHARDED)),
];

/// One of the two kinds of subscriptions.
struct Channels {
    joins: &'static [u8],
    leaves: &'static [u8],
    of_client: fn(&mut Client) -> &mut BTreeSet<Bytes>,
    of_all: fn(&mut Core) -> &mut BTreeMap<Bytes, BTreeSet<u64>>,
}

const CHANNELS: Channels = Channels {
    joins: b"subscribe",
    leaves: b"unsubscribe",
    of_client: |client| &mut client.channels,
    of_all: |core| &mut core.channels,
};

const SHARDED: Channels = Channels {
    joins: b"ssubscribe",
    leaves: b"sunsubscribe",
    of_client: |client| &mut client.sharded,
    of_all: |core| &mut core.sharded,
};

fn subscribe(call: &mut Call<'_>, kind: &Channels) -> Answer {
    let client = call.client;
    let mut answers = Vec::new();
    for channel in call.owned(1) {
        (kind.of_client)(call.core.client(client)).insert(channel.clone());
        (kind.of_all)(call.core).entry(channel.clone()).or_default().insert(client);
        let many = (kind.of_client)(call.core.client(client)).len();
        let name = Reply::bulk(kind.joins);
        answers.push(Reply::Push(vec![name, Reply::Bulk(channel), Reply::count(many)]));
    }
    Ok(Reply::Many(answers))
}

fn unsubscribe(call: &mut Call<'_>, kind: &Channels) -> Answer {
    let client = call.client;
    let mut channels = call.owned(1);
    if channels.is_empty() {
        channels = (kind.of_client)(call.core.client(client)).iter().cloned().collect();
    }
    let name = || Reply::bulk(kind.leaves);
    let mut answers = Vec::new();
    for channel in &channels {
        (kind.of_client)(call.core.client(client)).remove(channel);
        leave((kind.of_all)(call.core), channel, client);
        let many = (kind.of_client)(call.core.client(client)).len();
        answers.push(Reply::Push(vec![name(), Reply::bulk(channel), Reply::count(many)]));
    }
    if answers.is_empty() {
        let many = (kind.of_client)(call.core.client(client)).len();
        answers.push(Reply::Push(vec![name(), Reply::Nil, Reply::count(many)]));
    }
    Ok(Reply::Many(answers))
}

impl Core {
    /// Sends a message to those who listen here. Returns how many they are.
    pub(super) fn publish_here(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.tell(&CHANNELS, b"message", channel, message)
    }

    fn tell(
        &mut self,
        kind: &Channels,
        name: &'static [u8],
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let all = (kind.of_all)(self);
        let clients: Vec<u64> = all.get(channel).into_iter().flatten().copied().collect();
        for client in &clients {
            let words = [name, channel, message];
            self.push(*client, Reply::Push(words.map(Reply::bulk).to_vec()));
        }
        clients.len()
    }
}

fn publish(call: &mut Call<'_>) -> Answer {
    let (channel, message) = (call.arg(1), call.arg(2));
    let heard = call.core.publish_here(channel, message);
    call.core.note_message(channel, message);
    Ok(Reply::count(heard))
}

fn spublish(call: &mut Call<'_>) -> Answer {
    let (channel, message) = (call.arg(1), call.arg(2));
    let heard = call.core.tell(&SHARDED, b"smessage", channel, message);
    Ok(Reply::count(heard))
}

fn channels(call: &mut Call<'_>) -> Answer {
    if call.many() > 3 {
        return Err(call.wrong_subcommand());
    }
    let pattern = call.args.get(2);
    let names = call.core.channels.keys();
    // A channel without a name fits no pattern with anything in it, not even an asterisk.
    let may_fit = |name: &Bytes, pattern: &[u8]| !name.is_empty() || pattern.is_empty();
    let fits = |name: &&Bytes| {
        pattern.is_none_or(|pattern| may_fit(name, pattern) && glob::matches(pattern, name))
    };
    Ok(Reply::bulks(names.filter(fits).map(Vec::as_slice)))
}

fn numsub(call: &mut Call<'_>, kind: &Channels) -> Answer {
    let channels = &call.args[2..];
    let all = (kind.of_all)(call.core);
    let pairs = channels.iter().flat_map(|channel| {
        [Reply::bulk(channel), Reply::count(all.get(*channel).map_or(0, BTreeSet::len))]
    });
    Ok(Reply::Array(pairs.collect()))
}
