//! A connection to a Sentinel, and what it says of the primary.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::reports::Report;
use crate::clock;
use crate::host::Driven;
use crate::transport::connection::dial::Dialer;
use crate::transport::connection::{ask_first, open};
use crate::transport::error_class::is_fatal;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Switch,
    End,
}

/// Connects with the first settings that are not refused. The events are those of that primary: a Sentinel may watch
/// many, and all of them may fail over together.
pub(super) async fn connect(
    logins: &[ConnectionInfo],
    name: &str,
    answer_timeout: Duration,
) -> RedisResult<(Driven, UnboundedReceiver<Event>)> {
    let mut refusal = None;
    for info in logins {
        match connect_as(info.clone(), name, answer_timeout).await {
            Err(error) if is_fatal(&error) => {
                refusal.get_or_insert(error);
            }
            connected => return connected,
        }
    }
    Err(refusal.expect("BUG: no address of a sentinel"))
}

pub(super) async fn connect_as(
    info: ConnectionInfo,
    name: &str,
    answer_timeout: Duration,
) -> RedisResult<(Driven, UnboundedReceiver<Event>)> {
    let (events, received) = unbounded_channel();
    let begin = format!("{name} ").into_bytes();
    let is_of_another =
        move |said: &Value| matches!(said, Value::BulkString(said) if !said.starts_with(&begin));
    let tell = move |info: redis::PushInfo| match info.kind {
        PushKind::Message if info.data.last().is_some_and(&is_of_another) => Ok(()),
        PushKind::Message => events.send(Event::Switch),
        PushKind::Disconnection => events.send(Event::End),
        _ => Ok(()),
    };
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(tell);
    Ok((open(&redis::Client::open(info)?, config, answer_timeout).await?, received))
}

/// The answer of a Sentinel.
#[derive(Clone)]
pub(super) struct Said {
    pub(super) report: Report,
    /// How many Sentinels it knows of, itself included.
    pub(super) known: usize,
    pub(super) asked: Instant,
}

pub(super) async fn fetch_report(
    sentinel: &mut MultiplexedConnection,
    name: &str,
    dialer: &Dialer,
) -> RedisResult<Said> {
    let asked = clock::now();
    // A Sentinel that leads a failover has the new epoch, and describes the old primary, until all replicas follow the
    // new one. The address that it gives to clients is the new one.
    let [fields, address] = ["MASTER", "GET-MASTER-ADDR-BY-NAME"].map(|what| {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg(what).arg(name);
        ask
    });
    let answers = ask_first(sentinel, &dialer.name, [fields, address]);
    let [fields, address] = clock::within(dialer.answer_timeout, answers).await?;
    let fields: BTreeMap<String, String> = redis::from_redis_value(fields.extract_error()?)?;
    let field = |name: &str| fields.get(name);
    let address: Option<(String, u16)> = redis::from_redis_value(address).ok();
    let said = || {
        let described = || Some((field("ip")?.clone(), field("port")?.parse().ok()?));
        let (host, port) = address.or_else(described)?;
        let report = Report { epoch: field("config-epoch")?.parse().ok()?, host, port };
        let others = field("num-other-sentinels").and_then(|others| others.parse().ok());
        Some(Said { report, known: 1 + others.unwrap_or(0_usize), asked })
    };
    let nonsense = (redis::ErrorKind::Parse, "SENTINEL MASTER was answered with something else");
    said().ok_or_else(|| nonsense.into())
}
