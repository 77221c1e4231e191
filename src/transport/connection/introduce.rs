//! The first questions on a new connection.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Script, Value, from_redis_value};

use super::Connection;
use super::stale::{Identity, ServerId, Servers};
use crate::clock;
use crate::transport::error_class::is_fatal;
use crate::transport::version;

impl Connection {
    /// Names the connection, and asks the server for the identities of the connection and of itself, `question`, and
    /// which scripts it lacks. From here on the connection cannot be dropped without a record (see [`stale`]). Returns
    /// the answer, which may be a refusal, and the scripts.
    pub(super) async fn introduce(
        &self,
        name: &str,
        servers: &Servers,
        question: Option<Cmd>,
        scripts: &[&'static Script],
    ) -> RedisResult<(RedisResult<Value>, Vec<&'static Script>)> {
        let mut questions = named(name);
        questions.cmd("CLIENT").arg("INFO").cmd("INFO").arg("server");
        questions.cmd("SCRIPT").arg("EXISTS");
        for script in scripts {
            questions.arg(script.get_hash());
        }
        if let Some(question) = question {
            questions.add_command(question);
        }
        let asked = clock::now();
        let mut answers = self.send_all(&questions).await?.into_iter();
        self.shared.silence.at_most(clock::now().saturating_duration_since(asked));
        // A server that does not take the name works without it.
        let [_name, connection, server, exist, answer] =
            std::array::from_fn(|_| answers.next().unwrap_or(Value::Nil).extract_error());
        for answer in [&connection, &server, &answer] {
            // The server is busy, say, and answers later. A missing permission stays missing.
            if let Err(error) = answer
                && !is_fatal(error)
            {
                return Err(error.clone());
            }
        }
        let text =
            |answer: RedisResult<Value>| answer.and_then(|value| Ok(from_redis_value(value)?));
        match text(connection) {
            Ok(info) => {
                let run_id = text(server).ok().and_then(|info: String| run_id(&info));
                let server = run_id.unwrap_or_else(|| ServerId::Address(self.server().into()));
                if let Some(identity) = Identity::parse(&info) {
                    self.shared.record.identified(identity, servers.of(server));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the server does not identify this connection");
                version::check(self.send(&version::question()).await)?;
            }
        }
        Ok((answer, missing(scripts, exist)))
    }
}

/// The first requests on a connection, of which one gives it that name.
fn named(name: &str) -> Pipeline {
    let mut first = redis::pipe();
    first.cmd("CLIENT").arg("SETNAME").arg(name);
    first
}

/// Sends the first requests on another connection than those for locks, and gives the connection that name,
/// unless its server refuses it. The server executes them one directly after the other.
pub(in crate::transport) async fn ask_first<const N: usize>(
    connection: &mut MultiplexedConnection,
    name: &str,
    requests: [Cmd; N],
) -> RedisResult<[Value; N]> {
    let mut all = named(name);
    for request in requests {
        all.add_command(request);
    }
    let answers = connection.send_packed_commands(&all, 0, N + 1).await?;
    let mut answers = answers.into_iter().skip(1);
    Ok(std::array::from_fn(|_| answers.next().unwrap_or(Value::Nil)))
}

/// From the answer to `ROLE`.
pub(in crate::transport) fn is_primary(role: &Value) -> bool {
    let master = Value::BulkString(b"master".to_vec());
    matches!(role, Value::Array(role) if role.first() == Some(&master))
}

/// From the answer to `SCRIPT EXISTS`. A user that may not ask may still load scripts.
fn missing(scripts: &[&'static Script], exist: RedisResult<Value>) -> Vec<&'static Script> {
    match exist {
        Ok(Value::Array(exist)) => {
            let both = scripts.iter().zip(exist);
            both.filter(|(_, exists)| *exists == Value::Int(0)).map(|(script, _)| *script).collect()
        }
        Err(error) if is_fatal(&error) => scripts.to_vec(),
        // The server loads its data, say.
        _ => Vec::new(),
    }
}

/// From the answer to `INFO server`.
fn run_id(info: &str) -> Option<ServerId> {
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(ServerId::Run(run_id.trim().into()))
}
