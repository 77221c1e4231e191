//! What PostgreSQL alone can do. Each seat has a session of its own, as whoever waits or holds in
//! PostgreSQL needs one.

use std::time::Duration;

use tokio_postgres::Statement;

use crate::LEASE;
use crate::seat::{Sale, Seat, Tool, work};
use crate::servers::Sites;
use crate::support::Result;

use super::rows::{Row, Session};

/// How often who does not get a unique row tries again.
const POLL: Duration = Duration::from_millis(10);

/// All that a tool is here: the seats do the rest.
macro_rules! tool {
    ($Tool:ident => $Seat:ident) => {
        pub(super) struct $Tool(Sites);

        impl Tool for $Tool {
            type Seat = $Seat;

            async fn connect(sites: &Sites) -> Result<Self> {
                Ok(Self(*sites))
            }

            async fn seat(&self, name: &str) -> Result<$Seat> {
                $Seat::open(Row::open(&self.0, name).await?).await
            }
        }
    };
}

tool!(OneUpdate => OneUpdateSeat);
tool!(Version => VersionSeat);
tool!(ForUpdate => ForUpdateSeat);
tool!(UniqueRow => UniqueRowSeat);

/// The check and the write in one statement: there is nothing to lock.
pub(super) struct OneUpdateSeat {
    row: Row,
    buy: Statement,
}

impl OneUpdateSeat {
    async fn open(row: Row) -> Result<Self> {
        let buy = "UPDATE stock SET pieces = pieces - 1 WHERE name = $1 AND pieces > 0";
        let buy = row.prepare(buy).await?;
        Ok(Self { row, buy })
    }
}

impl Seat for OneUpdateSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }

    async fn buy(&mut self) -> Result<Sale> {
        let changed = self.row.session.client.execute(&self.buy, &[&self.row.name]).await?;
        Ok(if changed == 1 { Sale::Sold } else { Sale::SoldOut })
    }
}

/// Nobody waits: the write of whoever was not the first since the read is refused.
pub(super) struct VersionSeat {
    row: Row,
    read: Statement,
    write: Statement,
    version: i64,
}

impl VersionSeat {
    async fn open(row: Row) -> Result<Self> {
        let read = row.prepare("SELECT pieces, version FROM stock WHERE name = $1").await?;
        let write = "UPDATE stock SET pieces = $2, version = version + 1
                     WHERE name = $1 AND version = $3";
        let write = row.prepare(write).await?;
        Ok(Self { row, read, write, version: 0 })
    }
}

impl Seat for VersionSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }

    async fn read(&mut self) -> Result<i64> {
        let Row { session, name } = &self.row;
        let row = session.client.query_one(&self.read, &[name]).await?;
        self.version = row.get(1);
        Ok(row.get(0))
    }

    async fn write(&mut self, pieces: i64) -> Result<bool> {
        let Row { session, name } = &self.row;
        let changed = session.client.execute(&self.write, &[name, &pieces, &self.version]).await?;
        Ok(changed == 1)
    }

    async fn turn(&mut self, length: Duration) -> Result<bool> {
        let pieces = self.read().await?;
        work(length).await;
        self.write(pieces).await
    }
}

/// The lock of the row itself, until the transaction ends.
pub(super) struct ForUpdateSeat {
    row: Row,
    lock: Statement,
    pieces: i64,
}

impl ForUpdateSeat {
    async fn open(row: Row) -> Result<Self> {
        let lock = row.prepare("SELECT pieces FROM stock WHERE name = $1 FOR UPDATE").await?;
        let limit = format!("SET idle_in_transaction_session_timeout = '{} s'", LEASE.as_secs());
        row.session.client.batch_execute(&limit).await?;
        Ok(Self { row, lock, pieces: 0 })
    }
}

impl Seat for ForUpdateSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        let Row { session, name } = &self.row;
        session.client.batch_execute("BEGIN").await?;
        self.pieces = session.client.query_one(&self.lock, &[name]).await?.get(0);
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        Ok(self.row.session.client.batch_execute("COMMIT").await?)
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }

    /// Whoever has locked it has read it.
    async fn read(&mut self) -> Result<i64> {
        Ok(self.pieces)
    }
}

/// A number that a session has locked. The session ends when it says nothing for too long while it
/// holds. The session that holds also writes, or another one does.
pub(super) struct Advisory<const SAME: bool>(Sites);

pub(super) struct AdvisorySeat {
    holder: Row,
    writer: Row,
    lock: Statement,
    unlock: Statement,
}

impl<const SAME: bool> Tool for Advisory<SAME> {
    type Seat = AdvisorySeat;

    async fn connect(sites: &Sites) -> Result<Self> {
        Ok(Self(*sites))
    }

    async fn seat(&self, name: &str) -> Result<AdvisorySeat> {
        let holder = Row::open(&self.0, name).await?;
        let lock = format!(
            "SELECT pg_advisory_lock(hashtextextended($1, 0)),
                    set_config('idle_session_timeout', '{} s', false)",
            LEASE.as_secs()
        );
        let unlock = "SELECT pg_advisory_unlock(hashtextextended($1, 0)),
                             set_config('idle_session_timeout', '0', false)";
        let (lock, unlock) = (holder.prepare(&lock).await?, holder.prepare(unlock).await?);
        let session = if SAME { holder.session.clone() } else { Session::open(&self.0).await? };
        Ok(AdvisorySeat { writer: Row::new(&session, name), holder, lock, unlock })
    }
}

impl Seat for AdvisorySeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        let Row { session, name } = &self.holder;
        session.client.query_one(&self.lock, &[name]).await?;
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        let Row { session, name } = &self.holder;
        session.client.query_one(&self.unlock, &[name]).await?;
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.writer
    }
}

/// A row that only one can insert, with an end. Nobody tells a waiter, and nobody renews it.
pub(super) struct UniqueRowSeat {
    row: Row,
    owner: String,
    lock: Statement,
    unlock: Statement,
}

impl UniqueRowSeat {
    async fn open(row: Row) -> Result<Self> {
        let lock = format!(
            "INSERT INTO turn VALUES ($1, $2, now() + '{} s')
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, ends = excluded.ends
             WHERE turn.ends < now()",
            LEASE.as_secs()
        );
        let lock = row.prepare(&lock).await?;
        let unlock = row.prepare("DELETE FROM turn WHERE name = $1 AND owner = $2").await?;
        Ok(Self { row, owner: uuid::Uuid::new_v4().to_string(), lock, unlock })
    }
}

impl Seat for UniqueRowSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        let Row { session, name } = &self.row;
        while session.client.execute(&self.lock, &[name, &self.owner]).await? == 0 {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        let Row { session, name } = &self.row;
        session.client.execute(&self.unlock, &[name, &self.owner]).await?;
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }
}
