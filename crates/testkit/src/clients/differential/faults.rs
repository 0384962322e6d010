//! The faults, and the tables that show them.

use std::sync::Arc;

use super::server::{Behaviour, Framing, Hello};

/// The point of an answer at which something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The request is read, and nothing is answered.
    Nothing,
    /// The head and one byte.
    One,
    Half,
    All,
}

/// The end of a connection, by its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A close_notify and an end.
    Notify,
    /// An end without a close_notify.
    Fin,
    Reset,
    /// Nothing more is said until the client goes.
    Stalls,
    /// The same, and nobody hears that it goes, as if the process were stopped.
    Freezes,
}

/// One thing that goes wrong, or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server ends every connection like this.
    Ends(End, Point),
    /// The server resets the connection at the ClientHello.
    ResetAtHello,
    /// The server answers late, and in pieces.
    Slow,
    /// The server accepts, and says nothing.
    Silent,
    /// A ClientHello that is larger than a packet is lost.
    BigHelloLost,
    /// The same, and the server resets the connection at half of the answer.
    BigHelloLostAndReset,
    /// The server asks for a certificate that it does not need.
    AsksForCertificate,
    /// New keys of tickets between the visits.
    TicketKeys,
    /// Another certificate and key between the visits; the keys of tickets stay.
    Certificate,
    /// The certificate expires between the visits; the keys of tickets stay.
    Expires,
    /// The certificate has expired.
    Expired,
    /// The certificate has another name.
    WrongName,
    /// Nobody knows the certificate's authority.
    Stranger,
    /// No manager runs.
    ManagerGone,
    /// Half of the answer is there as the manager is killed.
    ManagerKilled,
    /// The same, and `SIGTERM`.
    ManagerTerminated,
    /// The manager is stopped by `SIGSTOP`.
    ManagerStopped,
    /// Half of the answer is there as the manager is stopped.
    ManagerStops,
    /// The manager is started anew between the visits.
    ManagerRestarted,
    /// The manager has as many connections as it may.
    ManagerFull,
    /// The program has more than a thousand descriptors.
    Descriptors,
    /// The program has no network.
    NoNetwork,
}

/// A table of the document: its title, the framing of answers, and its columns.
#[derive(Debug)]
pub struct Table {
    pub title: &'static str,
    pub framing: Framing,
    /// True if it is about framing, which other protocols than HTTP have of their own.
    pub is_http: bool,
    pub columns: &'static [(&'static str, Fault)],
}

/// All tables.
pub static TABLES: &[Table] = &[
    Table {
        title: "A server that says how long its answer is, and ends the connection",
        framing: Framing::Length,
        is_http: false,
        columns: ENDS,
    },
    Table {
        title: "A server whose answer lasts until the end of the connection",
        framing: Framing::Close,
        is_http: true,
        columns: ENDS,
    },
    Table {
        title: "A server, or the way to it",
        framing: Framing::Length,
        is_http: false,
        columns: &[
            ("slow", Fault::Slow),
            ("silent", Fault::Silent),
            ("stalls at half", Fault::Ends(End::Stalls, Point::Half)),
            ("reset at the ClientHello", Fault::ResetAtHello),
            ("big ClientHello lost", Fault::BigHelloLost),
            ("the same, RST at half", Fault::BigHelloLostAndReset),
            ("asks for a certificate", Fault::AsksForCertificate),
            ("new ticket keys", Fault::TicketKeys),
            ("new certificate", Fault::Certificate),
            ("certificate expires", Fault::Expires),
            ("expired", Fault::Expired),
            ("wrong name", Fault::WrongName),
            ("unknown authority", Fault::Stranger),
        ],
    },
    Table {
        title: "The manager, or the program",
        framing: Framing::Close,
        is_http: false,
        columns: &[
            ("no manager", Fault::ManagerGone),
            ("killed at half", Fault::ManagerKilled),
            ("`SIGTERM` at half", Fault::ManagerTerminated),
            ("stopped", Fault::ManagerStopped),
            ("stopped at half", Fault::ManagerStops),
            ("restarted", Fault::ManagerRestarted),
            ("full", Fault::ManagerFull),
            ("1,100 descriptors", Fault::Descriptors),
            ("`unshare -n`", Fault::NoNetwork),
        ],
    },
];

