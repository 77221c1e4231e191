//! Where Redis is: one server, the primary that Sentinels name, or the nodes of a cluster.
//!
//! Checked before any I/O. No message of this module quotes more of a url than host and port.

use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::error::Error;
use crate::transport::address::parse;

/// Where Redis is.
pub(crate) enum Endpoint {
    Standalone(ConnectionInfo),
    Sentinel {
        master: String,
        /// For each one the settings to try: its own credentials; or the server's, and then none.
        sentinels: Vec<Vec<ConnectionInfo>>,
        /// How to connect to the primary; its address is yet to be found.
        server: ConnectionInfo,
    },
    /// Some of the nodes.
    Cluster(Vec<ConnectionInfo>),
}

impl Endpoint {
    pub(crate) fn url(url: String) -> Result<Self, Error> {
        Ok(Self::Standalone(parse(&url)?))
    }

    pub(crate) fn client(client: &redis::Client) -> Self {
        Self::Standalone(client.get_connection_info().clone())
    }

    /// `credentials` are the Sentinels' own, if they are not those of the server.
    pub(crate) fn sentinel(
        master: String,
        urls: Vec<String>,
        credentials: Option<(String, String)>,
    ) -> Result<Self, Error> {
        if master.is_empty() {
            return Err(Error::invalid("the master that the sentinels watch has an empty name"));
        }
        let sentinels = alike("sentinel", urls)?;
        let server = sentinels[0].clone();
        let anonymous = RedisConnectionInfo::default();
        let settings = match &credentials {
            Some((user, password)) => vec![anonymous.set_username(user).set_password(password)],
            // A Sentinel has no databases.
            None => vec![server.redis_settings().clone().set_db(0), anonymous],
        };
        let logins = |info: ConnectionInfo| {
            let with =
                |settings: &RedisConnectionInfo| info.clone().set_redis_settings(settings.clone());
            settings.iter().map(with).collect()
        };
        let sentinels = sentinels.into_iter().map(logins).collect();
        Ok(Self::Sentinel { master, sentinels, server })
    }

    pub(crate) fn cluster(urls: Vec<String>) -> Result<Self, Error> {
        let seeds = alike("cluster", urls)?;
        if seeds[0].redis_settings().db() != 0 {
            return Err(Error::invalid("a cluster has only the database 0"));
        }
        Ok(Self::Cluster(seeds))
    }
}

/// The addresses of servers whose other settings are the same: each stands for all of them.
fn alike(what: &str, urls: Vec<String>) -> Result<Vec<ConnectionInfo>, Error> {
    let infos: Vec<_> = urls.iter().map(|url| parse(url)).collect::<Result<_, _>>()?;
    let Some(first) = infos.first() else {
        return Err(Error::invalid(format!("the list of {what} urls is empty")));
    };
    let shared = |info: &ConnectionInfo| {
        let settings = info.redis_settings();
        let user = settings.username().map(str::to_owned);
        let password = settings.password().map(str::to_owned);
        (matches!(info.addr(), ConnectionAddr::TcpTls { .. }), user, password, settings.db())
    };
    if infos.iter().any(|info| matches!(info.addr(), ConnectionAddr::Unix(_))) {
        return Err(Error::invalid(format!("a {what} url is a host and a port, not a socket")));
    }
    if infos.iter().any(|info| shared(info) != shared(first)) {
        return Err(Error::invalid(format!(
            "the {what} urls differ in more than host and port: \
             user, password, database and TLS have to be the same in all of them"
        )));
    }
    Ok(infos)
}

/// After how long without a byte the kernel asks whether the other end is there. A firewall or a load balancer forgets a
/// connection after some minutes in which it carried nothing, and tells neither end: the next call would wait in vain.
const PROBED_AFTER: Duration = Duration::from_secs(30);

