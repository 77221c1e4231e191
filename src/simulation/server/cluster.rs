//! A node of a cluster: which requests it sends elsewhere, and what it says of the others.

use crate::slot;

use super::call::{Call, Row, command, no_subcommand};
use super::command::{
    ADMIN, CONTAINER, Command, FAST, Keys, LOADING, NO_KEYS, NO_SCRIPT, STALE, WRITE,
};
use super::core::Core;
use super::data::Bytes;
use super::dispatch;
use super::reply::{Answer, Failure, OK, Reply};
use super::settings::Version;
use super::view::{ClusterNode, ClusterView};

const TELLS: u32 = LOADING | STALE;

pub(super) const COMMANDS: [Row; 13] = [
    command("cluster", -2, CONTAINER | TELLS, NO_KEYS, no_subcommand),
    command("cluster|slots", 2, TELLS, NO_KEYS, slots),
    command("cluster|shards", 2, TELLS, NO_KEYS, shards),
    command("cluster|nodes", 2, TELLS, NO_KEYS, nodes),
    command("cluster|myid", 2, TELLS, NO_KEYS, |call| view(call).map(|view| text(&view.me))),
    command("cluster|info", 2, TELLS, NO_KEYS, info),
    command("cluster|keyslot", 3, TELLS, NO_KEYS, |call| {
        view(call)?;
        Ok(Reply::Int(slot::of(call.arg(2)).into()))
    }),
    command("cluster|countkeysinslot", 3, TELLS, NO_KEYS, |call| {
        Ok(Reply::count(keys_in_slot(call)?.len()))
    }),
    command("cluster|getkeysinslot", 4, TELLS, NO_KEYS, |call| {
        let many = usize::try_from(call.int(3)?).unwrap_or(0);
        let keys = keys_in_slot(call)?;
        Ok(Reply::bulks(keys.iter().take(many).map(|key| &**key)))
    }),
    command("cluster|reset", -2, ADMIN | NO_SCRIPT | STALE, NO_KEYS, |call| view(call).map(|_| OK)),
    command("asking", 1, FAST, NO_KEYS, asking),
    command("readonly", 1, FAST | LOADING | STALE, NO_KEYS, |call| reads_only(call, true)),
    command("readwrite", 1, FAST | LOADING | STALE, NO_KEYS, |call| reads_only(call, false)),
];

const DOWN: &str = "CLUSTERDOWN The cluster is down";

/// Where a request has to go instead.
enum Elsewhere {
    CrossSlot,
    Unbound,
    Down,
    TryAgain,
    Ask(u16, String, u16),
    Moved(u16, String, u16),
}

impl Core {
    /// Whether this node is the right one for the request.
    pub(super) fn redirect(
        &mut self,
        client: u64,
        command: &'static Command,
        args: &[&[u8]],
    ) -> Result<(), Failure> {
        if !self.settings.cluster {
            return Ok(());
        }
        let of_client = self.client(client);
        let asking = std::mem::take(&mut of_client.is_asking);
        of_client.was_asking = asking;
        self.elsewhere(client, asking, command, args).map_err(|elsewhere| {
            Failure::from(match elsewhere {
                Elsewhere::CrossSlot => {
                    "CROSSSLOT Keys in request don't hash to the same slot".to_owned()
                }
                Elsewhere::Unbound => "CLUSTERDOWN Hash slot not served".into(),
                Elsewhere::Down => DOWN.into(),
                Elsewhere::TryAgain => {
                    "TRYAGAIN Multiple keys request during rehashing of slot".into()
                }
                Elsewhere::Ask(slot, host, port) => format!("ASK {slot} {host}:{port}"),
                Elsewhere::Moved(slot, host, port) => format!("MOVED {slot} {host}:{port}"),
            })
        })
    }

    /// The same for a request of a script.
    pub(super) fn redirect_in_script(
        &mut self,
        client: u64,
        command: &'static Command,
        args: &[&[u8]],
    ) -> Result<(), Failure> {
        if !self.settings.cluster {
            return Ok(());
        }
        let asking = self.script.as_ref().is_some_and(|script| script.is_asking);
        let code = if self.version() == Version::Redis62 { "" } else { "ERR " };
        self.elsewhere(client, asking, command, args).map_err(|elsewhere| {
            let what = match elsewhere {
                Elsewhere::Down => "execute a command while the cluster is down",
                _ => "access a non local key in a cluster node",
            };
            Failure::from(format!("{code}Script attempted to {what}"))
        })
    }

