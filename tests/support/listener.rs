//! Hears what is published on one channel.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use super::Server;

/// Subscribed from the moment it exists.
pub(crate) struct Listener {
    channel: String,
    thread: JoinHandle<Vec<String>>,
}

/// Never published by a lock: tells the listener where to stop.
const END: &str = "end of the test";

impl Listener {
    pub(crate) fn new(server: &Server, channel: &str) -> Self {
        let mut connection = server.connection().expect("a connection to listen on");
        let (subscribed, ready) = mpsc::channel();
        let name = channel.to_owned();
        let thread = thread::spawn(move || {
            let mut pubsub = connection.as_pubsub();
            pubsub.subscribe(&name).expect("subscribing");
            subscribed.send(()).expect("the test is waiting");
            let mut heard = Vec::new();
            loop {
                let message = pubsub.get_message().expect("a message");
                match message.get_payload::<String>().expect("a payload in UTF-8") {
                    end if end == END => return heard,
                    payload => heard.push(payload),
                }
            }
        });
        ready.recv().expect("the listener could not subscribe");
        Self { channel: channel.to_owned(), thread }
    }

    /// Everything that was published since the listener came.
    pub(crate) fn heard(self, server: &Server) -> Vec<String> {
        // Redis keeps the order of a channel: what came before this has been heard before it.
        server.ask::<()>(&["PUBLISH", &self.channel, END]);
        self.thread.join().expect("the listener failed")
    }
}
