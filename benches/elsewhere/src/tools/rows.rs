//! The row in PostgreSQL that everybody's lock protects who has no store of his own.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls, Statement};

use crate::seat::{Seat, Store, Tool};
use crate::servers::Sites;
use crate::support::Result;

const TABLES: &str = "
    CREATE TABLE stock (
        name text PRIMARY KEY,
        pieces bigint NOT NULL,
        version bigint NOT NULL DEFAULT 0,
        token bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE turn (name text PRIMARY KEY, owner text NOT NULL, ends timestamptz NOT NULL);
";

pub(crate) async fn prepare(sites: &Sites) -> Result<()> {
    // The port is open some time before it serves.
    for _ in 0..100 {
        if let Ok(client) = connect(sites).await {
            return Ok(client.batch_execute(TABLES).await?);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("PostgreSQL does not take connections".into())
}

async fn connect(sites: &Sites) -> Result<Client> {
    let config = format!("host=127.0.0.1 port={} user=postgres", sites.postgres);
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    // An error is an error of whoever uses the client, too.
    tokio::spawn(connection);
    Ok(client)
}

/// A session, and what is said in it of a row.
pub(super) struct Session {
    pub(super) client: Client,
    read: Statement,
    write: Statement,
    write_fenced: Statement,
}

impl Session {
    pub(super) async fn open(sites: &Sites) -> Result<Arc<Self>> {
        let client = connect(sites).await?;
        let read = client.prepare("SELECT pieces FROM stock WHERE name = $1").await?;
        let write = client.prepare("UPDATE stock SET pieces = $2 WHERE name = $1").await?;
        let fenced = "UPDATE stock SET pieces = $2, token = $3 WHERE name = $1 AND token <= $3";
        let write_fenced = client.prepare(fenced).await?;
        Ok(Arc::new(Self { client, read, write, write_fenced }))
    }
}

pub(super) struct Row {
    pub(super) session: Arc<Session>,
    pub(super) name: String,
}

impl Row {
    pub(super) fn new(session: &Arc<Session>, name: &str) -> Self {
        Self { session: Arc::clone(session), name: name.into() }
    }

    /// In a session that nobody else uses.
    pub(super) async fn open(sites: &Sites, name: &str) -> Result<Self> {
        Ok(Self { session: Session::open(sites).await?, name: name.into() })
    }

    pub(super) async fn prepare(&self, statement: &str) -> Result<Statement> {
        Ok(self.session.client.prepare(statement).await?)
    }

    pub(super) async fn write_fenced(&self, pieces: i64, token: i64) -> Result<bool> {
        let Session { client, write_fenced, .. } = &*self.session;
        Ok(client.execute(write_fenced, &[&self.name, &pieces, &token]).await? == 1)
    }
}

impl Store for Row {
    async fn stock(&mut self, pieces: i64) -> Result<()> {
        let insert = "INSERT INTO stock (name, pieces) VALUES ($1, $2)";
        self.session.client.execute(insert, &[&self.name, &pieces]).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<i64> {
        let Session { client, read, .. } = &*self.session;
        Ok(client.query_one(read, &[&self.name]).await?.get(0))
    }

    async fn write(&mut self, pieces: i64) -> Result<bool> {
        let Session { client, write, .. } = &*self.session;
        Ok(client.execute(write, &[&self.name, &pieces]).await? == 1)
    }
}

/// Nobody keeps anybody out: what the sale is like then.
pub(super) struct Unlocked(Arc<Session>);

pub(super) struct UnlockedSeat(Row);

impl Tool for Unlocked {
    type Seat = UnlockedSeat;

    async fn connect(sites: &Sites) -> Result<Self> {
        Ok(Self(Session::open(sites).await?))
    }

    async fn seat(&self, name: &str) -> Result<UnlockedSeat> {
        Ok(UnlockedSeat(Row::new(&self.0, name)))
    }
}

impl Seat for UnlockedSeat {
    type Store = Row;

    async fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        Ok(())
    }

    fn store(&mut self) -> &mut Row {
        &mut self.0
    }
}
