//! A connection that follows the keys of a context.

use rejoin_tickets::{KeyRing, KeyState, NAME_BYTES, ServerKeyForm};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::messages::Refusal;
use super::wire;
use crate::listing::Listing;
use crate::rings::{every_second, now_s};
use crate::{Context, Rings};

/// The names and states of the keys that were sent last, and the lifetime of their tickets.
type Mark = (Vec<([u8; NAME_BYTES], KeyState)>, u64);

fn mark(listing: &Listing) -> Mark {
    (listing.mark(), listing.ticket_lifetime_s())
}

/// Sends the keys, and again whenever they change. Returns when the client closes the connection.
pub(super) async fn follow(
    stream: &mut UnixStream,
    mut rings: Rings,
    context: &Context,
    form: ServerKeyForm,
) -> Result<(), Refusal> {
    let (mut sent, mut look, mut byte) = (Mark::default(), every_second(), [0]);
    loop {
        let ring = rings.borrow_and_update().clone();
        if let Some(listing) = ring.and_then(|ring| changed(&ring, context, form, &sent)) {
            wire::write(stream, &listing.message()).await?;
            sent = mark(&listing);
        }
        tokio::select! {
            // Turns begin and end without a change of the ring.
            _ = look.tick() => {}
            Ok(()) = rings.changed() => {}
            read = stream.read(&mut byte) => return match read {
                Ok(1) => Err(Refusal::BadRequest("this connection is for keys".to_owned())),
                _ => Ok(()),
            },
        }
    }
}

fn changed(ring: &KeyRing, context: &Context, form: ServerKeyForm, sent: &Mark) -> Option<Listing> {
    let listing = Listing::of(ring, context, form, now_s());
    (!listing.is_empty() && mark(&listing) != *sent).then_some(listing)
}
