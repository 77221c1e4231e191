//! What is published on a channel, one message at a time.

use std::collections::VecDeque;

use redis::{Connection, FromRedisValue};

/// Tells the end of what was published before.
const LAST: &str = "the last one";

/// A connection that is subscribed to a channel, and what it has heard and the test has not looked at.
pub(super) struct Listening {
    connection: Connection,
    channel: String,
    heard: VecDeque<String>,
}

impl Listening {
    pub(super) fn new(mut connection: Connection, channel: &str) -> Self {
        let subscribe = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        connection.send_packed_command(&subscribe).expect("subscribing");
        connection.recv_response().expect("subscribing");
        Self { connection, channel: channel.to_owned(), heard: VecDeque::new() }
    }

    /// The next message that was published by now. Redis keeps the order of a channel.
    pub(super) fn hears(&mut self, redis: &mut Connection) -> Option<String> {
        redis::cmd("PUBLISH").arg(&self.channel).arg(LAST).exec(redis).expect("publishing");
        loop {
            let message = self.connection.recv_response().expect("a message");
            let (_, _, payload): (String, String, String) =
                FromRedisValue::from_redis_value(message).expect("a message");
            if payload == LAST {
                return self.heard.pop_front();
            }
            self.heard.push_back(payload);
        }
    }
}
