//! An actix-web handler that answers 409 if the lock is taken, and 503 if Redis is away.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::{StatusCode, header};
use actix_web::{App, HttpResponse, HttpServer, ResponseError, post, web};

use crate::shop::{Refusal, Shop};

pub fn serve(listener: TcpListener, shop: Shop, workers: usize) -> io::Result<Server> {
    // Made here, once: the closure runs in each worker.
    let shop = web::Data::new(shop);
    let server = HttpServer::new(move || App::new().app_data(shop.clone()).service(pay));
    Ok(server.workers(workers).listen(listener)?.run())
}

#[post("/orders/{order}/pay")]
async fn pay(shop: web::Data<Shop>, order: web::Path<i64>) -> Result<String, Refusal> {
    shop.pay(*order, Duration::ZERO).await // zero: one attempt, and no waiting
}

impl ResponseError for Refusal {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Busy | Self::Lost => StatusCode::CONFLICT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        match self {
            Self::Unavailable => drop(response.insert_header((header::RETRY_AFTER, "1"))),
            Self::Failed(error) => eprintln!("{error:#}"),
            Self::Busy | Self::Lost => {}
        }
        response.body(self.to_string())
    }
}
