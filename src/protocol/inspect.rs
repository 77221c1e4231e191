//! Asks Redis who has a lock, and changes nothing.

use redis::Value;

use super::replies::{lease_of, unexpected};
use super::scripts::SCRIPTS;
use super::{Call, Inspected, Mode, Names, evalsha};
use crate::error::Error;
use crate::transport::Request;

impl Call<'_> {
    /// What Redis knows of the lock, and of the holds of `owner`; `None` if the lock is free.
    pub(crate) async fn inspect(
        &mut self,
        names: &Names,
        owner: &str,
    ) -> Result<Option<Inspected>, Error> {
        let mut request = self.inspection(names, owner, false);
        match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Nil => Ok(None),
            other => inspected(&other).map(Some).ok_or_else(|| unexpected("inspect", &other)),
        }
    }

    /// Who has the lock; of a read-write lock only the owners of this client.
    pub(crate) async fn holders(&mut self, names: &Names) -> Result<Vec<Box<str>>, Error> {
        let mut request = self.inspection(names, "", names.is_read_write());
        match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Nil => Ok(Vec::new()),
            other => holders(&other).ok_or_else(|| unexpected("inspect", &other)),
        }
    }

    /// `names_own` has the script name all owners of this client that have the lock.
    fn inspection<'r>(&self, names: &'r Names, owner: &str, names_own: bool) -> Request<'r> {
        let script = if names.is_read_write() { &SCRIPTS.rw_inspect } else { &SCRIPTS.inspect };
        let mut cmd = evalsha(script, &[names.key()]);
        cmd.arg(owner);
        if names_own {
            cmd.arg(names.client());
        }
        self.request(Some(script), cmd, names.key())
    }
}

/// A lock that is held.
pub(super) fn inspected(reply: &Value) -> Option<Inspected> {
    let Value::Array(parts) = reply else { return None };
    match &**parts {
        [Value::Int(ttl), count, Value::BulkString(holder), mode @ ..] => {
            let count = redis::from_redis_value_ref(count).ok()?;
            let holder = String::from_utf8_lossy(holder).into();
            let mode = match mode {
                [] => None,
                [Value::BulkString(mode)] if mode == b"read" => Some(Mode::Read),
                [Value::BulkString(mode)] if mode == b"write" => Some(Mode::Write),
                _ => return None,
            };
            Some(Inspected { remaining: lease_of(*ttl), count, holder, mode })
        }
        _ => None,
    }
}

/// Who has a lock that is held: what a script says of the owners of one client, or the one holder.
fn holders(reply: &Value) -> Option<Vec<Box<str>>> {
    let Value::Array(parts) = reply else { return None };
    let holders = match &**parts {
        [_, _, _, _, Value::Array(own)] => own,
        [_, _, holder] => std::slice::from_ref(holder),
        _ => return None,
    };
    let holder = |one: &Value| match one {
        Value::BulkString(holder) => Some(String::from_utf8_lossy(holder).into()),
        _ => None,
    };
    holders.iter().map(holder).collect()
}
