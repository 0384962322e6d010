//! One client that has one transaction after the other with a server: what a run under valgrind is of.

use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

use rejoin_openssl::{Client, ClientSession};

use super::super::load::{self, Load};
use super::super::{Handshake, Suite, Traffic};
use crate::Error;

/// For an answer of a server that is slowed down two hundred times, and for it to have one taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A client, and what it may resume.
pub(super) struct Talk {
    address: SocketAddrV4,
    body_bytes: u32,
    tls: Vec<(Suite, Client, Option<ClientSession>)>,
}

impl Talk {
    pub(super) fn new(
        address: SocketAddrV4,
        body_bytes: u32,
        suites: &[Suite],
    ) -> Result<Self, Error> {
        let tls = suites.iter().map(|suite| Ok((*suite, load::client(*suite)?, None)));
        Ok(Self { address, body_bytes, tls: tls.collect::<Result<_, Error>>()? })
    }

    /// All kinds that there may be, once: nothing that a server does at the first of a kind alone is counted
    /// after that.
    pub(super) fn warm_up(&mut self) -> Result<(), Error> {
        if self.tls.is_empty() {
            return self.have(Traffic::Plain, 1);
        }
        for suite in self.tls.iter().map(|(suite, ..)| *suite).collect::<Vec<_>>() {
            self.have(Traffic::Tls(suite, Handshake::Full), 1)?;
            self.have(Traffic::Tls(suite, Handshake::Resumed), 1)?;
        }
        Ok(())
    }

    /// `count` transactions.
    pub(super) fn have(&mut self, traffic: Traffic, count: u32) -> Result<(), Error> {
        let failed = |source| Error::System {
            what: "a transaction failed under valgrind",
            source: io::Error::other(format!("{traffic}: {source}")),
        };
        let Self { address, body_bytes, .. } = *self;
        let mut tls = self.tls.iter_mut();
        let tls = tls.find(|(suite, ..)| Some(*suite) == traffic.suite());
        let (client, session) = match tls {
            Some((_, client, session)) => (Some(&*client), session),
            None if traffic == Traffic::Plain => (None, &mut None),
            None => return Err(failed(io::Error::other("there is no client for it"))),
        };
        let load = Load {
            address,
            traffic,
            body_bytes,
            clients: 1,
            lasts: PATIENCE,
            patience: PATIENCE,
            client,
        };
        load.repeat(count, session).map_err(failed)
    }
}
