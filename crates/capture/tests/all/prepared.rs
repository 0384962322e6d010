//! Real servers and clients, prepared so that a session is not resumed for a known reason.
//!
//! Both ends are in memory, so that the capture's clock is the test's.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::OnceLock;

use openssl::pkey::PKey;
use openssl::ssl::{
    ErrorCode, ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions,
    SslSessionCacheMode, SslStream, SslVersion,
};
use openssl::x509::X509;
use rejoin_capture::sharing::{Application, Assumptions, Cause, Device, Scope, Sharing};
use rejoin_capture::{Analyser, Class, Limits, Networks};
use rejoin_openssl::{Client, ClientSession};
use rejoin_testkit::certificates::Pair;

const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [192, 0, 2, 2];
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const OTHER_CLIENT: [u8; 4] = [10, 0, 0, 2];
const NAME: &str = "a.example";
const OTHER_NAME: &str = "b.example";
/// After the lifetime that OpenSSL states, two hours.
const LATER_S: u32 = 8_000;

/// How sessions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Tickets of TLS 1.2.
    Ticket,
    /// Session IDs of TLS 1.2.
    Id,
    /// Tickets of TLS 1.3.
    Key,
}

impl By {
    fn version(self) -> SslVersion {
        if self == Self::Key { SslVersion::TLS1_3 } else { SslVersion::TLS1_2 }
    }
}

/// A pipe in memory.
#[derive(Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.incoming.read(space)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a connection.
struct End(SslStream<Pipe>);

impl End {
    /// Takes bytes, and returns those that answer them.
    fn step(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.get_mut().incoming.extend(bytes);
        let done = self.0.do_handshake();
        if let Err(error) = &done {
            assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}");
        }
        let mut space = [0; 1 << 12];
        while done.is_ok() && self.0.ssl_read(&mut space).is_ok() {}
        std::mem::take(&mut self.0.get_mut().outgoing)
    }

    fn say(&mut self, what: &[u8]) -> Vec<u8> {
        self.0.ssl_write(what).unwrap();
        std::mem::take(&mut self.0.get_mut().outgoing)
    }
}

struct Server {
    address: [u8; 4],
    context: SslContext,
}

fn server(by: By, address: [u8; 4]) -> Server {
    server_with(by, address, |_| {})
}

/// A server with ticket keys and a cache of its own.
fn server_with(by: By, address: [u8; 4], set: impl FnOnce(&mut SslContextBuilder)) -> Server {
    let mut builder = SslContext::builder(SslMethod::tls_server()).unwrap();
    static PAIR: OnceLock<Pair> = OnceLock::new();
    certify(&mut builder, PAIR.get_or_init(|| Pair::self_signed(&[NAME, OTHER_NAME])));
    builder.set_session_id_context(b"prepared").unwrap();
    builder.set_min_proto_version(Some(by.version())).unwrap();
    builder.set_max_proto_version(Some(by.version())).unwrap();
    match by {
        By::Id => {
            builder.set_session_cache_mode(SslSessionCacheMode::SERVER);
            builder.set_options(SslOptions::NO_TICKET);
        }
        By::Ticket => {
            builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        }
        By::Key => {}
    }
    set(&mut builder);
    Server { address, context: builder.build() }
}

fn certify(builder: &mut SslContextBuilder, pair: &Pair) {
    builder.set_certificate(&X509::from_der(&pair.der).unwrap()).unwrap();
    builder.set_private_key(&PKey::private_key_from_der(&pair.key_der).unwrap()).unwrap();
}

/// A server that gives nothing to resume with, and resumes nothing.
fn forgetful(by: By, address: [u8; 4]) -> Server {
    server_with(by, address, |builder| {
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_options(SslOptions::NO_TICKET);
        builder.set_num_tickets(0).unwrap();
    })
}

/// The connections of several applications, and the sessions of their clients.
struct World {
    clients: Client,
    /// By application.
    captures: Vec<Vec<u8>>,
    second: u32,
    port: u16,
    /// The clients' own words, in order.
    resumed: Vec<bool>,
}