    fn elsewhere(
        &mut self,
        client: u64,
        asking: bool,
        command: &'static Command,
        args: &[&[u8]],
    ) -> Result<(), Elsewhere> {
        let sharded = command.keys == Keys::Channels || command.name == "spublish";
        let (keys, writes) = self.keys_of_request(client, command, args);
        let Some(first) = keys.first() else { return Ok(()) };
        let slot = slot::of(first);
        if keys.iter().any(|key| slot::of(key) != slot) {
            return Err(Elsewhere::CrossSlot);
        }
        let has = if sharded { 0 } else { keys.iter().filter(|key| self.exists(0, key)).count() };
        let lacks = if sharded { 0 } else { keys.len() - has };
        let version = self.version();
        let reads_only = self.client(client).reads_only;
        let Some(view) = &self.view else { return Err(Elsewhere::Down) };
        let Some(owner) = view.owner(slot) else { return Err(Elsewhere::Unbound) };
        if view.is_down {
            return Err(Elsewhere::Down);
        }
        let address = |node: &ClusterNode| (slot, node.host.clone(), node.port);
        let is_mine = owner.id == view.me;
        if is_mine
            && let Some(target) = view.migrating.get(&slot).and_then(|id| view.node(id))
            && lacks > 0
        {
            if has > 0 && version > Version::Redis62 {
                return Err(Elsewhere::TryAgain);
            }
            let (slot, host, port) = address(target);
            return Err(Elsewhere::Ask(slot, host, port));
        }
        if view.importing.contains_key(&slot) && asking && !is_mine {
            return if keys.len() > 1 && lacks > 0 { Err(Elsewhere::TryAgain) } else { Ok(()) };
        }
        let follows = view.myself().is_some_and(|me| me.primary.as_ref() == Some(&owner.id));
        if is_mine || follows && (reads_only || sharded) && !writes {
            return Ok(());
        }
        let (slot, host, port) = address(owner);
        Err(Elsewhere::Moved(slot, host, port))
    }

    /// The keys of a request, of those in the queue for an `EXEC`, and whether it writes.
    fn keys_of_request(
        &mut self,
        client: u64,
        command: &'static Command,
        args: &[&[u8]],
    ) -> (Vec<Bytes>, bool) {
        let owned = |command: &Command, args: &[&[u8]]| {
            command.keys_of(args).into_iter().map(<[u8]>::to_vec).collect()
        };
        if command.name != "exec" {
            return (owned(command, args), command.is(WRITE));
        }
        let queue = self.client(client).queue.as_ref();
        let requests = queue.map(|queue| queue.requests.clone()).unwrap_or_default();
        let (mut keys, mut writes): (Vec<Bytes>, bool) = (Vec::new(), false);
        for request in &requests {
            let words: Vec<&[u8]> = request.iter().map(|word| &**word).collect();
            if let Ok(command) = dispatch::find(self, &words) {
                keys.append(&mut owned(command, &words));
                writes |= command.is(WRITE);
            }
        }
        (keys, writes)
    }

    /// Takes over another view. Subscribers of channels whose slots have gone are dropped.
    pub(super) fn sees(&mut self, view: ClusterView) {
        let mine =
            |channel: &Bytes| view.owner(slot::of(channel)).is_some_and(|node| node.id == view.me);
        let lost: Vec<Bytes> =
            self.sharded.keys().filter(|channel| !mine(channel)).cloned().collect();
        self.view = Some(view);
        for channel in lost {
            for client in self.sharded.remove(&channel).unwrap_or_default() {
                let sharded = &mut self.client(client).sharded;
                sharded.remove(&channel);
                let left = sharded.len();
                let name = Reply::bulk(b"sunsubscribe");
                let push =
                    Reply::Push(vec![name, Reply::Bulk(channel.clone()), Reply::count(left)]);
                self.send(client, &push);
            }
        }
    }
}

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

fn view(call: &Call<'_>) -> Result<ClusterView, Failure> {
    if !call.core.settings.cluster {
        return Err("ERR This instance has cluster support disabled".into());
    }
    Ok(call.core.view.clone().unwrap_or_default())
}

fn keys_in_slot(call: &Call<'_>) -> Result<Vec<Bytes>, Failure> {
    view(call)?;
    let wanted = call.int(2)?;
    if !(0..i64::from(slot::SLOTS)).contains(&wanted) {
        return Err("ERR Invalid slot".into());
    }
    let keys = call.core.visible(0).map(|(key, _)| key);
    Ok(keys.filter(|key| i64::from(slot::of(key)) == wanted).cloned().collect())
}

fn asking(call: &mut Call<'_>) -> Answer {
    view(call)?;
    let client = call.client;
    call.core.client(client).is_asking = true;
    Ok(OK)
}

