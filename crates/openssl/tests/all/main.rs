//! The tests of what is attached to OpenSSL, each thing in a module.

mod attach;
mod certificate_memory;
mod certificates;
mod ex_data;
mod self_signed;
mod tickets;

use openssl::ssl::{SslContextBuilder, SslMethod, SslVersion};

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

/// A context of one version.
fn builder(method: SslMethod, version: SslVersion) -> SslContextBuilder {
    let mut builder = SslContextBuilder::new(method).expect("a context");
    builder.set_min_proto_version(Some(version)).expect("a version");
    builder.set_max_proto_version(Some(version)).expect("a version");
    builder
}
