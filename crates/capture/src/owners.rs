//! The programs at the ends of connections, from what frames name.
//!
//! The table is empty for captures whose frames name none. It is bounded: it has two halves, and when the newer one is full,
//! the older one is forgotten. A name is certain, or there is none: an end for which two programs were named has none.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::file::Frame;
use crate::handshake::{Carrier, Handshake};
use crate::ip;
use crate::limits::Limits;
use crate::link;
use crate::observation::Endpoint;
use crate::program::{self, LONGEST_NAME_BYTES, Named, Whose};
use crate::tcp;

/// The most names that are kept, over all captures.
const MOST_NAMES: usize = 1 << 10;
/// The memory of all names, in bytes.
pub(crate) const NAMES_BYTES: usize = 2 * MOST_NAMES * (LONGEST_NAME_BYTES + 64);
/// The memory of a connection's programs, in bytes.
pub(crate) const PLACE_BYTES: usize = size_of::<(Connection, Programs)>();

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The transport's number, and both ends in order.
type Connection = (u8, [Endpoint; 2]);

/// A name, and a process if that is known.
type Program = (Arc<str>, Option<u32>);

/// The programs so far.
#[derive(Debug)]
pub(crate) struct Owners {
    limit: usize,
    names: HashSet<Arc<str>>,
    newer: HashMap<Connection, Programs, FixedState>,
    older: HashMap<Connection, Programs, FixedState>,
}

/// The programs of both ends, and of the one that began the connection.
#[derive(Debug, Clone, Default)]
struct Programs {
    ends: [Known; 2],
    client: Known,
}

#[derive(Debug, Clone, Default)]
enum Known {
    #[default]
    Nothing,
    One(Program),
    Several,
}

impl Owners {
    pub(crate) fn new(limits: Limits) -> Self {
        let table = || HashMap::with_hasher(FixedState::with_seed(limits.hash_seed));
        Self {
            limit: limits.named_connections.max(1),
            names: HashSet::new(),
            newer: table(),
            older: table(),
        }
    }

    /// Forgets all connections.
    pub(crate) fn clear(&mut self) {
        self.newer.clear();
        self.older.clear();
    }

    /// Notes the program that a frame names. What it begins is another connection than the one before.
    pub(crate) fn note(&mut self, frame: &Frame<'_>) {
        let Some(named) = program::named(frame) else { return };
        let Some((protocol, [from, to], begins)) = ends(frame) else { return };
        let Some(program) = self.program(&named) else { return };
        let (ends, sender) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        let connection = (protocol, ends);
        let mut programs = self.take(&connection).filter(|_| !begins).unwrap_or_default();
        match named.whose {
            Whose::Sender => programs.ends[sender].add(program),
            Whose::Receiver => programs.ends[1 - sender].add(program),
            Whose::Client => programs.client.add(program),
        }
        if self.newer.len() >= self.limit {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(connection, programs);
    }

    /// Writes the programs of its ends into a handshake.
    pub(crate) fn name(&self, handshake: &mut Handshake) {
        if self.newer.is_empty() && self.older.is_empty() {
            return;
        }
        let client = Endpoint { ip: handshake.client_ip, port: handshake.client_port };
        let server = Endpoint { ip: handshake.server_ip, port: handshake.server_port };
        let (ends, side) =
            if client <= server { ([client, server], 0) } else { ([server, client], 1) };
        let of = |protocol: u8| {
            let connection = (protocol, ends);
            self.newer.get(&connection).or_else(|| self.older.get(&connection))
        };
        let programs = match handshake.carrier {
            // OpenVPN is over either.
            Carrier::Tls => of(TCP).or_else(|| of(UDP)),
            Carrier::Quic | Carrier::Dtls => of(UDP),
        };
        let Some(programs) = programs else { return };
        let own = match (&programs.ends[side], &programs.client) {
            (Known::Nothing, client) => client,
            (own, _) => own,
        };
        handshake.set_programs([own.one(), programs.ends[1 - side].one()]);
    }

    /// Returns the program with a name that is shared. `None`: there are too many names.
    fn program(&mut self, named: &Named<'_>) -> Option<Program> {
        let name = match self.names.get(named.name) {
            Some(name) => Arc::clone(name),
            None if self.names.len() >= MOST_NAMES => return None,
            None => {
                let name = Arc::<str>::from(named.name);
                self.names.insert(Arc::clone(&name));
                name
            }
        };
        Some((name, named.process))
    }

    fn take(&mut self, connection: &Connection) -> Option<Programs> {
        self.newer.remove(connection).or_else(|| self.older.remove(connection))
    }
}

impl Known {
    fn add(&mut self, program: Program) {
        match self {
            Self::Nothing => *self = Self::One(program),
            Self::One(known) if *known == program => {}
            _ => *self = Self::Several,
        }
    }

    fn one(&self) -> Option<(&str, Option<u32>)> {
        match self {
            Self::One((name, process)) => Some((name, *process)),
            _ => None,
        }
    }
}

/// The transport and the ends of the packet in a frame, from and to, and if it begins a connection. What a tunnel carries
/// is of other programs than the tunnel, and is not looked into.
fn ends(frame: &Frame<'_>) -> Option<(u8, [Endpoint; 2], bool)> {
    let packet = ip::parse(link::ip_packet(frame.link, frame.data).ok()?)?;
    if packet.fragment.is_some_and(|fragment| fragment.offset > 0) {
        return None;
    }
    let [a, b, c, d] = *packet.payload.first_chunk()?;
    let from = Endpoint { ip: packet.source, port: u16::from_be_bytes([a, b]) };
    let to = Endpoint { ip: packet.destination, port: u16::from_be_bytes([c, d]) };
    let begins = match packet.protocol {
        TCP => tcp::parse(packet.payload, packet.length).is_some_and(|it| it.syn && !it.ack),
        UDP => false,
        _ => return None,
    };
    Some((packet.protocol, [from, to], begins))
}
