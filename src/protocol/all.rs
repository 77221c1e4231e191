//! One request for several locks, which Redis grants all or none of.

use std::time::{Duration, Instant};

use redis::Value;

use crate::error::Error;
use crate::transport::{Answer, Request};

use super::replies::{acquired, unexpected};
use super::scripts::SCRIPTS;
use super::{Acquired, Call, Names, evalsha, millis};

/// One of the locks: the owner that is to have it, and the hold count to reach.
pub(crate) struct Wanted<'a> {
    pub(crate) names: &'a Names,
    pub(crate) owner: &'a str,
    pub(crate) count: u32,
}

impl Call<'_> {
    /// Asks Redis for all of these locks, which in a cluster are in one slot. Returns which of them is not to be
    /// had, if one is not, and why: then Redis has granted none. Also returns when the request was sent, and
    /// whether an earlier sending was never answered: that may have been granted all the same.
    pub(crate) async fn acquire_all(
        &mut self,
        wanted: &[Wanted<'_>],
        lease: Duration,
    ) -> Result<(Option<(usize, Acquired)>, Instant, bool), Error> {
        let keys: Vec<&str> = wanted.iter().map(|one| one.names.key()).collect();
        let mut cmd = evalsha(&SCRIPTS.acquire_all, &keys);
        cmd.arg(millis(lease));
        for one in wanted {
            cmd.arg(one.owner).arg(one.count);
        }
        let mut request = Request {
            key: keys.first().copied(),
            ..self.request(Some(&SCRIPTS.acquire_all), cmd, "several locks")
        };
        request.was_sent = Some(&mut self.was_sent);
        let answer = self.router.call(&mut self.connection, &mut request).await?;
        let (sent, repeated) = (answer.sent, answer.repeated);
        let Value::Array(mut parts) = answer.value else {
            return match answer.value {
                Value::Nil => Ok((None, sent, repeated)),
                other => Err(unexpected("acquire_all", &other)),
            };
        };
        match (parts.pop(), parts.pop()) {
            (Some(value), Some(Value::Int(at @ 1..))) if at as usize <= wanted.len() => {
                let (refused, sent) = acquired(Answer { value, ..answer }, 0)?;
                Ok((Some((at as usize - 1, refused)), sent, repeated))
            }
            (last, _) => Err(unexpected("acquire_all", &last.unwrap_or(Value::Nil))),
        }
    }
}
