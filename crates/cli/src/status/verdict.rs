//! The verdict on a server: is it attached, and if not, why.

use rejoin_openssl::{Certificates, ContextNotes, Notes, Outcome, Standing, Subject};
use rejoin_store::CacheName;

use super::found::Server;
use super::obstacle::Obstacle;

impl Server {
    /// Returns what is attached, or why nothing is.
    pub(super) fn verdict(&self) -> Result<String, Obstacle> {
        let unread = |why: &String| Obstacle::new(why, "run this command as root");
        of(self.notes.as_ref().map_err(unread)?)
    }

    /// Returns true if the latest connection of some context was attached.
    pub(super) fn has_served(&self) -> bool {
        let is_attached = |context: &ContextNotes| context.outcome == Some(Outcome::Attached);
        self.notes.as_ref().is_ok_and(|notes| notes.contexts.iter().any(is_attached))
    }
}

fn of(notes: &Notes) -> Result<String, Obstacle> {
    let trouble = notes.text(Subject::Trouble).unwrap_or("no reason was given");
    if notes.standing == Some(Standing::GaveUp) {
        let file = notes.text(Subject::Configuration).unwrap_or("its settings");
        let mend = format!("mend in {file} what it names, and restart the server");
        return Err(Obstacle::new(format!("it runs without Rejoin: {trouble}"), mend));
    }
    let cache = notes.text(Subject::Cache).map_or_else(String::new, |name| format!(" to {name}"));
    if notes.contexts.iter().any(|context| context.outcome == Some(Outcome::Attached)) {
        return Ok(format!("attached{cache}"));
    }
    if notes.standing == Some(Standing::Trying) {
        let why = format!("its cache cannot be opened so far: {trouble}");
        return Err(Obstacle::new(why, "do what the message says: each handshake tries again"));
    }
    if let Some((why, mend)) = notes.contexts.iter().find_map(alone) {
        return Err(Obstacle::new(format!("its contexts are left alone: {why}"), mend));
    }
    match notes {
        Notes { unattached: 1.., .. } => Err(Obstacle::new(UNATTACHED, LOADED_LATE)),
        Notes { connections: 1.., connecting: 0, serving: 0, .. } => Err(Obstacle::new(
            UNHEARD,
            "connect to it; if it says the same, it is out of Rejoin's reach",
        )),
        Notes { connecting: 1.., serving: 0, .. } => Err(Obstacle::new(
            "it has only made connections itself, and served no client so far",
            COME,
        )),
        Notes { standing: None, .. } => Err(Obstacle::new("no context was attached so far", COME)),
        _ => Ok(format!("attached{cache}, and no client has come so far")),
    }
}

pub(super) const UNATTACHED: &str = "its contexts were made before Rejoin was loaded";
const UNHEARD: &str = "\
no connection that it made reported a handshake: it sets an info callback of its own on each (SSL_set_info_callback), as \
coturn does, or uses OpenSSL's own QUIC, or its first client has said nothing yet";

/// Returns what it means that a cache which a process has is not the one of its name.
pub(super) fn lost(cache: &CacheName) -> String {
    format!(
        "it uses a cache {cache} that has lost its name: `rejoin keys`, `store` and `stats` do not reach it"
    )
}

pub(super) const OUTDATED: &str =
    "librejoin.so was replaced since: restart the server to use the new one";
const COME: &str = "connect to it: `openssl s_client -connect HOST:PORT`";
pub(super) const LOADED_LATE: &str = "\
let OPENSSL_CONF load librejoin.so instead of the preload library: `rejoin enable` does so";

/// Returns why the latest connection of a context was left alone.
pub(super) fn left_alone(context: &ContextNotes) -> Option<&'static str> {
    alone(context).map(|(why, _)| why)
}

/// Returns that and the mend.
pub(super) fn alone(context: &ContextNotes) -> Option<(&'static str, &'static str)> {
    Some(match context.outcome? {
        Outcome::Attached => return None,
        Outcome::NoCache => (
            "the cache was not open",
            "do what its message says, such as make room; then reload the server",
        ),
        Outcome::EarlyData => (
            "it accepts early data, under OpenSSL's own replay protection",
            "set `early_data = once`, which accepts none twice, or switch early data off",
        ),
        Outcome::Off => (
            "the program neither keeps sessions nor issues tickets (stateful = yes keeps them)",
            "set `stateful = yes` in its settings, or switch the program's tickets or cache on",
        ),
    })
}

/// Returns how far the sessions of clients resume that are asked for certificates.
pub(super) fn sharing(certificates: Certificates) -> &'static str {
    match certificates {
        Certificates::Shared => "resume wherever the same is asked",
        Certificates::Context => "resume in this context alone, in all processes",
        Certificates::Process => "resume in this context and process alone",
    }
}

/// Returns what there is to know besides the verdict, one line each.
pub(super) fn remarks(server: &Server) -> Vec<String> {
    let mut remarks = Vec::new();
    if server.is_outdated() {
        remarks.push(OUTDATED.to_owned());
    }
    remarks
        .extend(server.lost().iter().map(|cache| format!("{}; restart the server", lost(cache))));
    let Ok(notes) = &server.notes else { return remarks };
    let contexts = [
        (
            notes.refused_contexts,
            "contexts, counted anew in each process, found all 128 places of the list in use: what they did without a place is in the totals alone",
        ),
        (
            notes.unattached,
            "connections are not Rejoin's: their contexts were made before it was loaded",
        ),
        (
            silent(notes),
            "connections reported no handshake: the program sets an info callback of its own, or uses OpenSSL's own QUIC",
        ),
    ];
    let some = contexts.into_iter().filter(|(count, _)| *count > 0);
    remarks.extend(some.map(|(count, what)| format!("{count} {what}")));
    remarks
}

/// Returns the number of connections that reported no handshake, or 0 if they may just have been made.
fn silent(notes: &Notes) -> u64 {
    let reported = [notes.connecting, notes.serving, notes.unattached];
    let reported = reported.into_iter().fold(0, u64::saturating_add);
    let silent = notes.connections.saturating_sub(reported);
    if silent > reported { silent } else { 0 }
}
