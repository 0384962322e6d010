//! A proxy that knows `CONNECT` (RFC 9110, section 9.3.6), and nothing else.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

/// Starts a proxy. Returns its port; its threads end with the test.
pub fn start() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client));
        }
    });
    port
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
