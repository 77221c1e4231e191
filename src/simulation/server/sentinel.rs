//! A Sentinel: a server without keys, which says where primaries are.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{ADMIN, CONTAINER, NO_KEYS, NO_SCRIPT, STALE};
use super::master::Master;
use super::reply::{Answer, Failure, OK, Reply};
use super::{Server, Settings};

const ASKS: u32 = ADMIN | NO_SCRIPT | STALE;

pub(super) const COMMANDS: [Row; 9] = [
    command("sentinel", -2, CONTAINER | ASKS, NO_KEYS, no_subcommand),
    command("sentinel|get-master-addr-by-name", 3, ASKS, NO_KEYS, address),
    command("sentinel|master", 3, ASKS, NO_KEYS, |call| Ok(described(&named(call)?))),
    command("sentinel|masters", 2, ASKS, NO_KEYS, |call| {
        Ok(Reply::Array(call.core.masters.iter().map(described).collect()))
    }),
    command("sentinel|replicas", 3, ASKS, NO_KEYS, |call| {
        let master = named(call)?;
        Ok(servers(&master.replicas, "slave"))
    }),
    command("sentinel|slaves", 3, ASKS, NO_KEYS, |call| {
        let master = named(call)?;
        Ok(servers(&master.replicas, "slave"))
    }),
    command("sentinel|sentinels", 3, ASKS, NO_KEYS, |call| {
        let master = named(call)?;
        Ok(servers(&master.sentinels, "sentinel"))
    }),
    command("sentinel|ckquorum", 3, ASKS, NO_KEYS, |call| {
        let master = named(call)?;
        let usable = master.sentinels.len() + 1;
        if usable < master.quorum {
            return Err(format!(
                "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the specified quorum for this master"
            )
            .into());
        }
        Ok(Reply::Status(
            format!(
                "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
            )
            .into(),
        ))
    }),
    command("sentinel|set", -3, ASKS, NO_KEYS, |call| named(call).map(|_| OK)),
];

fn named(call: &Call<'_>) -> Result<Master, Failure> {
    let name = call.text(2);
    let master = call.core.masters.iter().find(|master| master.name == name);
    master.cloned().ok_or_else(|| "ERR No such master with that name".into())
}

fn address(call: &mut Call<'_>) -> Answer {
    Ok(match named(call) {
        Ok(master) => Reply::Array(vec![text(&master.host), text(&master.port.to_string())]),
        Err(_) => Reply::NilArray,
    })
}

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

fn map(fields: &[(&str, String)]) -> Reply {
    Reply::Map(fields.iter().map(|(name, value)| (text(name), text(value))).collect())
}

fn described(master: &Master) -> Reply {
    let flags = if master.is_down { "master,s_down,o_down" } else { "master" };
    map(&[
        ("name", master.name.clone()),
        ("ip", master.host.clone()),
        ("port", master.port.to_string()),
        ("runid", String::new()),
        ("flags", flags.into()),
        ("role-reported", "master".into()),
        ("config-epoch", master.epoch.to_string()),
        ("num-slaves", master.replicas.len().to_string()),
        ("num-other-sentinels", master.sentinels.len().to_string()),
        ("quorum", master.quorum.to_string()),
    ])
}

fn servers(all: &[(String, u16)], flags: &str) -> Reply {
    let shown = all.iter().map(|(host, port)| {
        map(&[
            ("name", format!("{host}:{port}")),
            ("ip", host.clone()),
            ("port", port.to_string()),
            ("runid", String::new()),
            ("flags", flags.into()),
        ])
    });
    Reply::Array(shown.collect())
}

impl Server {
    /// A Sentinel that watches nothing yet.
    pub fn sentinel(settings: Settings) -> Self {
        let mut server = Self::new(settings);
        server.core.is_sentinel = true;
        server
    }

    /// For a Sentinel: from now on it knows this of a primary. If that is somewhere else, it says so to those who
    /// listen.
    pub fn know(&mut self, master: Master) {
        let masters = &mut self.core.masters;
        let Some(old) = masters.iter_mut().find(|old| old.name == master.name) else {
            masters.push(master);
            return;
        };
        let old = std::mem::replace(old, master.clone());
        if (&old.host, old.port) != (&master.host, master.port) {
            let said = format!(
                "{} {} {} {} {}",
                master.name, old.host, old.port, master.host, master.port
            );
            self.core.publish_here(b"+switch-master", said.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulation::Effect;

    fn said(sentinel: &mut Server) -> String {
        let effects = sentinel.take_effects().into_iter();
        let bytes = effects.filter_map(|effect| match effect {
            Effect::Send { bytes, .. } => Some(bytes),
            _ => None,
        });
        String::from_utf8(bytes.flatten().collect()).expect("text")
    }

    #[test]
    fn a_sentinel_says_where_the_primary_is_and_when_it_is_somewhere_else() {
        let mut sentinel = Server::sentinel(Settings::default());
        let master = Master { name: "m".into(), host: "a".into(), port: 1, ..Master::default() };
        sentinel.know(master.clone());
        let client = sentinel.accept(Duration::ZERO, "here");
        sentinel.receive(Duration::ZERO, client, b"SENTINEL GET-MASTER-ADDR-BY-NAME m\r\n");
        assert_eq!(said(&mut sentinel), "*2\r\n$1\r\na\r\n$1\r\n1\r\n");
        sentinel.receive(Duration::ZERO, client, b"SENTINEL MASTER x\r\nGET k\r\nROLE\r\n");
        let answers = said(&mut sentinel);
        assert!(answers.starts_with("-ERR No such master with that name\r\n-ERR unknown command"));
        assert!(answers.ends_with("*2\r\n$8\r\nsentinel\r\n*1\r\n$1\r\nm\r\n"), "{answers}");
        sentinel.receive(Duration::ZERO, client, b"PSUBSCRIBE *\r\n");
        said(&mut sentinel);
        sentinel.know(Master { host: "b".into(), epoch: 1, ..master });
        assert!(said(&mut sentinel).contains("m a 1 b 1"));
    }
}
