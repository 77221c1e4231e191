//! A unary call of tonic that waits for the lock for as long as its caller does, and says in a status what came of it.

use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::shop::{Refusal, Shop};
use generated::till_server::Till;

/// What `build.rs` makes, as `tonic-prost-build` does of a `.proto` file.
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/shop.Till.rs"));
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PayRequest {
    #[prost(int64, tag = "1")]
    pub order: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PayReply {
    #[prost(string, tag = "1")]
    pub receipt: String,
}

#[tonic::async_trait]
impl Till for Shop {
    async fn pay(&self, request: Request<PayRequest>) -> Result<Response<PayReply>, Status> {
        let wait = time_left(request.metadata()).map_or(UNLESS_SAID, |left| left / 2);
        let receipt = Shop::pay(self, request.get_ref().order, wait).await?;
        Ok(Response::new(PayReply { receipt }))
    }
}

/// How long a call waits if its caller names no time.
const UNLESS_SAID: Duration = Duration::from_secs(5);

/// How long the caller waits for the answer, which is in the header `grpc-timeout`: `250m` is 250 milliseconds.
fn time_left(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = number.parse().ok()?;
    let unit = match unit {
        "H" => Duration::from_secs(3600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    Some(unit * number) // of at most eight digits
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Busy => Status::aborted(text),
            Refusal::Unavailable => Status::unavailable(text),
            Refusal::Lost => Status::unknown(text),
            Refusal::Failed(error) => {
                eprintln!("{error:#}");
                Status::internal(text)
            }
        }
    }
}