/// A visit of a client to a server.
#[derive(Clone, Copy)]
struct Visit<'a> {
    client: [u8; 4],
    name: &'a str,
    session: Option<&'a ClientSession>,
    application: usize,
}

const VISIT: Visit<'static> = Visit { client: CLIENT, name: NAME, session: None, application: 0 };

fn with(session: &ClientSession) -> Visit<'_> {
    Visit { session: Some(session), ..VISIT }
}

impl World {
    /// Clients that know no newer version.
    fn new(by: By) -> Self {
        let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_max_proto_version(Some(by.version())).unwrap();
        let clients = Client::new(builder);
        Self {
            clients,
            captures: Vec::new(),
            second: 1_700_000_000,
            port: 40_000,
            resumed: Vec::new(),
        }
    }

    /// Visits a server, ten seconds after the visit before. Returns the session that it gave.
    fn visit(&mut self, server: &Server, visit: Visit<'_>) -> Option<ClientSession> {
        self.second += 10;
        self.visit_at_once(server, visit)
    }

    fn visit_at_once(&mut self, server: &Server, visit: Visit<'_>) -> Option<ClientSession> {
        let mut ssl = self.clients.connection(visit.session).unwrap();
        ssl.set_hostname(visit.name).unwrap();
        ssl.set_connect_state();
        let mut client = End(SslStream::new(ssl, Pipe::default()).unwrap());
        let mut ssl = Ssl::new(&server.context).unwrap();
        ssl.set_accept_state();
        let mut server_end = End(SslStream::new(ssl, Pipe::default()).unwrap());
        let mut said = Vec::new();
        let mut to_client = Vec::new();
        loop {
            let to_server = client.step(&to_client);
            said.push((true, to_server.clone()));
            to_client = server_end.step(&to_server);
            said.push((false, to_client.clone()));
            if to_server.is_empty() && to_client.is_empty() {
                break;
            }
        }
        let to_server = client.say(b"question");
        server_end.step(&to_server);
        let to_client = server_end.say(b"answer");
        client.step(&to_client);
        said.extend([(true, to_server), (false, to_client)]);
        self.resumed.push(client.0.ssl().session_reused());
        self.record(server.address, visit, &said);
        for end in [&mut client, &mut server_end] {
            end.0.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        }
        ClientSession::newest(client.0.ssl())
    }

