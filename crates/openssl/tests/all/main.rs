//! The tests of what is attached to OpenSSL, each thing in a module.

mod attach;
mod certificate_memory;
mod certificates;
mod ex_data;
mod retry;
mod self_signed;
mod tickets;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslStream, SslVersion};

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

/// A context of one version.
fn builder(method: SslMethod, version: SslVersion) -> SslContextBuilder {
    let mut builder = SslContextBuilder::new(method).expect("a context");
    builder.set_min_proto_version(Some(version)).expect("a version");
    builder.set_max_proto_version(Some(version)).expect("a version");
    builder
}

/// Shakes hands over sockets, runs both sides, and returns their results.
fn meet<S: Send, C>(
    server: &SslContext,
    client: Ssl,
    serve: impl FnOnce(&mut SslStream<UnixStream>) -> S + Send,
    call: impl FnOnce(&mut SslStream<UnixStream>) -> C,
) -> (S, C) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let server = Ssl::new(server).expect("a server connection");
    thread::scope(|scope| {
        let served = scope.spawn(move || {
            let mut stream = SslStream::new(server, theirs).expect("a stream");
            stream.accept().expect("a handshake");
            serve(&mut stream)
        });
        let mut stream = SslStream::new(client, ours).expect("a stream");
        stream.connect().expect("a handshake");
        let called = call(&mut stream);
        drop(stream);
        (served.join().expect("the server"), called)
    })
}

/// Says a word as a server, and waits until the client closes.
fn say(stream: &mut SslStream<UnixStream>) {
    stream.write_all(b"!").expect("a word");
    let _ = stream.read(&mut [0]);
}
