//! A capture of four gigabytes and two million connections, made while it is read: each of a client of its own, which is given
//! a session ID of its own.

use rejoin_testkit::process::status_kib;
use rejoin_testkit::shipped::rejoin;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{Effort, Found};
use rejoin_testkit::made_capture::{extension, message, record, with_length};

const CONNECTIONS: u32 = 2_000_000;
const MOST_MB: f64 = 200.0;
/// Application data per connection.
const DATA_BYTES: usize = 500;
/// Connections that are open at once.
const OPEN: u32 = 10_000;

pub(crate) fn memory(_: Effort) -> Option<Found> {
    let mut child = Command::new(rejoin())
        .args(["capture", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let stdin = child.stdin.take()?;
    let writer = thread::spawn(move || write(BufWriter::with_capacity(1 << 20, stdin)));
    let mut peak_kib = 0;
    while child.try_wait().ok()?.is_none() {
        peak_kib = peak_kib.max(status_kib(child.id(), "VmHWM").unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
    let bytes = writer.join().ok()?.ok()?;
    let report: serde_json::Value = serde_json::from_reader(child.stdout.take()?).ok()?;
    let (handshakes, full) = (report["handshakes"].as_u64()?, report["full_observed"].as_u64()?);
    let peak_mb = peak_kib as f64 * 1_024.0 / 1e6;
    let figure = format!("{peak_mb:.0} ({handshakes} handshakes in {:.1} GB)", bytes as f64 / 1e9);
    let complete = handshakes == u64::from(CONNECTIONS) && full == handshakes;
    Some(Found { figure, holds: complete && peak_mb <= MOST_MB && bytes >= 4_000_000_000 })
}

/// The stages of a connection, each of which all open connections go through together.
const STAGES: usize = 4;

fn write(mut to: impl Write) -> std::io::Result<u64> {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101];
    for word in header {
        to.write_all(&word.to_le_bytes())?;
    }
    let mut bytes = 24;
    for first in (0..CONNECTIONS).step_by(OPEN as usize) {
        for stage in 0..STAGES {
            for connection in first..CONNECTIONS.min(first + OPEN) {
                bytes += segment(&mut to, connection, stage)?;
            }
        }
    }
    to.flush()?;
    Ok(bytes)
}

/// The bytes of a stage: true if the client sends them, their offset in the stream, and themselves.
fn said(connection: u32, stage: usize) -> (bool, u32, Vec<u8>) {
    let hello = record(22, &message(1, &client_hello(connection)));
    let (hello_length, finish) = (hello.len() as u32, [record(20, &[1]), record(22, &[0x55; 40])]);
    let server_messages =
        [message(2, &server_hello(connection)), message(11, &[7; 1_200]), message(14, &[])]
            .concat();
    let server = [record(22, &server_messages), record(20, &[1]), record(22, &[0x55; 40])].concat();
    match stage {
        0 => (true, 0, hello),
        1 => (false, 0, server),
        2 => {
            let exchange = record(22, &message(16, &[8; 66]));
            (true, hello_length, [&exchange[..], &finish.concat()].concat())
        }
        _ => (false, server.len() as u32, record(23, &[0x66; DATA_BYTES])),
    }
}

fn segment(to: &mut impl Write, connection: u32, stage: usize) -> std::io::Result<u64> {
    let (by_client, offset, payload) = said(connection, stage);
    let [_, a, b, c] = connection.to_be_bytes();
    let client = [10, a, b, c];
    let (port, server) = (40_000_u16, [192, 0, 2, 1]);
    let (source, destination) = if by_client { (client, server) } else { (server, client) };
    let ports = if by_client { [port, 443] } else { [443, port] };
    let length = 40 + payload.len() as u32;
    let time = [1_700_000_000 + connection / 1_000, connection % 1_000 * 1_000, length, length];
    for word in time {
        to.write_all(&word.to_le_bytes())?;
    }
    let [high, low] = (length as u16).to_be_bytes();
    to.write_all(&[0x45, 0, high, low, 0, 1, 0, 0, 64, 6, 0, 0])?;
    to.write_all(&source)?;
    to.write_all(&destination)?;
    to.write_all(&ports[0].to_be_bytes())?;
    to.write_all(&ports[1].to_be_bytes())?;
    to.write_all(&(1_000 + offset).to_be_bytes())?;
    to.write_all(&[0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0])?;
    to.write_all(&payload)?;
    Ok(u64::from(length) + 16)
}

fn client_hello(connection: u32) -> Vec<u8> {
    let random = bytes_of(connection);
    let name = with_length(format!("{}.example", connection % 1_000).as_bytes());
    let extensions = with_length(&extension(0, &with_length(&[&[0][..], &name].concat())));
    [&[3, 3][..], &random, &[0], &[0, 2, 0xc0, 0x2f], &[1, 0], &extensions].concat()
}

fn server_hello(connection: u32) -> Vec<u8> {
    let random = bytes_of(!connection);
    [&[3, 3][..], &random, &[32], &random, &[0xc0, 0x2f], &[0], &[0, 0]].concat()
}

/// 32 bytes that no other number has.
fn bytes_of(number: u32) -> Vec<u8> {
    (0..8_u32).flat_map(|word| (number ^ word << 24).to_le_bytes()).collect()
}
