//! The call that sets count and lease of a lock that this client has.

use redis::{Cmd, Value};

use crate::error::{Error, Loss};
use crate::token::TokenBlock;
use crate::transport::{Connection, Request};

use super::fair::token_key;
use super::replies::{loss_of, token_of, unexpected};
use super::scripts::SCRIPTS;
use super::{
    Call, Names, OldestForeignWaiter, QueueEntry, QueueNews, Terms, count_listeners, evalsha,
    millis, publish,
};

/// What Redis says when it has the count and the lease of an update.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Updated {
    /// The fencing tokens that the client has drawn.
    pub(crate) tokens: TokenBlock,
    /// How many clients listen for a release; `None` if that is not known.
    pub(crate) listening: Option<u64>,
    /// If Redis keeps a queue.
    pub(crate) foreign: Option<OldestForeignWaiter>,
}

impl<'a> Call<'a> {
    /// Sets the count and the lease of a lock that `owner` has. `listens` says whether this client is subscribed to the
    /// lock's channel on the connection of that number, and needs no message; `None` if all need one, because no release
    /// follows. `entry` is that of its next waiter, if Redis keeps a queue, and `beside` is the reader that may be beside a
    /// writer that draws no tokens. If Redis does not have the lock, the flag says that an earlier sending was never answered:
    /// it may have been executed.
    pub(crate) async fn update(
        &mut self,
        names: &Names,
        owner: &str,
        terms: Terms,
        listens: Option<impl Fn(u64) -> bool + Send + Sync>,
        (entry, beside): (Option<QueueEntry>, Option<&str>),
    ) -> Result<Result<Updated, (Loss, bool)>, Error> {
        let (is_queued, all_hear) = (entry.is_some(), listens.is_none());
        let is_said = is_queued && names.is_read_write();
        let args = move |cmd: &mut Cmd| {
            cmd.arg(owner).arg(terms.count).arg(millis(terms.lease));
            // That of a read-write lock says it with its entry: there the age of a writer follows.
            if !is_said {
                cmd.arg(terms.tokens);
            }
            // That of a fair lock tells all clients in any case.
            if is_queued && !is_said {
                cmd.arg(if all_hear { "" } else { "0" });
            }
        };
        let mut request = match entry {
            None => self.update_request(names, terms.tokens > 0, listens, args),
            Some(entry) if names.is_read_write() => {
                self.update_read_write(names, (owner, beside), terms.tokens, entry, args)
            }
            Some(entry) => {
                let token = token_key(names, terms.tokens);
                self.queue_request(&SCRIPTS.fair_update, names, entry, token, args)
            }
        };
        let mut answer = self.router.call(&mut self.connection, &mut request).await?;
        let foreign = entry.and_then(|_| QueueNews::take(&mut answer).foreign);
        if let Some(loss) = loss_of(&answer.value) {
            return Ok(Err((loss, answer.repeated)));
        }
        let reply: &[Value] = if let Value::Array(parts) = &answer.value { parts } else { &[] };
        let [Value::Int(listening), token] = reply else {
            return Err(unexpected("update", &answer.value));
        };
        let tokens = match token {
            Value::BulkString(last) => TokenBlock::up_to(token_of(last)?, terms.tokens),
            _ => TokenBlock::default(),
        };
        let listening = u64::try_from(*listening).ok().filter(|_| !answer.asking);
        Ok(Ok(Updated { tokens, listening, foreign }))
    }

    /// Whether this client listens is asked for each sending: a connection that breaks under the request takes the
    /// subscriptions with it.
    fn update_request<'r>(
        &self,
        names: &'r Names,
        draws: bool,
        listens: Option<impl Fn(u64) -> bool + Send + Sync + 'r>,
        args: impl Fn(&mut Cmd) + Send + Sync + 'r,
    ) -> Request<'r>
    where
        'a: 'r,
    {
        let router = self.router;
        let rebuild = move |on: &Connection| {
            let mut cmd = if draws {
                evalsha(&SCRIPTS.update, &[names.key(), &names.token_key()])
            } else {
                evalsha(&SCRIPTS.update, &[names.key()])
            };
            let channels = router.channels();
            args(&mut cmd);
            cmd.arg(names.channel()).arg(count_listeners(channels));
            cmd.arg(publish(channels));
            match &listens {
                Some(listens) => cmd.arg(u8::from(listens(on.number()))),
                None => cmd.arg(""),
            };
            cmd
        };
        let request = self.request(Some(&SCRIPTS.update), Cmd::new(), names.key());
        let publishes_on = Some(names.channel());
        Request { rebuild: Some(Box::new(rebuild)), publishes_on, ..request }
    }
}
