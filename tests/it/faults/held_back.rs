//! The proxy counts what became of the commands that it held back.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Fault, Proxy, SOON, Server, block_until, ms};

const WRITE: &[u8] = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";

/// A server, its proxy, and a connection whose INCR the proxy holds back.
fn held_back(fault: Fault) -> (Server, Proxy, TcpStream) {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("connecting");
    proxy.plan("INCR", 1, fault);
    client.write_all(WRITE).expect("writing");
    block_until("a command that is held back", SOON, || proxy.held() == 1);
    assert!(!proxy.fates_are_known());
    assert!(!server.exists("n"), "the server has it already");
    (server, proxy, client)
}

fn fates(proxy: &Proxy) -> (u64, u64, u64) {
    block_until("the fate of the command", SOON, || proxy.fates_are_known());
    (proxy.executed_late(), proxy.executed_slow(), proxy.came_to_nothing())
}

#[test]
fn a_command_whose_client_has_gone_is_executed_late() {
    let (server, proxy, mut client) = held_back(Fault::HoldBackFor(ms(2_000)));
    // It was sent, too, and is behind the other.
    client.write_all(WRITE).expect("writing");
    drop(client);
    assert_eq!(fates(&proxy), (1, 0, 0));
    block_until("both commands", SOON, || server.ask::<i64>(&["GET", "n"]) == 2);
}

#[test]
fn a_command_whose_client_waits_is_executed_slowly() {
    let (_server, proxy, mut client) = held_back(Fault::HoldBackFor(ms(2_000)));
    let mut answer = [0; 4];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b":1\r\n");
    assert_eq!(fates(&proxy), (0, 1, 0));
}

#[test]
fn a_command_whose_connection_the_server_closes_comes_to_nothing() {
    let (server, proxy, client) = held_back(Fault::HoldBack);
    drop(client);
    server.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    proxy.let_go();
    assert_eq!(fates(&proxy), (0, 0, 1));
    assert!(!server.exists("n"));
}

#[test]
fn a_command_whose_connection_is_cut_comes_to_nothing() {
    let (server, proxy, _client) = held_back(Fault::HoldBackFor(SOON));
    proxy.cut_all();
    assert_eq!(fates(&proxy), (0, 0, 1));
    assert!(!server.exists("n"));
}

#[test]
fn a_command_that_the_server_refuses_comes_to_nothing() {
    let (server, proxy, client) = held_back(Fault::HoldBack);
    server.ask::<()>(&["SET", "n", "words"]);
    drop(client);
    proxy.let_go();
    assert_eq!(fates(&proxy), (0, 0, 1));
}