    fn record(&mut self, server: [u8; 4], visit: Visit<'_>, said: &[(bool, Vec<u8>)]) {
        self.port += 1;
        while self.captures.len() <= visit.application {
            let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101];
            self.captures.push(header.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
        let capture = &mut self.captures[visit.application];
        let ends = [(visit.client, self.port), (server, 443)];
        let mut sequences = [1_u32; 2];
        for (place, (by_client, bytes)) in (0..).zip(said) {
            let side = usize::from(!by_client);
            let [(source, source_port), (target, target_port)] = [ends[side], ends[1 - side]];
            let length = u32::try_from(bytes.len() + 40).unwrap();
            for word in [self.second, place * 1_000, length, length] {
                capture.extend(word.to_le_bytes());
            }
            capture.extend([0x45, 0]);
            capture.extend(u16::try_from(length).unwrap().to_be_bytes());
            capture.extend([0, 1, 0, 0, 64, 6, 0, 0]);
            capture.extend([source, target].concat());
            capture.extend([source_port.to_be_bytes(), target_port.to_be_bytes()].concat());
            capture.extend(sequences[side].to_be_bytes());
            capture.extend([0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
            capture.extend(bytes);
            sequences[side] += u32::try_from(bytes.len()).unwrap();
        }
    }

    /// The causes of the full handshakes; without first visits and unknown ones if there is any other.
    fn causes(&self) -> Vec<Cause> {
        let scope = Scope { application: Application::Capture, device: Device::One, hash_seed: 3 };
        let mut sharing = Sharing::new(scope, Networks::default());
        let mut classes = Vec::new();
        for (application, capture) in self.captures.iter().enumerate() {
            sharing.begin(&application.to_string());
            let each = |handshake: rejoin_capture::Handshake| {
                classes.push((handshake.t_ch.unwrap().to_bits(), handshake.cls));
                sharing.add(&handshake);
            };
            Analyser::new(Limits::default()).read(&capture[..], each).unwrap();
        }
        classes.sort_unstable_by_key(|(time, _)| *time);
        let resumed: Vec<bool> = classes.iter().map(|(_, cls)| *cls == Class::Resumed).collect();
        assert_eq!(resumed, self.resumed, "{classes:?}");
        let found = sharing.findings(&Assumptions::default(), 10).not_resumed;
        let mut causes: Vec<Cause> = found.causes.iter().map(|count| count.cause).collect();
        if causes.len() > 1 {
            causes.retain(|cause| !matches!(cause, Cause::FirstVisit | Cause::Unknown));
        }
        causes
    }
}

/// A server that resumes for another client: it is known to resume.
fn shows_that_it_resumes(world: &mut World, server: &Server) {
    let visit = Visit { client: OTHER_CLIENT, ..VISIT };
    let session = world.visit(server, visit).unwrap();
    world.visit(server, Visit { session: Some(&session), ..visit });
}

/// A server that is restarted, with new keys and an empty cache.
fn restarted(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    let after = server(by, A);
    shows_that_it_resumes(world, &after);
    world.visit(&after, with(&session));
}

fn restarted_unseen(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    world.visit(&server(by, A), with(&session));
}

fn at_another_address(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    let other = server(by, B);
    shows_that_it_resumes(world, &other);
    world.visit(&other, with(&session));
}

/// One address with another server behind each name, of one certificate.
fn under_another_name(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    world.visit(&server(by, A), Visit { name: OTHER_NAME, ..with(&session) });
}

fn with_a_new_certificate(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    let renewed = Pair::self_signed(&[NAME]);
    world.visit(&server_with(by, A, |builder| certify(builder, &renewed)), with(&session));
}

fn elsewhere_under_another_name(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    world.visit(&server(by, B), Visit { name: OTHER_NAME, ..with(&session) });
}

fn after_its_lifetime(world: &mut World, by: By) {
    let session = world.visit(&server(by, A), VISIT).unwrap();
    world.second += LATER_S;
    world.visit(&server(by, A), with(&session));
}

/// A server that now speaks another version.
fn in_another_version(world: &mut World, by: By) {
    *world = World::new(By::Key);
    let session = world.visit(&server(by, A), VISIT).unwrap();
    let other = if by == By::Key { By::Ticket } else { By::Key };
    world.visit(&server(other, A), with(&session));
}

fn at_a_server_that_forgets(world: &mut World, by: By) {
    let session = world.visit(&server(by, B), VISIT).unwrap();
    let forgetful = forgetful(by, A);
    for _ in 0..2 {
        world.visit(&forgetful, with(&session));
    }
}

fn without_being_given_any(world: &mut World, by: By) {
    let forgetful = forgetful(by, A);
    world.visit(&forgetful, VISIT);
    world.visit(&forgetful, VISIT);
}

fn without_offering_it(world: &mut World, by: By) {
    let server = server(by, A);
    world.visit(&server, VISIT);
    world.visit(&server, VISIT);
}

fn without_offering_it_in_time(world: &mut World, by: By) {
    let server = server(by, A);
    world.visit(&server, VISIT);
    world.second += LATER_S;
    world.visit(&server, VISIT);
}

fn from_another_application(world: &mut World, by: By) {
    let server = server(by, A);
    world.visit(&server, VISIT);
    world.visit(&server, Visit { application: 1, ..VISIT });
}

fn at_once(world: &mut World, by: By) {
    let server = server(by, A);
    world.visit(&server, VISIT);
    world.visit_at_once(&server, VISIT);
}

fn for_the_first_time(world: &mut World, by: By) {
    world.visit(&server(by, A), VISIT);
}

/// A cache with room for one session.
fn out_of_a_cache(world: &mut World, by: By) {
    let small = server_with(by, A, |builder| {
        builder.set_session_cache_size(1);
    });
    let session = world.visit(&small, VISIT).unwrap();
    shows_that_it_resumes(world, &small);
    world.visit(&small, with(&session));
}

/// A server that lets each ticket resume once, because early data may be in it.
fn twice(world: &mut World, by: By) {
    let once = server_with(by, A, |builder| {
        builder.set_max_early_data(1 << 14).unwrap();
    });
    let session = world.visit(&once, VISIT).unwrap();
    for _ in 0..2 {
        world.visit(&once, with(&session));
    }
}

type Scenario = (&'static str, fn(&mut World, By), By, Cause);

/// A prepared connection, and the cause that the capture shows.
const SCENARIOS: [Scenario; 38] = [
    ("restarted", restarted, By::Ticket, Cause::DeclinedHere),
    ("restarted", restarted, By::Id, Cause::DeclinedHere),
    ("restarted", restarted, By::Key, Cause::DeclinedHere),
    ("other address", at_another_address, By::Ticket, Cause::OtherAddress),
    ("other address", at_another_address, By::Id, Cause::OtherAddress),
    // Where the ticket came from is encrypted.
    ("other address", at_another_address, By::Key, Cause::DeclinedHere),
    ("other name", under_another_name, By::Ticket, Cause::OtherName),
    ("other name", under_another_name, By::Id, Cause::OtherName),
    ("new certificate", with_a_new_certificate, By::Ticket, Cause::OtherCertificate),
    ("new certificate", with_a_new_certificate, By::Id, Cause::OtherCertificate),
    ("new certificate", with_a_new_certificate, By::Key, Cause::Declined),
    ("restarted, unseen", restarted_unseen, By::Ticket, Cause::Declined),
    ("restarted, unseen", restarted_unseen, By::Id, Cause::Declined),
    ("elsewhere", elsewhere_under_another_name, By::Ticket, Cause::Several),
    ("elsewhere", elsewhere_under_another_name, By::Id, Cause::Several),
    ("lifetime", after_its_lifetime, By::Ticket, Cause::Expired),
    ("version", in_another_version, By::Ticket, Cause::OtherVersion),
    ("version", in_another_version, By::Key, Cause::OtherVersion),
    ("forgetful", at_a_server_that_forgets, By::Key, Cause::DeclinedAll),
    ("nothing given", without_being_given_any, By::Ticket, Cause::NothingGiven),
    ("nothing given", without_being_given_any, By::Id, Cause::NothingGiven),
    ("not offered", without_offering_it, By::Ticket, Cause::NotOffered),
    ("not offered", without_offering_it, By::Id, Cause::NotOffered),
    ("not offered", without_offering_it, By::Key, Cause::CameBack),
    ("too late", without_offering_it_in_time, By::Ticket, Cause::LifetimeOver),
    ("other application", from_another_application, By::Ticket, Cause::OtherApplication),
    ("other application", from_another_application, By::Id, Cause::OtherApplication),
    ("other application", from_another_application, By::Key, Cause::OtherApplication),
    ("parallel", at_once, By::Ticket, Cause::Parallel),
    ("parallel", at_once, By::Id, Cause::Parallel),
    ("parallel", at_once, By::Key, Cause::Parallel),
    ("first", for_the_first_time, By::Ticket, Cause::FirstVisit),
    ("first", for_the_first_time, By::Id, Cause::FirstVisit),
    ("first", for_the_first_time, By::Key, Cause::FirstVisit),
    ("cache", out_of_a_cache, By::Id, Cause::DeclinedHere),
    ("single use", twice, By::Key, Cause::DeclinedHere),
    ("nothing given", without_being_given_any, By::Key, Cause::CameBack),
    ("forgetful", at_a_server_that_forgets, By::Id, Cause::OtherAddress),
];

#[test]
fn the_cause_is_named_and_none_wrongly() {
    let mut differing = Vec::new();
    for (name, prepare, by, cause) in SCENARIOS {
        let mut world = World::new(by);
        prepare(&mut world, by);
        let found = world.causes();
        if found != [cause] {
            differing.push(format!("{name} by {by:?}: {found:?}, not {cause:?}"));
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}