/// When the kernel asks again. Where it knows `TCP_USER_TIMEOUT` the connection breaks then if that has passed, and the
/// client makes another one: also after a single probe that was lost.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The settings of every connection of this crate.
pub(super) fn set_up(info: &ConnectionInfo, dial_timeout: Duration) -> ConnectionInfo {
    // RESP3 lets messages and commands share a connection, so that a message can never
    // arrive before the answer to the SUBSCRIBE that asked for it, and both are lost
    // together. Without TCP_NODELAY the second of two commands waits for the first's ACK.
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("redlatch", env!("CARGO_PKG_VERSION"));
    // What a dropped connection has not sent yet is discarded with its socket. For what the
    // network or the server already has, the server closes the connection.
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_linger_time(Duration::ZERO);
    let keepalive = TcpKeepalive::new().with_time(PROBED_AFTER);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let (tcp, keepalive) =
        (tcp.set_user_timeout(dial_timeout), keepalive.with_interval(PROBE_INTERVAL));
    let own = tcp.keepalive().cloned();
    let tcp = tcp.set_keepalive(own.unwrap_or(keepalive));
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    let _ = dial_timeout;
    info.clone().set_redis_settings(redis).set_tcp_settings(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(endpoint: Result<Endpoint, Error>) -> String {
        endpoint.err().expect("a refusal").to_string()
    }

    #[test]
    fn lists_that_cannot_be_of_one_deployment_are_refused_with_the_reason() {
        let two = |second: &str| {
            Endpoint::cluster(vec!["redis://u:secret@a:7000".into(), second.into()]).map(|_| ())
        };
        assert!(two("redis://u:secret@b:7000").is_ok());
        for other in ["redis://u:other@b:7000", "redis://b:7000", "redis://v:secret@b:7000"] {
            let error = two(other).unwrap_err().to_string();
            assert!(error.contains("differ") && !error.contains("secret"), "{error}");
        }
        assert!(refusal(Endpoint::cluster(Vec::new())).contains("empty"));
        assert!(refusal(Endpoint::cluster(vec!["redis://a:7000/1".into()])).contains("database 0"));
        assert!(refusal(Endpoint::cluster(vec!["unix:/run/redis".into()])).contains("socket"));
        let nameless = Endpoint::sentinel(String::new(), vec!["redis://a:26379".into()], None);
        assert!(refusal(nameless).contains("empty name"));
    }

    #[test]
    fn the_database_is_the_servers_and_credentials_can_be_the_sentinels_own() {
        let urls = vec!["redis://app:secret@a:26379/3".to_owned()];
        let own = Some(("watch".to_owned(), "other".to_owned()));
        let endpoint =
            Endpoint::sentinel("m".into(), urls, own).unwrap_or_else(|error| panic!("{error}"));
        let Endpoint::Sentinel { sentinels, server, .. } = endpoint else { panic!("a sentinel") };
        let [sentinel] = &*sentinels[0] else { panic!("one address") };
        let settings = (sentinel.redis_settings(), server.redis_settings());
        assert_eq!((settings.0.db(), settings.0.username()), (0, Some("watch")));
        assert_eq!((settings.1.db(), settings.1.username()), (3, Some("app")));
        assert_eq!((settings.0.password(), settings.1.password()), (Some("other"), Some("secret")));
    }

    #[test]
    fn a_sentinel_may_ask_for_the_credentials_of_the_server_or_for_none() {
        let urls = vec!["redis://app:secret@a:26379/3".to_owned()];
        let endpoint =
            Endpoint::sentinel("m".into(), urls, None).unwrap_or_else(|error| panic!("{error}"));
        let Endpoint::Sentinel { sentinels, .. } = endpoint else { panic!("a sentinel") };
        let logins = sentinels[0].iter().map(ConnectionInfo::redis_settings);
        let logins: Vec<_> = logins
            .map(|settings| (settings.db(), settings.username(), settings.password()))
            .collect();
        assert_eq!(logins, [(0, Some("app"), Some("secret")), (0, None, None)]);
    }
}
