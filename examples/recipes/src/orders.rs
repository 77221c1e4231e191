//! A table that remembers the highest fencing token that has written to a row, and refuses an older one.

use redlatch::FencingToken;
use sqlx::PgPool;

#[derive(Clone)]
pub struct Orders {
    pub database: PgPool,
}

impl Orders {
    pub async fn create_table(&self) -> sqlx::Result<()> {
        let create = "CREATE TABLE IF NOT EXISTS orders (
            id BIGINT PRIMARY KEY,
            receipt TEXT,
            token BIGINT NOT NULL DEFAULT 0 -- the highest one that has written here
        )";
        sqlx::query(create).execute(&self.database).await?;
        Ok(())
    }

    pub async fn receipt(&self, order: i64) -> sqlx::Result<Option<String>> {
        let read = "SELECT receipt FROM orders WHERE id = $1";
        sqlx::query_scalar(read).bind(order).fetch_one(&self.database).await
    }

    /// False if a later holder of the order's lock has written to it: the caller has lost the lock.
    pub async fn write(
        &self,
        order: i64,
        receipt: &str,
        token: FencingToken,
    ) -> sqlx::Result<bool> {
        let write = "UPDATE orders SET receipt = $2, token = $3 WHERE id = $1 AND token <= $3";
        let token = i64::try_from(token.get()).expect("a token has 63 bits");
        let write = sqlx::query(write).bind(order).bind(receipt).bind(token);
        Ok(write.execute(&self.database).await?.rows_affected() == 1)
    }
}
