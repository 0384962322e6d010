//! Whether connections that a log names are connections at all.
//!
//! A field of the name may be something else: the server's port, or a header. Then clients that come back have one value
//! for ever. They are counted in a sample, which a hash of the client draws.

use std::collections::HashMap;

use crate::record::Record;

/// The most clients in the sample: 4 MB.
const MOST_CLIENTS: usize = 1 << 16;

/// The sample of clients whose connections are named.
#[derive(Debug)]
pub(crate) struct Single {
    /// The pause after which a client has come back.
    pause_ms: u64,
    clients: HashMap<u64, Named>,
    /// The bits of a client's hash that must be zero in the sample.
    mask: u64,
    most: usize,
}

#[derive(Debug)]
struct Named {
    connection: u64,
    last_ms: u64,
    came_back: bool,
    has_another: bool,
}

impl Single {
    pub(crate) fn new(pause_ms: u64) -> Self {
        Self { pause_ms, clients: HashMap::new(), mask: 0, most: MOST_CLIENTS }
    }

    /// Takes a request. They come in order of time. The place in a connection tells for itself where one begins.
    pub(crate) fn take(&mut self, record: &Record) {
        let Record { time_ms, address, connection, .. } = *record;
        if connection == 0 || record.is_first().is_some() || address & self.mask != 0 {
            return;
        }
        let new = Named { connection, last_ms: time_ms, came_back: false, has_another: false };
        let named = self.clients.entry(address).or_insert(new);
        named.came_back |= time_ms - named.last_ms > self.pause_ms;
        named.has_another |= connection != named.connection;
        named.last_ms = time_ms;
        while self.clients.len() > self.most {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.clients.retain(|address, _| address & mask == 0);
        }
    }

    /// Returns how many clients of the sample came back, and how many of these have never had another connection.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let back = || self.clients.values().filter(|named| named.came_back);
        (back().count() as u64, back().filter(|named| !named.has_another).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Parser;

    #[test]
    fn clients_with_one_connection_for_ever_are_counted_in_a_bounded_sample() {
        let parser = Parser::new([4; 16]);
        let mut single = Single { most: 100, ..Single::new(5_000) };
        for at in 0..6_000_u64 {
            let (client, second) = (at % 2_000, at / 2_000 * 10);
            // Every fourth client has a number of its own each time.
            let number = if client % 4 == 0 { at } else { 443 };
            let line = format!(
                "c{client} - - [25/Nov/2026:15:00:{second:02} +0000] \"GET\" 200 0 conn={number}"
            );
            let entry = parser.parse(line.as_bytes()).expect("a line");
            single.take(&Record::of(&entry, at, &parser));
            assert!(single.clients.len() <= 100);
        }
        let (back, one) = single.counts();
        assert!((30..=100).contains(&back), "{back}");
        assert!((0.6..0.9).contains(&(one as f64 / back as f64)), "{one} of {back}");
    }
}
