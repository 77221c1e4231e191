//! That the network and the clock on which the other tests stand do what they think they do.

use std::time::{Duration, Instant};

use crate::support::{Distance, Network, SOON, Server, machine, ms};

/// The least that a request and its answer take: what a busy machine adds is not the network's.
fn round_trip(connection: &mut redis::Connection) -> Duration {
    let times = (0..25).map(|_| {
        let start = Instant::now();
        redis::cmd("PING").exec(connection).expect("an answer");
        start.elapsed()
    });
    times.min().expect("25 of them")
}

fn connect(network: &Network, server: &Server) -> redis::Connection {
    let client = redis::Client::open(network.url(server)).expect("a url");
    client.get_connection().expect("a connection")
}

#[test]
fn a_round_trip_takes_what_was_set() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let network = Network::new(&server, Distance::default());
    let mut connection = connect(&network, &server);
    // What the two threads cost, and this machine.
    let none = round_trip(&mut connection);
    for wanted in [ms(1), ms(4), ms(20), ms(2)] {
        network.set(Distance::round_trip(wanted));
        let taken = round_trip(&mut connection);
        assert!(taken >= wanted, "{taken:?} for {wanted:?}");
        // A tenth of a millisecond each way, on a machine that has other things to do.
        assert!(taken < wanted + none + ms(2), "{taken:?} for {wanted:?}");
    }
}

#[test]
fn a_connection_takes_a_round_trip_of_its_own_to_be_made() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let network = Network::new(&server, Distance::round_trip(ms(40)));
    let start = Instant::now();
    let mut connection = connect(&network, &server);
    redis::cmd("PING").exec(&mut connection).expect("an answer");
    assert!(start.elapsed() >= ms(80), "{:?}", start.elapsed());
    assert_eq!(network.connections(), 1);
}

#[test]
fn jitter_is_spread_over_its_range_and_changes_no_order() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let network = Network::new(&server, Distance { jitter: ms(20), ..Distance::default() });
    let mut connection = connect(&network, &server);
    let times: Vec<Duration> = (0..40)
        .map(|number| {
            let start = Instant::now();
            let echo: String = redis::cmd("ECHO").arg(number).query(&mut connection).expect("echo");
            assert_eq!(echo, number.to_string());
            start.elapsed()
        })
        .collect();
    let (least, most) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
    // Two draws from 0 to 20 ms each.
    assert!(*least < ms(15) && *most > ms(25), "{least:?} to {most:?}");
}

#[test]
fn a_narrow_network_takes_time_for_each_byte() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let narrow = Distance { bandwidth: Some(100_000), ..Distance::default() };
    let network = Network::new(&server, narrow);
    let mut connection = connect(&network, &server);
    let start = Instant::now();
    redis::cmd("SET").arg("key").arg(vec![b'x'; 20_000]).exec(&mut connection).expect("an answer");
    assert!(start.elapsed() >= ms(200), "{:?}", start.elapsed());
}

#[test]
fn a_stall_holds_everything_up_and_a_cut_breaks_everything() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let network = Network::new(&server, Distance::default());
    let mut connection = connect(&network, &server);
    let start = Instant::now();
    network.stall(ms(150));
    redis::cmd("PING").exec(&mut connection).expect("an answer");
    assert!(start.elapsed() >= ms(150) && start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(network.cut_all(), 1);
    redis::cmd("PING").exec(&mut connection).expect_err("a broken connection");
}

#[test]
fn only_the_time_in_which_a_thread_was_kept_waiting_is_not_counted() {
    let begun = Instant::now();
    let at = |millis| begun + ms(millis);
    let late = [(at(40), ms(10)), (at(110), ms(30)), (at(160), ms(20)), (at(210), ms(30))];
    let passed = |since, end| machine::without(&late, at(since), at(end));
    assert_eq!(passed(40, 80), ms(40), "nothing was late");
    assert_eq!(passed(100, 120), ms(10), "late from before");
    assert_eq!(passed(100, 200), ms(100 - 10 - 20 - 20), "late before, meanwhile, and after");
    assert_eq!(passed(150, 155), ms(0), "late all the time");
}
