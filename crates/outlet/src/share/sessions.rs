//! A connection that keeps the sessions of a context in the cache.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rejoin_cache::{Issued, SecretBytes, SessionId, SessionStore, Visit};
use rejoin_store::{Store, Tiered, now_ms};
use serde_json::json;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::messages::{Put, Refusal, Request};
use super::wire;
use crate::Context;
use crate::context::Place;
use crate::listing::Secret;

/// Answers requests until the client closes the connection.
pub(super) async fn serve(
    stream: &mut UnixStream,
    store: &Arc<Store>,
    context: &Context,
) -> Result<(), Refusal> {
    let mut desk = Desk::new(store, context);
    let greeting = json!({"longest_session": desk.longest_bytes(), "takes_resumed": true});
    let hello = json!({"rejoin": 1, "sessions": greeting});
    wire::write(stream, hello.to_string().as_bytes()).await?;
    while let Some(message) = wire::read(stream).await? {
        let request = Request::parse(&message)?;
        let answer;
        (desk, answer) = if store.mailbox().is_some() {
            // It may wait for another machine, for milliseconds.
            let answered = tokio::task::spawn_blocking(move || desk.answered(request)).await;
            answered.map_err(|_| Refusal::Broken)?
        } else {
            desk.answered(request)
        };
        wire::write(stream, &answer).await?;
    }
    Ok(())
}

/// The use of the cache by one connection.
struct Desk {
    sessions: Tiered,
    place: Place,
    longest_bytes: usize,
    visits: Visits,
}

impl Desk {
    fn new(store: &Arc<Store>, context: &Context) -> Self {
        Self {
            sessions: Tiered::new(Arc::clone(store)),
            place: context.place(store.id_key()),
            longest_bytes: store.settings().longest_value_bytes as usize,
            visits: Visits::default(),
        }
    }

    /// Returns the longest session that is stored.
    fn longest_bytes(&self) -> usize {
        self.longest_bytes - self.place.seal.len()
    }

    fn answered(mut self, request: Request) -> (Self, Zeroizing<Vec<u8>>) {
        let answer = self.answer(request);
        (self, answer)
    }

    fn answer(&mut self, request: Request) -> Zeroizing<Vec<u8>> {
        match request {
            Request::Take(id) => self.find(id, Visit::take),
            Request::Get(id) => self.find(id, Visit::look_up),
            Request::Put(put) => done("stored", self.put(put)),
            Request::Hint { id, returns_in_ms } => {
                let id = self.place.id(&id);
                done("hinted", self.sessions.hint(now_ms(), &id, returns_in_ms))
            }
            Request::Remove(id) => done("removed", self.sessions.remove(&self.place.id(&id))),
        }
    }

    fn find(&mut self, id: SessionId, look: Look) -> Zeroizing<Vec<u8>> {
        let (mut visit, mut value) = (Visit::default(), SecretBytes::default());
        let id = self.place.id(&id);
        let Place { tag, seal, .. } = self.place;
        let found = look(&mut visit, &self.sessions, now_ms(), &id, tag, &mut value);
        let session = value.strip_prefix(&seal).filter(|_| found);
        let mut answer = Secret::with_room(32 + value.len() * 2);
        match session {
            Some(session) => {
                self.sessions.record_handshake(true);
                self.visits.keep(id, visit);
                answer.add("{\"session\": \"");
                answer.add_base64(session);
                answer.add("\"}");
            }
            None => answer.add("{\"session\": null}"),
        }
        answer.done()
    }

    fn put(&mut self, put: Put) -> bool {
        let Put { id, session, lifetime_ms, after, resumed, returns_in_ms } = put;
        // The cache refuses and counts one that is too large.
        let id = self.place.id(&id);
        let Place { tag: context, seal, .. } = self.place;
        let mut value = SecretBytes::with_capacity(seal.len() + session.len());
        value.extend(&seal);
        value.extend(&session);
        let now_ms = now_ms();
        let issued = Issued { id, value, expires_ms: now_ms + lifetime_ms, context };
        let known = after.and_then(|after| self.visits.of(&self.place.id(&after)));
        // A resumption was counted when its session was found.
        if !resumed.unwrap_or_else(|| known.is_some()) {
            self.sessions.record_handshake(false);
        }
        let mut unknown = Visit::default();
        known.unwrap_or(&mut unknown).issue_all(&self.sessions, now_ms, &[issued], returns_in_ms);
        let mut there = SecretBytes::default();
        self.sessions.peek(now_ms, &id, context, &mut there)
    }
}

type Look =
    fn(&mut Visit, &Tiered, u64, &SessionId, rejoin_cache::ContextTag, &mut SecretBytes) -> bool;

fn done(what: &str, is_done: bool) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(format!("{{\"{what}\": {is_done}}}").into_bytes())
}

/// The visits of clients whose sessions were found last: their histories go to the sessions that are stored next.
#[derive(Default)]
struct Visits {
    by_id: HashMap<SessionId, Visit>,
    order: VecDeque<SessionId>,
}

impl Visits {
    const MOST: usize = 1_024;

    fn keep(&mut self, id: SessionId, visit: Visit) {
        if self.by_id.insert(id, visit).is_some() {
            self.order.retain(|known| *known != id);
        }
        self.order.push_back(id);
        if self.order.len() > Self::MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    fn of(&mut self, id: &SessionId) -> Option<&mut Visit> {
        self.by_id.get_mut(id)
    }
}