fn reads_only(call: &mut Call<'_>, yes: bool) -> Answer {
    view(call)?;
    let client = call.client;
    call.core.client(client).reads_only = yes;
    Ok(OK)
}

fn slots(call: &mut Call<'_>) -> Answer {
    let view = view(call)?;
    let version = call.version();
    let shown = |node: &ClusterNode| {
        let mut parts = vec![text(&node.host), Reply::Int(node.port.into()), text(&node.id)];
        if version > Version::Redis62 {
            parts.push(Reply::Array(Vec::new()));
        }
        Reply::Array(parts)
    };
    let mut ranges = Vec::new();
    for node in view.nodes.iter().filter(|node| node.primary.is_none()) {
        for (first, last) in &node.slots {
            let mut range =
                vec![Reply::Int((*first).into()), Reply::Int((*last).into()), shown(node)];
            range.extend(view.replicas_of(&node.id).filter(|one| !one.has_failed).map(shown));
            ranges.push((*first, Reply::Array(range)));
        }
    }
    ranges.sort_by_key(|(first, _)| *first);
    Ok(Reply::Array(ranges.into_iter().map(|(_, range)| range).collect()))
}

fn shards(call: &mut Call<'_>) -> Answer {
    let view = view(call)?;
    let shown = |node: &ClusterNode| {
        let role = if node.primary.is_none() { "master" } else { "replica" };
        let health = if node.has_failed { "fail" } else { "online" };
        Reply::Map(vec![
            (text("id"), text(&node.id)),
            (text("port"), Reply::Int(node.port.into())),
            (text("ip"), text(&node.host)),
            (text("endpoint"), text(&node.host)),
            (text("role"), text(role)),
            (text("replication-offset"), Reply::Int(0)),
            (text("health"), text(health)),
        ])
    };
    let shards = view.nodes.iter().filter(|node| node.primary.is_none()).map(|node| {
        let slots = node.slots.iter().flat_map(|(first, last)| [first, last]);
        let slots = slots.map(|slot| Reply::Int((*slot).into())).collect();
        let nodes = std::iter::once(node).chain(view.replicas_of(&node.id)).map(shown).collect();
        Reply::Map(vec![(text("slots"), Reply::Array(slots)), (text("nodes"), Reply::Array(nodes))])
    });
    Ok(Reply::Array(shards.collect()))
}

fn nodes(call: &mut Call<'_>) -> Answer {
    let view = view(call)?;
    let mut lines = String::new();
    for node in &view.nodes {
        let mut flags = Vec::new();
        flags.extend((node.id == view.me).then_some("myself"));
        flags.push(if node.primary.is_none() { "master" } else { "slave" });
        flags.extend(node.has_failed.then_some("fail"));
        let bus = u32::from(node.port) + 10_000;
        let primary = node.primary.as_deref().unwrap_or("-");
        lines += &format!(
            "{} {}:{}@{bus} {} {primary} 0 0 {} connected",
            node.id,
            node.host,
            node.port,
            flags.join(","),
            node.epoch
        );
        for (first, last) in &node.slots {
            lines += &if first == last { format!(" {first}") } else { format!(" {first}-{last}") };
        }
        if node.id == view.me {
            view.migrating.iter().for_each(|(slot, to)| lines += &format!(" [{slot}->-{to}]"));
            view.importing.iter().for_each(|(slot, from)| lines += &format!(" [{slot}-<-{from}]"));
        }
        lines.push('\n');
    }
    Ok(Reply::Text(lines))
}

fn info(call: &mut Call<'_>) -> Answer {
    let view = view(call)?;
    let assigned: u32 =
        view.nodes.iter().flat_map(|node| &node.slots).map(|(a, b)| u32::from(b - a) + 1).sum();
    let size = view.nodes.iter().filter(|node| !node.slots.is_empty()).count();
    let fields = [
        ("cluster_state", if view.is_down { "fail".into() } else { "ok".into() }),
        ("cluster_slots_assigned", assigned.to_string()),
        ("cluster_slots_ok", assigned.to_string()),
        ("cluster_slots_pfail", "0".into()),
        ("cluster_slots_fail", "0".into()),
        ("cluster_known_nodes", view.nodes.len().to_string()),
        ("cluster_size", size.to_string()),
        ("cluster_current_epoch", view.epoch().to_string()),
        ("cluster_my_epoch", view.myself().map_or(0, |me| me.epoch).to_string()),
    ];
    let lines = fields.iter().map(|(name, value)| format!("{name}:{value}\r\n"));
    Ok(Reply::Text(lines.collect()))
}
