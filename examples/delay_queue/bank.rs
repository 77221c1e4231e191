//! Accounts in Redis, which carry each request out once.

use redis::Script;
use redis::aio::MultiplexedConnection;
use redlatch::FencedLockGuard;

use crate::support::Result;

/// KEYS account; ARGV request, amount, fencing token. Replies with the token with which the request
/// was carried out: an older one if that was done before.
const CARRY_OUT: &str = "
    local before = redis.call('hget', KEYS[1], 'request:' .. ARGV[1])
    if before then return before end
    if tonumber(redis.call('hget', KEYS[1], 'token') or 0) > tonumber(ARGV[3]) then
        return redis.error_reply('STALE another holder of the lock has been here since')
    end
    redis.call('hincrby', KEYS[1], 'balance', ARGV[2])
    redis.call('hset', KEYS[1], 'token', ARGV[3], 'request:' .. ARGV[1], ARGV[3])
    return ARGV[3]";

pub(crate) struct Bank {
    redis: MultiplexedConnection,
    name: String,
}

impl Bank {
    pub(crate) async fn open(url: &str, name: &str) -> Result<Self> {
        let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { redis, name: name.to_owned() })
    }

    /// The name of an account's lock.
    pub(crate) fn lock(&self, account: usize) -> String {
        format!("{}:lock:{account}", self.name)
    }

    /// Pays an amount into an account, unless this request has done so before. Returns the fencing
    /// token of the hold that did it.
    pub(crate) async fn pay_in(
        &self,
        guard: &FencedLockGuard,
        account: usize,
        request: &str,
        amount: i64,
    ) -> Result<u64> {
        let script = Script::new(CARRY_OUT);
        let mut call = script.key(self.account(account));
        call.arg(request).arg(amount).arg(guard.token().get());
        Ok(call.invoke_async(&mut self.redis.clone()).await?)
    }

    pub(crate) async fn balance(&self, account: usize) -> Result<i64> {
        let mut command = redis::cmd("HGET");
        command.arg(self.account(account)).arg("balance");
        Ok(command.query_async(&mut self.redis.clone()).await?)
    }

    /// Removes the accounts, what a fenced lock leaves behind, and these keys.
    pub(crate) async fn clear_away(&self, accounts: usize, keys: &[String]) -> Result<()> {
        let mut command = redis::cmd("DEL");
        for account in 0..accounts {
            command.arg(self.account(account));
            command.arg(format!("redisson_lock_token:{{{}}}", self.lock(account)));
        }
        Ok(command.arg(keys).exec_async(&mut self.redis.clone()).await?)
    }

    fn account(&self, account: usize) -> String {
        format!("{}:account:{account}", self.name)
    }
}
