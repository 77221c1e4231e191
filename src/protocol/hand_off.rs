//! The calls that move a lock from owner to owner.

use std::time::Duration;

use redis::Value;

use crate::error::Error;
use crate::kind::Kind;
use crate::transport::Request;

use super::replies::{loss_of, token_of, unexpected};
use super::scripts::SCRIPTS;
use super::{
    Elsewhere, HandOffReply, Names, Place, Released, Session, count_listeners, evalsha, millis,
    publish,
};

impl Session<'_> {
    /// Moves the lock from each of these owners to the next; the last one has it for `lease`.
    /// `listens` says whether this client is subscribed to the lock's channel. The flag says that
    /// an earlier sending was never answered: it may have been executed, and `Nothing` is about the
    /// time after it. `place` is that of this client's next waiter, if Redis keeps a queue.
    pub(crate) async fn send_handoffs(
        &mut self,
        kind: Kind,
        names: &Names,
        owners: &[&str],
        lease: Duration,
        listens: bool,
        place: Option<Place>,
    ) -> Result<(HandOffReply, bool), Error> {
        let mut request = match place {
            None => self.hand_off_request(kind, names, owners, lease, listens),
            Some(place) => self.hand_off_in_order(kind.has_token(), names, owners, lease, place),
        };
        let answer = self.router.call(&mut self.connection, &mut request).await?;
        let done = match answer.value {
            Value::Array(mut reply) if reply.len() == 2 => {
                let (token, listening) = (reply.pop(), reply.pop());
                let token = match (token, kind.has_token()) {
                    (Some(Value::BulkString(number)), true) => Some(token_of(&number)?),
                    (Some(Value::Int(0)), false) => None,
                    (other, _) => {
                        return Err(unexpected("hand_off", &other.unwrap_or(Value::Nil)));
                    }
                };
                let Some(Value::Int(first)) = listening else {
                    return Err(unexpected("hand_off", &listening.unwrap_or(Value::Nil)));
                };
                let elsewhere = place.and_then(|_| Elsewhere::new(answer.sent, first));
                let clients = u64::try_from(first).ok().filter(|_| !answer.asking);
                HandOffReply::Done { token, listening: clients, elsewhere }
            }
            other => {
                let loss = loss_of(&other).ok_or_else(|| unexpected("hand_off", &other))?;
                HandOffReply::Nothing(loss)
            }
        };
        Ok((done, answer.repeated))
    }

    fn hand_off_request<'r>(
        &self,
        kind: Kind,
        names: &'r Names,
        owners: &[&str],
        lease: Duration,
        listens: bool,
    ) -> Request<'r> {
        let mut cmd = if kind.has_token() {
            evalsha(&SCRIPTS.hand_off, &[names.key(), &names.token_key()])
        } else {
            evalsha(&SCRIPTS.hand_off, &[names.key()])
        };
        let channels = self.router.channels();
        cmd.arg(names.channel()).arg(millis(lease)).arg(count_listeners(channels));
        cmd.arg(publish(channels)).arg(u8::from(listens)).arg(owners);
        self.request(Some(&SCRIPTS.hand_off), cmd, names.key())
    }

    /// Moves the lock from its owner to `retainer`, an owner that no handle is, for so long. Replies
    /// like a release that leaves a hold.
    pub(crate) async fn retain(
        &mut self,
        names: &Names,
        owner: &str,
        retainer: &str,
        retention: Duration,
        listens: bool,
        place: Option<Place>,
    ) -> Result<(Released, bool), Error> {
        // The retainer needs no token.
        let owners = [owner, retainer];
        let (reply, repeated) =
            self.send_handoffs(Kind::Reentrant, names, &owners, retention, listens, place).await?;
        let released = match reply {
            HandOffReply::Done { .. } => Released::Held,
            HandOffReply::Nothing(loss) => Released::Nothing(loss),
        };
        Ok((released, repeated))
    }
}
