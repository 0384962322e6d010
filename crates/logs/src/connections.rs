//! Which requests were one connection, and which connections were one client.

use std::collections::HashMap;

use crate::record::Record;

/// The readings of a log: what it leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The mark that tells clients apart.
    pub clients: ClientsBy,
    /// Where connections have no number: the longest time between two requests of a client's connection, in
    /// milliseconds.
    pub keep_alive_ms: u64,
}

/// The mark that tells clients apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientsBy {
    /// The address: all devices behind one are one client.
    Address,
    /// The address and the program's name (user agent), which tells some devices behind one address apart.
    Program,
}

/// The time for which the number of a connection is remembered after its last request: a server gives numbers again
/// when it was restarted.
const NUMBER_MS: u64 = 3_600_000;
/// The same for a client's port. Systems take ports by turns or at random from 28,000, and many clients may be behind one
/// address, so that a port is there again before long. Servers close connections that are idle for minutes.
const PORT_MS: u64 = 600_000;
/// The most connections in a half of the table: 2 halves of 24 bytes each and a half more, 150 MB.
const MOST_IN_A_HALF: usize = 1 << 21;

/// The open connections of one reading.
///
/// The table has two halves. A half that is full, or old enough, becomes the older one, and what was in that is forgotten.
#[derive(Debug)]
pub(crate) struct Connections {
    reading: Reading,
    young: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
    /// The time since which the young half is filled.
    since_ms: u64,
    most: usize,
    /// The times at which a half was given up because it was full.
    pub(crate) overflows: u64,
}

impl Connections {
    pub(crate) fn new(reading: Reading) -> Self {
        let (young, old) = Default::default();
        Self { reading, young, old, since_ms: 0, most: MOST_IN_A_HALF, overflows: 0 }
    }

    pub(crate) fn client(&self, record: &Record) -> u64 {
        match self.reading.clients {
            ClientsBy::Address => record.address,
            ClientsBy::Program => record.program,
        }
    }

    /// Returns true if a connection begins with this request. Requests come in order of time.
    pub(crate) fn begins(&mut self, record: &Record) -> bool {
        let by_number = record.connection != 0;
        let keep_alive_ms = self.reading.keep_alive_ms;
        let (key, within_ms) = match (by_number, record.is_first()) {
            (false, Some(is_first)) => return is_first,
            (false, None) => (self.client(record), keep_alive_ms),
            // A first request begins a connection, whatever had its number before. Requests of HTTP/2 may all be first.
            (true, Some(true)) => (record.connection, keep_alive_ms),
            (true, _) if record.is_port() => (record.connection, PORT_MS.max(keep_alive_ms)),
            (true, _) => (record.connection, NUMBER_MS),
        };
        self.turn(record.time_ms);
        let last_ms =
            self.young.insert(key, record.time_ms).or_else(|| self.old.get(&key).copied());
        last_ms.is_none_or(|last_ms| record.time_ms - last_ms > within_ms)
    }

    fn turn(&mut self, now_ms: u64) {
        let is_full = self.young.len() >= self.most;
        let longest_ms = self.reading.keep_alive_ms.max(NUMBER_MS);
        if is_full || now_ms - self.since_ms > longest_ms {
            self.overflows += u64::from(is_full && now_ms - self.since_ms <= longest_ms);
            self.old = std::mem::take(&mut self.young);
            self.since_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Parser;

    /// Returns the clients' letters whose lines begin a connection, in upper case.
    fn read(reading: Reading, lines: &[(u64, &str, &str)]) -> Vec<bool> {
        let parser = Parser::new([3; 16]);
        let mut connections = Connections::new(reading);
        let begins = |(place, (second, agent, more)): (usize, &(u64, &str, &str))| {
            let line = format!(
                "10.0.0.1 - - [25/Nov/2026:15:{:02}:{:02} +0000] \"GET\" 200 0 \"-\" \"{agent}\" {more}",
                second / 60,
                second % 60
            );
            let entry = parser.parse(line.as_bytes()).expect("a line");
            connections.begins(&Record::of(&entry, place as u64, &parser))
        };
        lines.iter().enumerate().map(begins).collect()
    }

    const ADDRESS: Reading = Reading { clients: ClientsBy::Address, keep_alive_ms: 5_000 };
    const PROGRAM: Reading = Reading { clients: ClientsBy::Program, ..ADDRESS };

    #[test]
    fn without_numbers_a_pause_ends_a_connection() {
        let lines = [(0, "a", ""), (4, "a", ""), (9, "a", ""), (15, "a", ""), (16, "b", "")];
        assert_eq!(read(ADDRESS, &lines), [true, false, false, true, false]);
        assert_eq!(read(PROGRAM, &lines), [true, false, false, true, true]);
    }

    #[test]
    fn a_number_tells_connections_apart_whatever_the_pause() {
        let lines =
            [(0, "a", "conn=1"), (1, "a", "conn=2"), (600, "a", "conn=1"), (601, "a", "conn=3")];
        assert_eq!(read(ADDRESS, &lines), [true, true, false, true]);
    }

    #[test]
    fn a_port_is_another_connection_after_a_while() {
        let lines = [
            (0, "a", "port=1"),
            (599, "a", "port=1"),
            (1_200, "a", "port=1"),
            (1_201, "a", "port=2"),
        ];
        assert_eq!(read(ADDRESS, &lines), [true, false, true, true]);
    }

    #[test]
    fn a_first_request_begins_a_connection_whatever_had_its_number() {
        for number in ["port=7", "conn=7"] {
            let line = |second, place| (second, "a", format!("{number} {place}"));
            // The third request of the second connection comes late; the last two are streams of HTTP/2.
            let lines = [
                line(0, "kept=0"),
                line(3, "kept=1"),
                line(30, "kept=0"),
                line(31, "kept=1"),
                line(300, "kept=2"),
                line(400, "nth=1"),
                line(401, "nth=1"),
            ];
            let lines: Vec<_> =
                lines.iter().map(|(at, agent, more)| (*at, *agent, &more[..])).collect();
            let expected = [true, false, true, false, false, true, false];
            assert_eq!(read(ADDRESS, &lines), expected, "{number}");
        }
    }

    #[test]
    fn the_place_in_a_connection_is_enough() {
        let lines = [
            (0, "a", "nth=1"),
            (1, "a", "nth=2"),
            (1, "a", "nth=1"),
            (2, "a", "kept=0"),
            (3, "a", "kept=1"),
        ];
        assert_eq!(read(ADDRESS, &lines), [true, false, true, true, false]);
    }

    #[test]
    fn memory_is_bounded() {
        let parser = Parser::new([3; 16]);
        let mut connections = Connections { most: 100, ..Connections::new(ADDRESS) };
        for client in 0..10_000_u64 {
            let line = format!("client{client} - - [25/Nov/2026:15:00:00 +0000] \"GET\" 200 0");
            let entry = parser.parse(line.as_bytes()).expect("a line");
            assert!(connections.begins(&Record::of(&entry, client, &parser)));
            assert!(connections.young.len() + connections.old.len() <= 200);
        }
        assert!(connections.overflows > 90);
    }
}
