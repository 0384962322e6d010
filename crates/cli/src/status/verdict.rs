//! The verdict on a server: is it attached, and if not, why.

use rejoin_openssl::{Certificates, ContextNotes, Notes, Outcome, Standing, Subject};

use super::found::Server;

impl Server {
    /// Returns what is attached, or why nothing is.
    pub(super) fn verdict(&self) -> Result<String, String> {
        of(self.notes.as_ref().map_err(Clone::clone)?)
    }

    /// Returns true if the latest connection of some context was attached.
    pub(super) fn has_served(&self) -> bool {
        let is_attached = |context: &ContextNotes| context.outcome == Some(Outcome::Attached);
        self.notes.as_ref().is_ok_and(|notes| notes.contexts.iter().any(is_attached))
    }
}

fn of(notes: &Notes) -> Result<String, String> {
    let trouble = notes.text(Subject::Trouble).unwrap_or("no reason was given");
    if notes.standing == Some(Standing::GaveUp) {
        return Err(format!("it runs without Rejoin: {trouble}"));
    }
    let cache = notes.text(Subject::Cache).map_or_else(String::new, |name| format!(" to {name}"));
    if notes.contexts.iter().any(|context| context.outcome == Some(Outcome::Attached)) {
        return Ok(format!("attached{cache}"));
    }
    if notes.standing == Some(Standing::Trying) {
        return Err(format!("its cache cannot be opened so far: {trouble}"));
    }
    if let Some(why) = notes.contexts.iter().find_map(left_alone) {
        return Err(format!("its contexts are left alone: {why}"));
    }
    match notes {
        Notes { unattached: 1.., .. } => Err(UNATTACHED.to_owned()),
        Notes { connections: 1.., connecting: 0, serving: 0, .. } => Err(UNHEARD.to_owned()),
        Notes { connecting: 1.., serving: 0, .. } => {
            Err("it has only made connections itself, and served no client so far".to_owned())
        }
        Notes { standing: None, .. } => Err("no context was attached so far".to_owned()),
        _ => Ok(format!("attached{cache}, and no client has come so far")),
    }
}

const UNATTACHED: &str = "its contexts were made before Rejoin was loaded";
const UNHEARD: &str = "\
no connection that it made reported a handshake: it sets an info callback of its own on each (SSL_set_info_callback), as \
coturn does, or its first client has said nothing yet";

/// Returns why the latest connection of a context was left alone.
pub(super) fn left_alone(context: &ContextNotes) -> Option<&'static str> {
    Some(match context.outcome? {
        Outcome::Attached => return None,
        Outcome::NoCache => "the cache was not open",
        Outcome::EarlyData => "it accepts early data, under OpenSSL's own replay protection",
        Outcome::Off => {
            "the program neither keeps sessions nor issues tickets (stateful = yes keeps them)"
        }
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
        let line = "librejoin.so was replaced since: restart the server to use the new one";
        remarks.push(line.to_owned());
    }
    let Ok(notes) = &server.notes else { return remarks };
    let contexts = [
        (notes.unlisted_contexts, "contexts are not listed: too many are in use"),
        (
            notes.unattached,
            "connections are not Rejoin's: their contexts were made before it was loaded",
        ),
        (
            silent(notes),
            "connections reported no handshake: the program sets an info callback of its own",
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
