//! The handshakes of DTLS 1.0, 1.2 and 1.3 (RFC 6347, RFC 9147), on every port.
//!
//! An association is known by its addresses and begins with a hello. Up to DTLS 1.2 all of its handshake
//! but the Finished messages is readable; from 1.3 on the hellos are.

mod association;
mod messages;
mod record;

use crate::handshake::Handshake;
use crate::limits::Limits;
use crate::observation::{At, Endpoint};
use crate::table::Table;
use association::Association;
pub(crate) use record::begins_with_hello;

/// The memory of an association, in bytes.
pub(crate) const ASSOCIATION_BYTES: usize = size_of::<Association>();

/// The watched associations.
pub(crate) type Associations = Table<Association>;

/// Returns true if a datagram may be DTLS (RFC 9443, 2).
pub(crate) fn may_be_dtls(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(20..=63))
}

impl Associations {
    pub(crate) fn within(limits: Limits) -> Self {
        Self::new(limits.dtls_associations, limits.dtls_bytes, limits.hash_seed)
    }

    /// Takes the payload of a datagram that had `length` bytes on the wire.
    pub(crate) fn datagram(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        payload: &[u8],
        length: usize,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        let (ends, side) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        if !self.contains(&ends) {
            if !begins_with_hello(payload) {
                return;
            }
            self.watch(ends, Association::new(ends), emit);
        }
        self.update(&ends, emit, |association, emit| {
            association.datagram(side, payload, length, at, emit);
        });
    }
}
