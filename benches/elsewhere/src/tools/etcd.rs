//! etcd's own lock, by its client: the lock lives as long as a lease, and here each seat has one.

use std::sync::Arc;

use etcd_client::{Client, Compare, CompareOp, LockOptions, Txn, TxnOp};
use tokio::task::JoinHandle;

use crate::LEASE;
use crate::seat::{Seat, Store, Tool};
use crate::servers::Sites;
use crate::support::Result;

use super::rows::{Row, Session};

async fn connect(sites: &Sites) -> Result<Client> {
    Ok(Client::connect([format!("127.0.0.1:{}", sites.etcd)], None).await?)
}

/// A lease that is renewed, and the lock that goes with it.
pub(super) struct Leased {
    client: Client,
    name: String,
    lease: i64,
    /// The key that is the lock, while it is held.
    key: Vec<u8>,
    renewed: JoinHandle<()>,
}

impl Leased {
    async fn begin(mut client: Client, name: &str) -> Result<Self> {
        let lease = client.lease_grant(LEASE.as_secs() as i64, None).await?.id();
        let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
        let renewed = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(LEASE / 3);
            loop {
                ticks.tick().await;
                if keeper.keep_alive().await.is_err() || answers.message().await.is_err() {
                    return;
                }
            }
        });
        Ok(Self { client, name: name.into(), lease, key: Vec::new(), renewed })
    }

    async fn lock(&mut self) -> Result<()> {
        let options = LockOptions::new().with_lease(self.lease);
        let name = format!("lock/{}", self.name);
        self.key = self.client.lock(name, Some(options)).await?.key().to_vec();
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        self.client.unlock(std::mem::take(&mut self.key)).await?;
        Ok(())
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.renewed.abort();
    }
}

/// The row is in PostgreSQL.
pub(super) struct Plain {
    client: Client,
    session: Arc<Session>,
}

impl Tool for Plain {
    type Seat = PlainSeat;

    async fn connect(sites: &Sites) -> Result<Self> {
        Ok(Self { client: connect(sites).await?, session: Session::open(sites).await? })
    }

    async fn seat(&self, name: &str) -> Result<PlainSeat> {
        let leased = Leased::begin(self.client.clone(), name).await?;
        Ok(PlainSeat { leased, row: Row::new(&self.session, name) })
    }
}

pub(super) struct PlainSeat {
    leased: Leased,
    row: Row,
}

impl Seat for PlainSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        self.leased.lock().await
    }

    async fn unlock(&mut self) -> Result<()> {
        self.leased.unlock().await
    }

    fn store(&mut self) -> &mut Row {
        &mut self.row
    }
}

/// The row is in etcd, and a write compares.
pub(super) struct Compared(Client);

impl Tool for Compared {
    type Seat = ComparedSeat;

    async fn connect(sites: &Sites) -> Result<Self> {
        Ok(Self(connect(sites).await?))
    }

    async fn seat(&self, name: &str) -> Result<ComparedSeat> {
        Ok(ComparedSeat(Leased::begin(self.0.clone(), name).await?))
    }
}

pub(super) struct ComparedSeat(Leased);

impl Seat for ComparedSeat {
    type Store = Leased;

    async fn lock(&mut self) -> Result<()> {
        self.0.lock().await
    }

    async fn unlock(&mut self) -> Result<()> {
        self.0.unlock().await
    }

    fn store(&mut self) -> &mut Leased {
        &mut self.0
    }
}

impl Leased {
    fn row(&self) -> String {
        format!("stock/{}", self.name)
    }
}

impl Store for Leased {
    async fn stock(&mut self, pieces: i64) -> Result<()> {
        let row = self.row();
        self.client.put(row, pieces.to_string(), None).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<i64> {
        let row = self.row();
        let answer = self.client.get(row, None).await?;
        Ok(answer.kvs().first().ok_or("no such row")?.value_str()?.parse()?)
    }

    /// The key has the lease's number in its name, so that no other holder ever has the same: it
    /// has been created and not deleted as long as its revision is not 0.
    async fn write(&mut self, pieces: i64) -> Result<bool> {
        let held = Compare::create_revision(&*self.key, CompareOp::NotEqual, 0);
        let put = TxnOp::put(self.row(), pieces.to_string(), None);
        let answer = self.client.txn(Txn::new().when([held]).and_then([put])).await?;
        Ok(answer.succeeded())
    }
}
