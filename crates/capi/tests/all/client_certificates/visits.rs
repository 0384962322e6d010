//! A client that returns with the session that it got before the change.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use openssl::ssl::{SslFiletype, SslSession};
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Client, Site};

use super::papers::Papers;
use super::situations::{Change, Situation, Trust};
use super::{Programs, Way};
use crate::faults::lines_of_ours;

/// The means that the server runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Means {
    Alone(Trust),
    Rejoin(Trust),
    /// With Rejoin, and other clients come after the change before the client returns.
    RejoinAfterOthers(Trust),
}

/// A visit's outcome, with the client's name as the server knows it before it asks after the handshake, and at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    Full(String),
    Resumed(String),
}

impl Outcome {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Full(_) => "full",
            Self::Resumed(_) => "resumed",
        }
    }

    /// Returns whom the server takes the client for at last, if it lets it in.
    pub(crate) fn who(&self) -> Option<&str> {
        match self {
            Self::Refused => None,
            Self::Full(who) | Self::Resumed(who) => who.split(' ').next_back(),
        }
    }
}

/// The outcomes after the change.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Those of the client that returns each time with the session from before.
    pub(crate) returning: Vec<Outcome>,
    /// Those of clients like it without a session, each after one of the others.
    pub(crate) new: Vec<Outcome>,
    /// Those of the returning client afterwards, with nobody else in between.
    pub(crate) in_a_row: Vec<Outcome>,
}

/// A server may learn from a client what it demands of the next one.
const VISITS: usize = 3;

/// The certificates of the clients that come in between: whatever the server demands, one of them can get in, unless
/// nobody can. They are as many as the modes of a server that counts its connections.
const OTHERS: [&str; 3] = ["nobody", "neighbour", "stranger"];

/// Lets a client visit before the change, and after it.
///
/// # Errors
/// The outcome of a visit before the change in which the client did not get in.
pub(crate) fn seen(
    programs: &Programs,
    situation: &Situation,
    way: Way,
    means: Means,
    client: &mut Client,
) -> Result<Seen, Outcome> {
    let mut stage = Stage::new(programs, situation, way, means, client);
    let session = stage.before()?;
    stage.change();
    if matches!(means, Means::RejoinAfterOthers(_)) {
        OTHERS.into_iter().for_each(|other| stage.other_visits(other));
    }
    let session = || Some(SslSession::from_der(&session).expect("a session"));
    let mut seen = Seen { returning: Vec::new(), new: Vec::new(), in_a_row: Vec::new() };
    for _ in 0..VISITS {
        seen.returning.push(stage.visit(1, session()));
        seen.new.push(stage.visit(1, None));
    }
    seen.in_a_row.extend((0..VISITS).map(|_| stage.visit(1, session())));
    stage.end();
    Ok(seen)
}

struct Stage<'a> {
    site: Site,
    program: &'a str,
    id_context: &'static str,
    situation: &'a Situation,
    way: Way,
    client: &'a mut Client,
}

impl<'a> Stage<'a> {
    fn new(
        programs: &'a Programs,
        situation: &'a Situation,
        way: Way,
        means: Means,
        client: &'a mut Client,
    ) -> Self {
        let number = std::ptr::from_ref(situation).addr();
        let mut site = Site::new(&format!("client-certificates-{number:x}"));
        let (Means::Alone(trust) | Means::Rejoin(trust) | Means::RejoinAfterOthers(trust)) = means;
        let mut settings = vec![if way.tickets { "" } else { "stateful = yes" }];
        if trust == Trust::Vouched {
            settings.push("context = mail\nclient_certificates = context");
        }
        site.configure(&settings.join("\n"));
        if matches!(means, Means::Alone(_)) {
            site.environment.clear();
        }
        Papers::of_all().write(&site.folder);
        let (program, id_context) = match trust {
            Trust::Unknown | Trust::Vouched => (&programs.unknown, "mail"),
            Trust::Known => (&programs.known, "20_bytes,_like_SHA-1"),
        };
        Self { site, program, id_context, situation, way, client }
    }

