//! The findings on other names of the server.

use super::{Cause, Seen, Severity, is_apart};
use crate::connection::Failure;
use crate::facts::{NameFacts, Way};
use crate::settings::Host;

impl Seen<'_> {
    pub(super) fn names(&mut self) {
        let first = &self.facts.target.host;
        for of in &self.facts.names {
            let NameFacts { name, way, own, of_first, .. } = of;
            let main = self.facts.of_way(*way).next().map(|(_, facts)| facts);
            let is_whole = main.is_some_and(|facts| facts.at_once.is_whole());
            let is_naught =
                main.is_some_and(|facts| facts.at_once.resumed == 0 && !is_apart(facts));
            let version = way.version();
            match name {
                None if is_naught && *own == Some(true) => {
                    let other = Way::ALL.into_iter().filter(|other| other.version() == version);
                    let mut other = other.flat_map(|other| self.facts.of_way(other).next());
                    let is_minor = other.any(|(_, facts)| facts.at_once.is_whole());
                    let severity = if is_minor { Severity::Note } else { Severity::Loss };
                    let text = format!(
                        "TLS {version}, {}: sessions of clients that name no server resume, and those of {first} do not.",
                        way.token()
                    );
                    self.add(severity, Cause::NameApart, Some(*way), text);
                }
                Some(name) if is_whole && *own == Some(false) => {
                    let text = format!(
                        "TLS {version}: sessions of {first} resume, and those of {name} do not."
                    );
                    self.add(Severity::Loss, Cause::NameApart, Some(*way), text);
                }
                Some(name) if self.is_refused(of) => self.refused(of, name),
                Some(name) if self.gets_nothing(of) => {
                    let text = format!(
                        "TLS {version}: sessions of {first} resume, and clients of {name} get none."
                    );
                    self.add(Severity::Loss, Cause::NameApart, Some(*way), text);
                }
                Some(name) if name != first && *of_first == Some(true) => {
                    let text = format!("TLS {version}: a session of {first} resumes as {name}.");
                    self.add(Severity::Note, Cause::NamesShare, Some(*way), text);
                }
                _ => {}
            }
        }
    }

    /// Returns true if handshakes under this name fail. That a version is not spoken there is none if another one is.
    fn is_refused(&self, of: &NameFacts) -> bool {
        let failure = of.failure.as_ref().filter(|failure| !failure.is_end());
        failure.is_some_and(|failure| *failure != Failure::Version || self.is_dead(of))
    }

    /// Returns true if no handshake succeeds under this name.
    fn is_dead(&self, of: &NameFacts) -> bool {
        let mut all = self.facts.names.iter().filter(|other| other.name == of.name);
        all.all(|other| other.failure.as_ref().is_some_and(|failure| !failure.is_end()))
    }

    fn refused(&mut self, of: &NameFacts, name: &Host) {
        let Some(failure) = &of.failure else { return };
        let (severity, cause) = match self.is_dead(of) {
            true => (Severity::Broken, Cause::NoHandshake),
            false => (Severity::Risk, Cause::VersionFails),
        };
        let text = format!("TLS {}, {name}: {failure}.", of.way.version());
        self.add(severity, cause, Some(of.way), text);
    }

    /// Returns true if clients of this name get no session over a version over which those of the first name resume.
    fn gets_nothing(&self, of: &NameFacts) -> bool {
        let version = of.way.version();
        let is_other = |other: &&NameFacts| other.name == of.name && other.way.version() == version;
        let mut others = self.facts.names.iter().filter(is_other);
        let ways = Way::ALL.into_iter().filter(|way| way.version() == version);
        let mut main = ways.filter_map(|way| self.facts.of_way(way).next());
        of.issued == Some(false)
            && main.any(|(_, facts)| facts.at_once.is_whole())
            && others.all(|other| other.own != Some(true))
    }
}
