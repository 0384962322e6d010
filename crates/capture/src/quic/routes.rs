//! The way from a packet to its connection: by the connection ID and the addresses, or by the ID alone
//! where a connection has moved to other addresses (RFC 9000, 9).

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::connection::{CLIENT, Connection, SERVER};
use super::packet::Id;
use crate::observation::{Endpoint, Side};

/// The most routes to a connection: two for each of its four IDs, and one by its ClientHello.
pub(super) const MOST_ROUTES: usize = 9;
/// The shortest ID that is looked for at other addresses, in bytes: shorter ones are not unique.
const SHORTEST_UNIQUE: usize = 8;
/// The place of an ID that several connections have.
const NOWHERE: Place = Place { number: 0, sender: CLIENT };

/// The memory of a route, in bytes.
pub(super) const ROUTE_BYTES: usize = size_of::<(u64, Packed)>();

/// The addresses of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
}

/// A connection by its number, and the side of it that sent a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) sender: Side,
}

/// A place in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed(u64);

impl From<Place> for Packed {
    fn from(Place { number, sender }: Place) -> Self {
        Self(number << 1 | sender as u64)
    }
}

impl From<Packed> for Place {
    fn from(Packed(word): Packed) -> Self {
        Self { number: word >> 1, sender: if word & 1 == 0 { CLIENT } else { SERVER } }
    }
}

/// The routes, by hashes under a secret seed.
#[derive(Debug)]
pub(super) struct Routes {
    hasher: FixedState,
    places: HashMap<u64, Packed, foldhash::fast::FixedState>,
}

/// The kinds of routes.
#[derive(Hash)]
enum Key<'a> {
    Addressed(Path, Id<'a>),
    Anywhere(Id<'a>),
    /// Towards a server that refused the version.
    Refused(Path),
    /// A ClientHello with this random.
    Greeted(Path, &'a [u8; 32]),
}

impl Routes {
    pub(super) fn new(seed: u64) -> Self {
        let places = HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed));
        Self { hasher: FixedState::with_seed(seed), places }
    }

    /// Finds the connection of a packet with this destination ID.
    pub(super) fn find(&self, path: Path, to: Id<'_>) -> Option<Place> {
        self.get(&Key::Addressed(path, to))
    }

    /// Finds the connection of a packet whose addresses are new.
    pub(super) fn find_anywhere(&self, to: Id<'_>) -> Option<Place> {
        self.get(&Key::Anywhere(to)).filter(|_| to.len() >= SHORTEST_UNIQUE)
    }

    /// Notes an ID that the `owner` side of a connection has. Packets to it come from the other side.
    pub(super) fn add(
        &mut self,
        connection: &mut Connection,
        number: u64,
        owner: Side,
        id: Id<'_>,
    ) {
        let [client, server] = connection.ends;
        let (from, to) = if owner == SERVER { (client, server) } else { (server, client) };
        let place = Place { number, sender: 1 - owner };
        self.insert(connection, &Key::Addressed(Path { from, to }, id), place);
        if id.len() >= SHORTEST_UNIQUE {
            let is_taken = self.get(&Key::Anywhere(id)).is_some_and(|known| known != place);
            let place = if is_taken { NOWHERE } else { place };
            self.insert(connection, &Key::Anywhere(id), place);
        }
    }

    /// Notes that a server refused the version of this connection.
    pub(super) fn refused(&mut self, connection: &mut Connection, number: u64) {
        let [from, to] = connection.ends;
        self.insert(connection, &Key::Refused(Path { from, to }), Place { number, sender: CLIENT });
    }

    /// Takes the connection of this client and server whose version was refused.
    pub(super) fn take_refused(&mut self, path: Path) -> Option<u64> {
        let refused = self.places.remove(&self.hash(&Key::Refused(path)));
        refused.map(|place| Place::from(place).number)
    }

    /// Notes a connection's ClientHello. Returns the connection that had it before.
    pub(super) fn greeted(
        &mut self,
        connection: &mut Connection,
        number: u64,
        random: &[u8; 32],
    ) -> Option<u64> {
        let [from, to] = connection.ends;
        let key = Key::Greeted(Path { from, to }, random);
        let before = self.get(&key);
        self.insert(connection, &key, Place { number, sender: CLIENT });
        before.map(|place| place.number)
    }

    /// Removes all routes to a connection.
    pub(super) fn remove(&mut self, connection: &Connection, number: u64) {
        for route in &connection.routes {
            let place = self.places.get(route).map(|place| Place::from(*place));
            if place.is_some_and(|place| place.number == number || place == NOWHERE) {
                self.places.remove(route);
            }
        }
    }

    fn get(&self, key: &Key<'_>) -> Option<Place> {
        self.places.get(&self.hash(key)).map(|place| Place::from(*place))
    }

    fn insert(&mut self, connection: &mut Connection, key: &Key<'_>, place: Place) {
        let route = self.hash(key);
        if !connection.routes.contains(&route) {
            if connection.routes.len() >= MOST_ROUTES {
                return;
            }
            connection.routes.push(route);
        }
        self.places.insert(route, place.into());
    }

    fn hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }
}
