//! Addresses: parses them, takes them apart, and prepares the process for those with TLS.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::Error;

const EXPECTED: &str = "expected `redis://[[user]:password@]host[:port][/database]`, the same with \
    `rediss://` for TLS, or `unix://` and the path of a socket";

/// Parses a url. No error quotes what may be a password; the reason may quote a setting behind the `?`.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo, Error> {
    let parsed = url.into_connection_info();
    let is_tls =
        || ["rediss:", "valkeys:"].iter().any(|scheme| url.trim_start().starts_with(scheme));
    match parsed {
        Ok(info) if is_unchecked(info.addr()) => Err(Error::invalid(
            "a url cannot ask for a server whose certificate is not checked; a ready client can",
        )),
        Ok(info) => Ok(info),
        Err(_) if is_tls() && !tls().is_supported() => Err(no_tls()),
        Err(error) => {
            let wrong = match url.split_once(':') {
                _ if url.trim().is_empty() => "is empty",
                Some((_, rest)) if rest.starts_with('/') => "is not usable",
                _ => "has no scheme",
            };
            let message = format!("the url of Redis {wrong}; {EXPECTED}");
            Err(Error::invalid(message).caused_by(error))
        }
    }
}

/// Whether the driver would not check the server's certificate. It refuses that when it dials,
/// unless it is built for it.
fn is_unchecked(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { insecure: true, .. })
}

/// Makes sure that this build can connect to `addr`, with no I/O.
pub(super) fn prepare(addr: &ConnectionAddr) -> Result<(), Error> {
    if !matches!(addr, ConnectionAddr::TcpTls { .. }) {
        return Ok(());
    }
    if !addr.is_supported() {
        return Err(no_tls());
    }
    #[cfg(feature = "rustls")]
    choose_cryptography();
    Ok(())
}

/// The driver leaves the choice to the process. It panics without one if two crates of the program
/// ask rustls for two providers. A provider that the program has installed stays.
#[cfg(feature = "rustls")]
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster: then a provider is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn no_tls() -> Error {
    Error::invalid("this url asks for TLS, which takes the feature `rustls` of redlatch")
}

/// An address with TLS.
fn tls() -> ConnectionAddr {
    let host = String::new();
    ConnectionAddr::TcpTls { host, port: 0, insecure: false, tls_params: None }
}

/// The settings of `info` for another server.
pub(super) fn at(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(addr)
}

/// Host and port, or the path of a socket.
pub(super) fn name(info: &ConnectionInfo) -> String {
    info.addr().to_string()
}

/// Host and port, or the path of a socket.
pub(super) fn parts(info: &ConnectionInfo) -> (String, Option<u16>) {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host.clone(), Some(*port))
        }
        socket => (socket.to_string(), None),
    }
}

/// A host and a port as `MOVED` has them; an IPv6 address has colons of its own.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

pub(super) fn host(info: &ConnectionInfo) -> &str {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv6_keeps_its_colons() {
        assert_eq!(host_and_port("10.0.0.1:7000"), Some(("10.0.0.1", 7000)));
        assert_eq!(host_and_port("fe80::1:7000"), Some(("fe80::1", 7000)));
        assert_eq!(host_and_port(":7000"), Some(("", 7000)));
        assert_eq!(host_and_port("nowhere"), None);
    }
}
