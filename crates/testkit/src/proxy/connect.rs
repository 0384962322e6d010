//! A proxy that knows `CONNECT` (RFC 9110, section 9.3.6), and nothing else.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;

use super::rogue;

/// Starts a proxy. Returns its port; its threads end with the test.
pub fn start() -> u16 {
    rogue(|client| {
        let _ = serve(client);
    })
}

/// Serves a client; every name is this machine.
fn serve(client: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut asked = String::new();
    reader.read_line(&mut asked)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let port = asked.split([' ', ':']).nth(2).and_then(|port| port.parse::<u16>().ok());
    let Some(port) = port.filter(|_| asked.starts_with("CONNECT ")) else {
        return (&client).write_all(b"HTTP/1.1 400 no\r\n\r\n");
    };
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    (&client).write_all(b"HTTP/1.1 200 connected\r\n\r\n")?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let down = thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut reader, &mut &server);
    let _ = server.shutdown(Shutdown::Write);
    let _ = down.join();
    Ok(())
}