    /// Starts the server, and returns the session that a client got there.
    fn before(&mut self) -> Result<Vec<u8>, Outcome> {
        let mut lines = self.situation.before.split("; ");
        self.start(lines.next().unwrap_or_default());
        for line in lines {
            self.visit(0, None);
            self.tell(line);
        }
        match self.visit(0, None) {
            Outcome::Full(_) => {
                let session = self.client.session.lock().expect("no panic").take();
                Ok(session.expect("a session").to_der().expect("a session"))
            }
            other => Err(other),
        }
    }

    fn change(&mut self) {
        let after = self.situation.after;
        match self.situation.change {
            Change::Told => self.tell(after),
            Change::Restarted => {
                self.site.stop();
                self.start(after);
            }
            Change::Beside => {
                self.site.port = reserve();
                self.start(after);
            }
        }
    }

    fn start(&mut self, words: &str) {
        let (port, pair) = (self.site.port.to_string(), self.site.shown("both.pem"));
        let tickets = u8::from(self.way.tickets);
        let words = format!("tickets={tickets} {}", self.filled(words));
        self.site.start(self.program, &[&port, &pair, &words]).expect("compiled");
    }

    /// Tells the running server. It obeys before it accepts the next connection, and its child is another then.
    fn tell(&mut self, words: &str) {
        let line = format!("{}\n", self.filled(words));
        let server = self.site.running.last_mut().expect("it runs");
        let children = format!("/proc/{0}/task/{0}/children", server.id());
        let children = || fs::read_to_string(&children).expect("it runs");
        let before = children();
        let told = server.stdin.as_mut().expect("piped").write_all(line.as_bytes());
        told.expect("it runs");
        if words.contains("fork") {
            wait_until("another child", || !children().is_empty() && children() != before);
        }
    }

    /// Fills in the words of a usual server, which begins with `BASE`.
    fn filled(&self, words: &str) -> String {
        let id_context = self.id_context;
        words
            .replace("BASE", "NEW ca=one.pem verify=1")
            .replace("NEW", &format!("new context={id_context}"))
            .replace("AGAIN", &format!("again context={id_context}"))
    }

    /// Lets another client come for the first time, after the change.
    fn other_visits(&mut self, name: &str) {
        let mut other = client(&self.site.folder, name, self.way);
        other.address = self.site.address();
        other.name = self.situation.hosts[1];
        let _ = other.try_connect();
    }

    /// Asks for the host of before the change (0) or of after it (1).
    fn visit(&mut self, host: usize, session: Option<SslSession>) -> Outcome {
        let Self { client, site, situation, .. } = self;
        client.address = site.address();
        client.name = situation.hosts[host];
        client.answers.clear();
        *client.session.lock().expect("no panic") = session;
        let resumed = client.try_connect();
        let answer = client.answers.pop().filter(|answer| !answer.is_empty());
        match (resumed, answer) {
            (Ok(true), Some(who)) => Outcome::Resumed(who),
            (Ok(false), Some(who)) => Outcome::Full(who),
            _ => Outcome::Refused,
        }
    }

    fn end(mut self) {
        for server in &mut self.site.running {
            let ended = server.try_wait().expect("our own child");
            assert!(ended.is_none(), "{}: the server ended: {ended:?}", self.situation.name);
        }
        assert_eq!(lines_of_ours(&self.site), [""; 0]);
    }
}

/// Makes a client with the certificate of this name. That takes longer than its visits, because it reads the system's
/// authorities.
pub(crate) fn client(folder: &Path, name: &str, way: Way) -> Client {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    Client::with(nowhere, way.versions, |connector| {
        if name != "nobody" {
            let file = folder.join(name).with_extension("pem");
            connector.set_certificate_chain_file(&file).expect("a certificate");
            connector.set_private_key_file(&file, SslFiletype::PEM).expect("its key");
        }
        // SAFETY: the builder owns its context.
        unsafe { openssl_sys::SSL_CTX_set_post_handshake_auth(connector.as_ptr(), 1) };
    })
}
