//! The service of the recipe with tonic, from a description in Rust, so that it needs no `protoc`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let pay = Method::builder()
        .name("pay")
        .route_name("Pay")
        .input_type("crate::tonic_service::PayRequest")
        .output_type("crate::tonic_service::PayReply")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    Builder::new().compile(&[Service::builder().name("Till").package("shop").method(pay).build()]);
    println!("cargo::rerun-if-changed=build.rs");
}
