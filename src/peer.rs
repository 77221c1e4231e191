//! Who is at the other end of a connection: the name under which a server knows the connections of a client.
//!
//! The name has the id of the client, which the owners of its locks begin with. So the list of a server's clients
//! leads from an owner to a machine, a process and a label.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::host;

/// What the name of each connection begins with.
const NAME_PREFIX: &str = "redlatch";

/// The most bytes that a name has of the machine's.
const LONGEST_HOST: usize = 64;

/// Where a client runs, and what its user calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: Box<str>,
    pub(crate) pid: u32,
    pub(crate) label: Option<Box<str>>,
}

impl Peer {
    /// A client of this process.
    pub(crate) fn here(label: Option<&str>) -> Self {
        let (host, pid) = host::machine();
        Self { host: plain(&host).into(), pid, label: label.map(Into::into) }
    }

    /// The name of the connections of that client: `redlatch:<uuid>:<machine>:<pid>`, and behind that a colon and
    /// the label, if there is one.
    pub(crate) fn name(&self, client: Uuid) -> String {
        let Self { host, pid, label } = self;
        let mut name = format!("{NAME_PREFIX}:{client}:{host}:{pid}");
        if let Some(label) = label {
            name.push(':');
            name.push_str(label);
        }
        name
    }

    /// The id of the client that the owner of a lock is of, if it is one.
    pub(crate) fn client_of(owner: &str) -> Option<&str> {
        owner.split(':').next().filter(|client| Uuid::try_parse(client).is_ok())
    }

    /// The client whose connections have that name, and where it is; `None` for a name that no client of this crate
    /// has given.
    fn parse(name: &str) -> Option<(&str, Self)> {
        let mut parts = name.splitn(5, ':');
        parts.next().filter(|mark| *mark == NAME_PREFIX)?;
        let client = parts.next().filter(|client| Uuid::try_parse(client).is_ok())?;
        let (host, pid) = (parts.next()?.into(), parts.next()?.parse().ok()?);
        Some((client, Self { host, pid, label: parts.next().map(Into::into) }))
    }
}

/// The clients at one server that have names of this crate, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Peers(BTreeMap<Box<str>, Peer>);

impl Peers {
    /// From an answer to `CLIENT LIST`: a client in each line, with fields that begin with their names.
    pub(crate) fn of(list: &str) -> Self {
        let names = list
            .lines()
            .filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("name=")));
        let named = names.filter_map(Peer::parse);
        Self(named.map(|(client, peer)| (client.into(), peer)).collect())
    }

    pub(crate) fn take(mut self, client: &str) -> Option<Peer> {
        self.0.remove(client)
    }

    pub(crate) fn get(&self, client: &str) -> Option<&Peer> {
        self.0.get(client)
    }
}

/// What a connection can be called of the name of a machine.
fn plain(host: &str) -> String {
    let fits = |c: char| c.is_ascii_graphic() && c != ':';
    let plain = host.trim().chars().take(LONGEST_HOST).map(|c| if fits(c) { c } else { '_' });
    let plain: String = plain.collect();
    if plain.is_empty() { "-".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn peer(host: &str, label: Option<&str>) -> Peer {
        Peer { host: host.into(), pid: 4711, label: label.map(Into::into) }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let client = Uuid::try_parse(CLIENT).unwrap();
        for (peer, expected) in [
            (peer("web-3.example", None), "web-3.example:4711"),
            (peer("web-3", Some("orders-7b9c")), "web-3:4711:orders-7b9c"),
            (peer("-", Some("a:b::")), "-:4711:a:b::"),
        ] {
            let name = peer.name(client);
            assert_eq!(name, format!("redlatch:{CLIENT}:{expected}"));
            assert_eq!(Peer::parse(&name), Some((CLIENT, peer)));
        }
    }

    #[test]
    fn another_name_is_none_of_a_client() {
        for name in [
            "",
            "redlatch",
            "redlatch:",
            &format!("redlatch:{CLIENT}"),
            &format!("redlatch:{CLIENT}:web"),
            &format!("redlatch:{CLIENT}:web:x"),
            &format!("redlatch:{CLIENT}:web:-1"),
            "redlatch:nobody:web:1",
            &format!("redis:{CLIENT}:web:1"),
        ] {
            assert_eq!(Peer::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_machine_has_nothing_that_a_server_refuses_or_that_separates() {
        for (host, expected) in [
            ("web-3\n", "web-3"),
            ("a b:c\u{e4}", "a_b_c_"),
            ("", "-"),
            (&"x".repeat(99), &"x".repeat(64)),
        ] {
            assert_eq!(plain(host), expected);
        }
    }

    #[test]
    fn the_clients_of_a_list_are_found_by_their_ids() {
        let other = CLIENT.replace('0', "f");
        let peers = Peers::of(&format!(
            "id=3 addr=10.0.0.1:1 name= age=1 cmd=client|list user=default\n\
             id=4 addr=10.0.0.2:1 name=redlatch:{CLIENT}:web:7:orders age=1 db=0\n\
             id=5 addr=10.0.0.2:2 name=redlatch:{CLIENT}:web:7:orders age=1 db=0\n\
             id=6 addr=10.0.0.3:1 name=jedis age=1 db=0\n"
        ));
        let orders = Peer { host: "web".into(), pid: 7, label: Some("orders".into()) };
        assert_eq!(peers.get(CLIENT), Some(&orders));
        assert_eq!(peers.get(&other), None);
        assert_eq!(peers.0.len(), 1);
    }

    #[test]
    fn a_client_of_this_process_says_so() {
        let here = Peer::here(Some("label"));
        assert_eq!((here.pid, here.label.as_deref()), (std::process::id(), Some("label")));
        assert!(!here.host.is_empty());
    }
}
