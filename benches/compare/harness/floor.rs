//! What no lock of this kind can do without: the two scripts through the redis crate, with
//! nothing around them.

use redis::aio::MultiplexedConnection;

use super::peer::{Handle, Peer};
use crate::support::Result;

#[path = "../../../src/protocol/texts.rs"]
mod texts;

#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

pub(crate) struct Pair {
    floor: Floor,
    name: String,
    channel: String,
}

impl Peer for Floor {
    const NAME: &'static str = "floor";

    type Handle = Pair;

    async fn connect(url: &str) -> Result<Self> {
        use redis::IntoConnectionInfo;
        let info = url.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(tcp))?;
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let script = |name| redis::Script::new(&texts::text(name, str::to_owned));
        let acquire = script("acquire").load_async(&mut connection).await?;
        let release = script("release").load_async(&mut connection).await?;
        Ok(Self { connection, acquire, release })
    }

    fn handle(&self, name: &str) -> Result<Pair> {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        Ok(Pair { floor: self.clone(), name: name.into(), channel })
    }
}

impl Handle for Pair {
    type Guard = ();

    /// It does not wait: whoever uses it hands the lock from one to the next.
    async fn lock(&self) -> Result<()> {
        let Floor { mut connection, acquire, .. } = self.floor.clone();
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(acquire).arg(1).arg(&self.name).arg("floor:1").arg(30_000).arg(1);
        Ok(cmd.exec_async(&mut connection).await?)
    }

    async fn unlock(&self, (): ()) -> Result<()> {
        let Floor { mut connection, release, .. } = self.floor.clone();
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(release).arg(1).arg(&self.name).arg("floor:1");
        cmd.arg(&self.channel).arg("PUBLISH");
        Ok(cmd.exec_async(&mut connection).await?)
    }
}