const ENDS: &[(&str, Fault)] = &[
    ("close_notify", Fault::Ends(End::Notify, Point::All)),
    ("at half", Fault::Ends(End::Notify, Point::Half)),
    ("at 1", Fault::Ends(End::Notify, Point::One)),
    ("at 0", Fault::Ends(End::Notify, Point::Nothing)),
    ("FIN", Fault::Ends(End::Fin, Point::All)),
    ("at half", Fault::Ends(End::Fin, Point::Half)),
    ("at 1", Fault::Ends(End::Fin, Point::One)),
    ("at 0", Fault::Ends(End::Fin, Point::Nothing)),
    ("RST", Fault::Ends(End::Reset, Point::All)),
    ("at half", Fault::Ends(End::Reset, Point::Half)),
    ("at 1", Fault::Ends(End::Reset, Point::One)),
    ("at 0", Fault::Ends(End::Reset, Point::Nothing)),
];

impl Fault {
    /// The server's behaviour. `is_with` is true if Rejoin is there; `act` is what happens to the manager at half. The
    /// server does what the manager's fate must look like, after it: without Rejoin, and for who goes directly.
    pub(super) fn behaviour(
        self,
        framing: Framing,
        is_with: bool,
        act: &Arc<dyn Fn() + Send + Sync>,
    ) -> Behaviour {
        let ends = |end, point| Behaviour { framing, end, point, ..Behaviour::default() };
        let acted = |behaviour: Behaviour| {
            if !is_with {
                return behaviour;
            }
            let afterwards = Some(Box::new(self.behaviour(framing, false, act)));
            Behaviour { at_point: Some(Arc::clone(act)), afterwards, ..behaviour }
        };
        let hello = |hello| Behaviour { hello, ..ends(End::Notify, Point::All) };
        match self {
            Self::Ends(end, point) => ends(end, point),
            Self::ResetAtHello => hello(Hello::Reset),
            Self::Slow => hello(Hello::Late),
            Self::Silent => hello(Hello::Silent),
            Self::BigHelloLost => hello(Hello::LostIfBig),
            Self::BigHelloLostAndReset => {
                Behaviour { hello: Hello::LostIfBig, ..ends(End::Reset, Point::Half) }
            }
            Self::ManagerKilled => acted(ends(End::Reset, Point::Half)),
            Self::ManagerStops => acted(ends(End::Freezes, Point::Half)),
            Self::ManagerTerminated => {
                acted(Behaviour { goes_on: true, ..ends(End::Notify, Point::Half) })
            }
            _ => ends(End::Notify, Point::All),
        }
    }

    /// Returns true if the server can see the same as without Rejoin: a manager that dies takes its connections along.
    pub(super) fn shows_clients(self) -> bool {
        !matches!(self, Self::ManagerKilled | Self::ManagerTerminated | Self::ManagerStops)
    }

    /// The longest run of a program, in seconds: one that waits is ended in the same way with Rejoin and without.
    pub(super) fn limit_s(self) -> u32 {
        match self {
            // Longer than the manager waits for a server.
            Self::Silent => 5,
            Self::Ends(End::Stalls, _) | Self::ManagerStops => 2,
            _ => 30,
        }
    }

    /// The time that programs wait for the manager's word, in milliseconds.
    pub(super) fn patience_ms(self) -> u64 {
        if self == Self::ManagerStopped { 500 } else { 20_000 }
    }

    /// The words before the program's own.
    pub(super) fn wrapped(self) -> &'static [&'static str] {
        match self {
            Self::Descriptors => &["bash", "-c", MANY, "bash"],
            Self::NoNetwork => &["unshare", "--net"],
            _ => &[],
        }
    }
}

/// Opens 1,100 descriptors, and becomes the program.
const MANY: &str =
    "ulimit -Sn 4096; for at in {20..1119}; do eval \"exec $at</dev/null\"; done; exec \"$@\"";
