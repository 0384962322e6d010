//! Conversations about early data, by hand, with a server that has Rejoin and with the same server without: the answers
//! are the same. They are those of tlsfuzzer's scripts for 0-RTT, which no package registry has.

use rejoin_testkit::by_hand::{Age, Answer, Binder, Conversation, End, Offer, Share, Ticket};

use super::servers::{Kind, Rejoin, Server};
use super::{Effort, Found};

const REQUEST: &[u8] = b"GET /by-hand HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"ok";
/// More than servers allow.
const BEYOND_BYTES: usize = 40_000;
const RECORD_BYTES: usize = 16_000;

type Said = Result<Answer, End>;

/// A conversation, and what is said in it. The ticket is new.
type Script = (&'static str, fn(&Server, &Ticket) -> Said);

const SCRIPTS: [Script; 18] = [
    ("no early data", |server, ticket| {
        let offer = Offer { early_data: false, ..Offer::of(Some(ticket)) };
        open(server, &offer, |_| {}).and_then(|talk| end(talk, true))
    }),
    ("early data", |server, ticket| early(server, &Offer::of(Some(ticket)), REQUEST)),
    ("early data in pieces", |server, ticket| {
        let send = |talk: &mut Conversation| REQUEST.chunks(7).for_each(|part| talk.early(part));
        open(server, &Offer::of(Some(ticket)), send).and_then(|talk| end(talk, true))
    }),
    ("announced, and not sent", |server, ticket| {
        open(server, &Offer::of(Some(ticket)), |_| {}).and_then(|talk| end(talk, true))
    }),
    ("a ticket of nobody", |server, ticket| {
        early(server, &Offer::of(Some(&ticket.of_nobody())), REQUEST)
    }),
    ("garbage with a ticket of nobody", |server, ticket| {
        let ticket = ticket.of_nobody();
        open(server, &Offer::of(Some(&ticket)), |talk| talk.garbage(500))
            .and_then(|talk| end(talk, true))
    }),
    ("garbage", |server, ticket| {
        open(server, &Offer::of(Some(ticket)), |talk| talk.garbage(500))
            .and_then(|talk| end(talk, true))
    }),
    ("no ticket", |server, _| {
        let offer = Offer { early_data: true, ..Offer::of(None) };
        open(server, &offer, |talk| talk.garbage(500)).and_then(|talk| end(talk, true))
    }),
    ("another's binder", |server, ticket| {
        early(server, &Offer { binder: Binder::Wrong, ..Offer::of(Some(ticket)) }, REQUEST)
    }),
    ("the second of two tickets", |server, ticket| {
        early(server, &Offer { is_second: true, ..Offer::of(Some(ticket)) }, REQUEST)
    }),
    ("another ClientHello is wanted", |server, ticket| {
        early(server, &Offer { share: Share::Unknown, ..Offer::of(Some(ticket)) }, REQUEST)
    }),
    ("a minute older", |server, ticket| {
        early(server, &Offer { age: Age::Older(60_000), ..Offer::of(Some(ticket)) }, REQUEST)
    }),
    ("a minute younger", |server, ticket| {
        let offer = Offer { age: Age::Older(60_000_u32.wrapping_neg()), ..Offer::of(Some(ticket)) };
        early(server, &offer, REQUEST)
    }),
    ("another name", |server, ticket| {
        early(server, &Offer { name: "otherhost", ..Offer::of(Some(ticket)) }, REQUEST)
    }),
    ("no end of early data", |server, ticket| {
        // A whole request may be answered before the end is missed.
        let send = |talk: &mut Conversation| talk.early(&REQUEST[..REQUEST.len() - 2]);
        open(server, &Offer::of(Some(ticket)), send).and_then(|talk| end(talk, false))
    }),
    ("beyond the limit", |server, ticket| {
        let send = |talk: &mut Conversation| {
            (0..BEYOND_BYTES).step_by(RECORD_BYTES).for_each(|_| talk.early(&[b'x'; RECORD_BYTES]));
        };
        open(server, &Offer::of(Some(ticket)), send).and_then(|talk| end(talk, true))
    }),
    ("garbage beyond the limit", |server, ticket| {
        let ticket = ticket.of_nobody();
        let send = |talk: &mut Conversation| (0..4).for_each(|_| talk.garbage(RECORD_BYTES));
        open(server, &Offer::of(Some(&ticket)), send).and_then(|talk| end(talk, true))
    }),
    ("a plain alert", |server, ticket| {
        let send = |talk: &mut Conversation| talk.record(ALERT, &[1, 0]);
        open(server, &Offer::of(Some(ticket)), send).and_then(|talk| end(talk, true))
    }),
];

const ALERT: u8 = 21;

/// The conversations that end otherwise with Rejoin: it resumes no session under another name.
const OTHERWISE: [&str; 1] = ["another name"];

/// A conversation, and the answer to its ClientHello.
struct Talk {
    conversation: Conversation,
    answer: Answer,
    is_announced: bool,
}

/// Compares what is said with Rejoin and without.
pub(super) fn same(_: Effort, kind: Kind) -> Option<Found> {
    let ours = Server::start(kind, Rejoin::Once, "talk")?;
    let plain = Server::start(kind, Rejoin::Absent, "plain-talk")?;
    let (mut differ, mut accepted, mut twice) = (Vec::new(), 0, Vec::new());
    for (name, script) in SCRIPTS {
        let [with, without] = [&ours, &plain].map(|server| {
            let ticket = ticket(server)?;
            Ok::<_, End>((script(server, &ticket), script(server, &ticket)))
        });
        let ((with, again), (without, _)) = match (with, without) {
            (Ok(with), Ok(without)) => (with, without),
            (with, without) => {
                let figure = format!("{name}: no session, {:?}, {:?}", with.err(), without.err());
                return Some(Found { figure, holds: false });
            }
        };
        accepted += usize::from(with.as_ref().is_ok_and(|answer| answer.early_accepted));
        if again.as_ref().is_ok_and(|answer| answer.early_accepted) {
            twice.push(name);
        }
        if with != without && !OTHERWISE.contains(&name) {
            differ.push(format!("{name}: {with:?} and {without:?}"));
        }
    }
    let figure = format!(
        "{} of {} differ {differ:?}, but for {OTHERWISE:?}; {accepted} accepted, of those again {twice:?}",
        differ.len(),
        SCRIPTS.len()
    );
    Some(Found { figure, holds: differ.is_empty() && accepted > 0 && twice.is_empty() })
}

/// A new session, of a full handshake.
fn ticket(server: &Server) -> Result<Ticket, End> {
    let mut conversation = Conversation::open(server.site.address());
    let offer = Offer::of(None);
    conversation.hello(&offer);
    conversation.answer(&offer)?;
    conversation.finish();
    conversation.send(REQUEST);
    let tickets = conversation.read_until(ANSWER)?;
    tickets.into_iter().find(|ticket| ticket.early_bytes > 0).ok_or(End::Nonsense("no session"))
}

fn early(server: &Server, offer: &Offer<'_>, early: &[u8]) -> Said {
    open(server, offer, |talk| talk.early(early)).and_then(|talk| end(talk, true))
}

/// Sends a ClientHello and what follows it, and reads the server's flight.
fn open(server: &Server, offer: &Offer<'_>, then: impl Fn(&mut Conversation)) -> Result<Talk, End> {
    let mut conversation = Conversation::open(server.site.address());
    conversation.hello(offer);
    then(&mut conversation);
    // No early data follows a second ClientHello (RFC 8446, section 4.1.2).
    let second = Offer { share: Share::Known, early_data: false, ..*offer };
    let answer = conversation.answer(&second)?;
    Ok(Talk { conversation, answer, is_announced: offer.early_data })
}

/// Ends the handshake, and asks for a page if that was not done before.
fn end(talk: Talk, says_end: bool) -> Said {
    let Talk { mut conversation, answer, is_announced } = talk;
    if is_announced && answer.early_accepted && says_end {
        conversation.end_early();
    }
    conversation.finish();
    conversation.send(REQUEST);
    conversation.read_until(ANSWER).map(|_| answer)
}
