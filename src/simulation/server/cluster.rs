//! A node of a cluster: which requests it sends elsewhere, and what it says of the others.

use crate::slot;

use super::call::{Call, Row, command, no_subcommand};
use super::command::{CONTAINER, Command, Keys, LOADING, NO_KEYS, STALE};
use super::core::Core;
use super::data::Bytes;
use super::reply::{Answer, Failure, OK, Reply};
use super::settings::Version;
use super::view::{ClusterNode, ClusterView};

const TELLS: u32 = LOADING | STALE;

pub(super) const COMMANDS: [Row; 7] = [
    command("cluster", -2, CONTAINER | TELLS, NO_KEYS, no_subcommand),
    command("cluster|slots", 2, TELLS, NO_KEYS, slots),
    command("cluster|info", 2, TELLS, NO_KEYS, info),
    command("cluster|myid", 2, STALE, NO_KEYS, |call| Ok(text(&view(call)?.me))),
    command("cluster|nodes", 2, STALE, NO_KEYS, nodes),
    command("cluster|keyslot", 3, TELLS, NO_KEYS, |call| {
        view(call)?;
        Ok(Reply::Int(slot::of(call.arg(2)).into()))
    }),
    command("asking", 1, 0, NO_KEYS, asking),
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
        self.elsewhere(asking, command, args).map_err(|elsewhere| {
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

    /// Whether this node is the right one for the request of a script.
    pub(super) fn redirect_in_script(
        &mut self,
        command: &'static Command,
        args: &[&[u8]],
    ) -> Result<(), Failure> {
        if !self.settings.cluster {
            return Ok(());
        }
        let asking = self.script.as_ref().is_some_and(|script| script.is_asking);
        let code = if self.version() == Version::Redis62 { "" } else { "ERR " };
        self.elsewhere(asking, command, args).map_err(|elsewhere| {
            let what = match elsewhere {
                Elsewhere::Down => "execute a command while the cluster is down",
                _ => "access a non local key in a cluster node",
            };
            Failure::from(format!("{code}Script attempted to {what}"))
        })
    }

    fn elsewhere(
        &mut self,
        asking: bool,
        command: &'static Command,
        args: &[&[u8]],
    ) -> Result<(), Elsewhere> {
        let sharded = command.keys == Keys::Channels || command.name == "spublish";
        let keys = command.keys_of(args);
        let Some(first) = keys.first() else { return Ok(()) };
        let slot = slot::of(first);
        if keys.iter().any(|key| slot::of(key) != slot) {
            return Err(Elsewhere::CrossSlot);
        }
        let has = if sharded { 0 } else { keys.iter().filter(|key| self.exists(0, key)).count() };
        let lacks = if sharded { 0 } else { keys.len() - has };
        let version = self.version();
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
        if is_mine || follows && sharded {
            return Ok(());
        }
        let (slot, host, port) = address(owner);
        Err(Elsewhere::Moved(slot, host, port))
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

fn asking(call: &mut Call<'_>) -> Answer {
    view(call)?;
    let client = call.client;
    call.core.client(client).is_asking = true;
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

fn nodes(call: &mut Call<'_>) -> Answer {
    let view = view(call)?;
    let shown = |node: &ClusterNode| {
        let is_me = if node.id == view.me { "myself," } else { "" };
        let (role, of) = match &node.primary {
            Some(primary) => ("slave", &**primary),
            None => ("master", "-"),
        };
        let failed = if node.has_failed { ",fail" } else { "" };
        let (host, port, bus) = (&node.host, node.port, u32::from(node.port) + 10_000);
        let link = if node.has_failed { "disconnected" } else { "connected" };
        let slots = node.slots.iter().map(|(first, last)| match first == last {
            true => format!(" {first}"),
            false => format!(" {first}-{last}"),
        });
        let (slots, epoch, id) = (slots.collect::<String>(), node.epoch, &node.id);
        format!("{id} {host}:{port}@{bus} {is_me}{role}{failed} {of} 0 0 {epoch} {link}{slots}\n")
    };
    Ok(Reply::Text(view.nodes.iter().map(shown).collect()))
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
