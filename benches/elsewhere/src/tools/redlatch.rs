//! The locks of this crate. One more is one more variant of the two enums, and a `tool!`.

use std::sync::Arc;

use redlatch::{FairLock, FencedLock, FencedLockGuard, Lock, LockClient, LockGuard};

use crate::LEASE;
use crate::seat::{Seat, Store, Tool};
use crate::servers::Sites;
use crate::support::Result;

use super::rows::{Row, Session};

enum Handle {
    Plain(Lock),
    Fenced(FencedLock),
    Fair(FairLock),
}

enum Guard {
    Plain(LockGuard),
    Fenced(FencedLockGuard),
}

macro_rules! tool {
    ($Tool:ident, $of_client:ident) => {
        pub(super) struct $Tool {
            client: LockClient,
            session: Arc<Session>,
        }

        impl Tool for $Tool {
            type Seat = At;

            async fn connect(sites: &Sites) -> Result<Self> {
                Ok(Self { client: connect(sites).await?, session: Session::open(sites).await? })
            }

            async fn seat(&self, name: &str) -> Result<At> {
                let handle = Handle::$Tool(self.client.$of_client(name));
                Ok(At { handle, guard: None, row: Row::new(&self.session, name) })
            }
        }
    };
}

tool!(Plain, lock);
tool!(Fenced, fenced_lock);
tool!(Fair, fair_lock);

async fn connect(sites: &Sites) -> Result<LockClient> {
    let url = format!("redis://127.0.0.1:{}/", sites.redis);
    Ok(LockClient::builder().url(&url).watchdog_timeout(LEASE).connect().await?)
}

pub(super) struct At {
    handle: Handle,
    guard: Option<Guard>,
    row: Row,
}

impl Seat for At {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        self.guard = Some(match &self.handle {
            Handle::Plain(lock) => Guard::Plain(lock.lock().await?),
            Handle::Fenced(lock) => Guard::Fenced(lock.lock().await?),
            Handle::Fair(lock) => Guard::Plain(lock.lock().await?),
        });
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        match self.guard.take() {
            Some(Guard::Plain(guard)) => guard.unlock().await?,
            Some(Guard::Fenced(guard)) => guard.unlock().await?,
            None => {}
        }
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }

    /// It does not ask the guard whether it is lost: the pause comes after that.
    async fn write(&mut self, pieces: i64) -> Result<bool> {
        match &self.guard {
            Some(Guard::Fenced(guard)) => {
                let token = i64::try_from(guard.token().get())?;
                self.row.write_fenced(pieces, token).await
            }
            _ => self.row.write(pieces).await,
        }
    }
}
