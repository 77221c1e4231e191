//! Messages: plain channels, patterns, and sharded channels.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, Row, command, no_subcommand};
use super::client::Client;
use super::command::{
    CONTAINER, FAST, Keys, LOADING, MAY_REPLICATE, NO_KEYS, NO_SCRIPT, PUBSUB, STALE,
};
use super::core::{Core, leave};
use super::data::Bytes;
use super::glob;
use super::reply::{Answer, Reply};

const LISTENS: u32 = PUBSUB | NO_SCRIPT | LOADING | STALE;
const TELLS: u32 = PUBSUB | LOADING | STALE;

pub(super) const COMMANDS: [Row; 14] = [
    command("subscribe", -2, LISTENS, NO_KEYS, |call| subscribe(call, &CHANNELS)),
    command("unsubscribe", -1, LISTENS, NO_KEYS, |call| unsubscribe(call, &CHANNELS)),
    command("psubscribe", -2, LISTENS, NO_KEYS, |call| subscribe(call, &PATTERNS)),
    command("punsubscribe", -1, LISTENS, NO_KEYS, |call| unsubscribe(call, &PATTERNS)),
    command("ssubscribe", -2, LISTENS, Keys::Channels, |call| subscribe(call, &SHARDED)),
    command("sunsubscribe", -1, LISTENS, Keys::Channels, |call| unsubscribe(call, &SHARDED)),
    command("publish", 3, TELLS | FAST | MAY_REPLICATE, NO_KEYS, publish),
    command("spublish", 3, TELLS | FAST | MAY_REPLICATE, Keys::At(1, 1, 1), spublish),
    command("pubsub", -2, CONTAINER | TELLS, NO_KEYS, no_subcommand),
    command("pubsub|channels", -2, TELLS, NO_KEYS, |call| channels(call, &CHANNELS)),
    command("pubsub|numsub", -2, TELLS, NO_KEYS, |call| numsub(call, &CHANNELS)),
    command("pubsub|numpat", 2, TELLS, NO_KEYS, |call| Ok(Reply::count(call.core.patterns.len()))),
    command("pubsub|shardchannels", -2, TELLS, NO_KEYS, |call| channels(call, &SHARDED)),
    command("pubsub|shardnumsub", -2, TELLS, NO_KEYS, |call| numsub(call, &SHARDED)),
];

/// One of the three kinds of subscriptions.
struct Channels {
    joins: &'static [u8],
    leaves: &'static [u8],
    of_client: fn(&mut Client) -> &mut BTreeSet<Bytes>,
    of_all: fn(&mut Core) -> &mut BTreeMap<Bytes, BTreeSet<u64>>,
    /// How many of them the client has, as it is told.
    count: fn(&Client) -> usize,
}

const CHANNELS: Channels = Channels {
    joins: b"subscribe",
    leaves: b"unsubscribe",
    of_client: |client| &mut client.channels,
    of_all: |core| &mut core.channels,
    count: Client::subscriptions,
};

const PATTERNS: Channels = Channels {
    joins: b"psubscribe",
    leaves: b"punsubscribe",
    of_client: |client| &mut client.patterns,
    of_all: |core| &mut core.patterns,
    count: Client::subscriptions,
};

const SHARDED: Channels = Channels {
    joins: b"ssubscribe",
    leaves: b"sunsubscribe",
    of_client: |client| &mut client.sharded,
    of_all: |core| &mut core.sharded,
    count: |client| client.sharded.len(),
};

fn subscribe(call: &mut Call<'_>, kind: &Channels) -> Answer {
    let client = call.client;
    if call.in_unit && kind.joins == b"ssubscribe" {
        return Err("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".into());
    }
    let mut answers = Vec::new();
    for channel in call.owned(1) {
        (kind.of_client)(call.core.client(client)).insert(channel.clone());
        (kind.of_all)(call.core).entry(channel.clone()).or_default().insert(client);
        let many = (kind.count)(call.core.client(client));
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
        let many = (kind.count)(call.core.client(client));
        answers.push(Reply::Push(vec![name(), Reply::bulk(channel), Reply::count(many)]));
    }
    if answers.is_empty() {
        let many = (kind.count)(call.core.client(client));
        answers.push(Reply::Push(vec![name(), Reply::Nil, Reply::count(many)]));
    }
    Ok(Reply::Many(answers))
}

impl Core {
    /// Ends all subscriptions of a client, without a word.
    pub(super) fn unsubscribe_all(&mut self, client: u64) {
        for kind in [&CHANNELS, &PATTERNS, &SHARDED] {
            for channel in std::mem::take((kind.of_client)(self.client(client))) {
                leave((kind.of_all)(self), &channel, client);
            }
        }
    }

    /// Sends a message to those who listen here. Returns how many they are.
    pub(super) fn publish_here(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let text = |word: &'static [u8]| Reply::bulk(word);
        let mut pushes = Vec::new();
        if let Some(clients) = self.channels.get(channel) {
            let push =
                || Reply::Push(vec![text(b"message"), Reply::bulk(channel), Reply::bulk(message)]);
            pushes.extend(clients.iter().map(|client| (*client, push())));
        }
        for (pattern, clients) in &self.patterns {
            if glob::matches(pattern, channel) {
                let words = || {
                    let words = [text(b"pmessage"), Reply::bulk(pattern), Reply::bulk(channel)];
                    Reply::Push(words.into_iter().chain([Reply::bulk(message)]).collect())
                };
                pushes.extend(clients.iter().map(|client| (*client, words())));
            }
        }
        self.push_all(pushes)
    }

    fn push_all(&mut self, pushes: Vec<(u64, Reply)>) -> usize {
        let many = pushes.len();
        for (client, push) in pushes {
            self.push(client, push);
        }
        many
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
    let clients = call.core.sharded.get(channel);
    let push =
        || Reply::Push(vec![Reply::bulk(b"smessage"), Reply::bulk(channel), Reply::bulk(message)]);
    let pushes = clients.into_iter().flatten().map(|client| (*client, push())).collect();
    let heard = call.core.push_all(pushes);
    Ok(Reply::count(heard))
}

fn channels(call: &mut Call<'_>, kind: &Channels) -> Answer {
    if call.many() > 3 {
        return Err(call.wrong_subcommand());
    }
    let pattern = call.args.get(2);
    let names = (kind.of_all)(call.core).keys();
    let fits = |name: &&Bytes| pattern.is_none_or(|pattern| glob::matches(pattern, name));
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
