//! A Sentinel: a server without keys, which says where primaries are.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{CONTAINER, NO_KEYS, NO_SCRIPT, STALE};
use super::master::Master;
use super::reply::{Answer, Failure, Reply};
use super::{Server, Settings};

const ASKS: u32 = NO_SCRIPT | STALE;

pub(super) const COMMANDS: [Row; 3] = [
    command("sentinel", -2, CONTAINER | ASKS, NO_KEYS, no_subcommand),
    command("sentinel|get-master-addr-by-name", 3, ASKS, NO_KEYS, address),
    command("sentinel|master", 3, ASKS, NO_KEYS, |call| Ok(described(&named(call)?))),
];

fn named(call: &Call<'_>) -> Result<Master, Failure> {
    let name = call.text(2);
    let master = call.core.masters.iter().find(|master| master.name == name);
    master.cloned().ok_or_else(|| "ERR No such master with that name".into())
}

fn address(call: &mut Call<'_>) -> Answer {
    Ok(match named(call) {
        Ok(Master { host, port, promoted, .. }) => {
            let (host, port) = promoted.unwrap_or((host, port));
            Reply::Array(vec![text(&host), text(&port.to_string())])
        }
        Err(_) => Reply::NilArray,
    })
}

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

fn described(master: &Master) -> Reply {
    let fields = [
        ("name", master.name.clone()),
        ("ip", master.host.clone()),
        ("port", master.port.to_string()),
        ("flags", "master".into()),
        ("config-epoch", master.epoch.to_string()),
    ];
    Reply::Map(fields.iter().map(|(name, value)| (text(name), text(value))).collect())
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
        let ask = |sentinel: &mut Server, words: &[&str]| {
            let mut cmd = redis::Cmd::new();
            cmd.arg(words);
            sentinel.receive(Duration::ZERO, client, &cmd.get_packed_command());
        };
        ask(&mut sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"]);
        assert_eq!(said(&mut sentinel), "*2\r\n$1\r\na\r\n$1\r\n1\r\n");
        ask(&mut sentinel, &["SENTINEL", "MASTER", "x"]);
        ask(&mut sentinel, &["GET", "k"]);
        ask(&mut sentinel, &["ROLE"]);
        let answers = said(&mut sentinel);
        assert!(answers.starts_with("-ERR No such master with that name\r\n-ERR unknown command"));
        assert!(answers.ends_with("*2\r\n$8\r\nsentinel\r\n*1\r\n$1\r\nm\r\n"), "{answers}");
        ask(&mut sentinel, &["SUBSCRIBE", "+switch-master"]);
        said(&mut sentinel);
        sentinel.know(Master { host: "b".into(), epoch: 1, ..master });
        assert!(said(&mut sentinel).contains("m a 1 b 1"));
    }
}
