//! The settings of the configuration module, from its section of the configuration or from the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rejoin_cache::{Capacity, Fairness, Policy, Settings, SourceBy};
use rejoin_store::{CacheName, Store};
use rejoin_tickets::{LONGEST_TICKET_LIFETIME_S, Schedule, Seconds};

/// The module's settings.
#[derive(Debug)]
pub(crate) struct ModuleSettings {
    /// The folder of the caches.
    pub(crate) folder: PathBuf,
    pub(crate) cache: CacheName,
    /// True if the operator named the cache or its capacity.
    pub(crate) is_named: bool,
    /// The cache's settings. `None`: the cache must exist, and keeps its own.
    pub(crate) settings: Option<Settings>,
    /// True if no context issues stateless tickets.
    pub(crate) stateful: bool,
    /// True if a session of TLS 1.3 resumes at most once.
    pub(crate) single_use: bool,
    /// The program's early data, and where sessions that bring some are.
    pub(crate) early_data: EarlyData,
    /// The keys of stateless tickets. `None`: the server's own.
    pub(crate) tickets: Option<TicketSettings>,
    /// The time after which a client must make a full handshake again.
    pub(crate) resumable_for: Duration,
    /// The name under which all contexts share sessions with those of other programs.
    pub(crate) context: Option<String>,
    /// True if programs under that name are said to check client certificates alike.
    pub(crate) vouched: bool,
    /// True if only errors are reported.
    pub(crate) errors_only: bool,
}

/// The value of `early_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyData {
    /// The program does as it does without Rejoin.
    Program,
    /// None is accepted twice, anywhere.
    Once,
    /// None is accepted twice, and sessions stay on this machine.
    OnceHere,
}

/// The settings of the keys of stateless tickets.
#[derive(Debug)]
pub(crate) struct TicketSettings {
    pub(crate) schedule: Schedule,
    /// The file that keeps the keys, beside the cache.
    pub(crate) file: Option<PathBuf>,
}

impl ModuleSettings {
    /// Returns true if sessions are taken from the cache, so that none may be in two.
    pub(crate) fn takes(&self) -> bool {
        self.single_use || self.early_data != EarlyData::Program
    }

    /// Reads the settings. `get` returns the value of a name.
    pub(crate) fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let get = Asked(get);
        let name = get.text("cache")?;
        let capacity = get.parsed("capacity")?;
        let is_named = name.is_some() || capacity.is_some();
        let cache = name.unwrap_or_else(|| "default".to_owned());
        let cache = cache.parse().map_err(|error| wrong("cache", &cache, error))?;
        let policies = [("predictive", Policy::Predictive), ("lru", Policy::Lru)];
        let policy = get.one_of("policy", policies)?;
        get.needs_capacity("policy", capacity.is_some())?;
        let single_use = get.one_of("single_use", [("no", false), ("yes", true)])?;
        let early_data = [
            ("program", EarlyData::Program),
            ("once", EarlyData::Once),
            ("once-here", EarlyData::OnceHere),
        ];
        let early_data = get.one_of("early_data", early_data)?;
        // A stateless ticket cannot be used up.
        let stateful = get.one_of("stateful", [("no", single_use), ("yes", true)])?;
        let fairness = get.fairness(capacity.is_some())?;
        let settings =
            |capacity: Capacity| Settings { policy, fairness, ..Settings::new(capacity) };
        let settings = capacity.map(settings);
        get.fits(settings.as_ref())?;
        Ok(Self {
            folder: get.folder()?,
            cache,
            is_named,
            settings,
            stateful,
            single_use,
            early_data,
            tickets: get.tickets(early_data != EarlyData::Program, stateful)?,
            resumable_for: get.resumable_for()?,
            vouched: get.vouched()?,
            context: get.context()?,
            errors_only: get.one_of("log", [("all", false), ("errors", true)])?,
        })
    }
}

const NEEDS_CAPACITY: &str = "set capacity, too: a cache that another server made keeps its own";

/// The source of the settings.
struct Asked<G>(G);

impl<G: Fn(&str) -> Option<OsString>> Asked<G> {
    /// Reads a value that is no path. A path may be of any bytes.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        let text = |value: OsString| {
            value.into_string().map_err(|value| wrong(name, &value.to_string_lossy(), "not UTF-8"))
        };
        (self.0)(name).map(text).transpose()
    }

    /// Reads the folder. A relative one would be another in each working directory.
    fn folder(&self) -> Result<PathBuf, String> {
        let folder = (self.0)("folder").map_or_else(|| PathBuf::from(Store::FOLDER), PathBuf::from);
        match folder.is_absolute() {
            true => Ok(folder),
            false => Err(wrong("folder", &folder.to_string_lossy(), "give an absolute path")),
        }
    }

    /// Refuses a capacity that no cache can have. The cache's own error counts sessions, which nobody wrote.
    fn fits(&self, settings: Option<&Settings>) -> Result<(), String> {
        match settings.map(Store::bytes_for) {
            Some(Err(rejoin_cache::Error::OutOfRange {
                name: "capacity", value, most, ..
            })) if value > most => {
                let text = self.text("capacity")?.unwrap_or_default();
                Err(wrong("capacity", &text, "no cache can be that large: give less"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the settings of stateless tickets. Those of the server's own keys could be replayed with early data.
    fn tickets(&self, is_ours: bool, stateful: bool) -> Result<Option<TicketSettings>, String> {
        let ours = self.one_of("ticket_keys", [("shared", true), ("server", false)])?;
        if !ours {
            let of_our_keys = ["rotate_every", "ticket_lifetime", "key_file"];
            of_our_keys.into_iter().try_for_each(|name| {
                self.refused(name, "it needs ticket_keys = shared: leave out ticket_keys")
            })?;
        }
        if !ours && !stateful {
            let why = "the server's own tickets have no such bound: leave out ticket_keys, or set stateful = yes";
            self.refused("resumable_for", why)?;
        }
        if is_ours && !ours {
            return Err(
                "early_data = once needs ticket_keys = shared: leave out ticket_keys".to_owned()
            );
        }
        let usual = Schedule::default();
        let rotate_s = self.seconds("rotate_every", usual.rotate_every_s())?;
        let lifetime_s = self.seconds("ticket_lifetime", usual.ticket_lifetime_s())?;
        let schedule = Schedule::with_usual_lead(rotate_s, lifetime_s);
        let schedule = schedule.map_err(|error| error.to_string())?;
        let file = (self.0)("key_file").map(PathBuf::from);
        Ok(ours.then_some(TicketSettings { schedule, file }))
    }

    /// Refuses a setting of the cache that a capacity makes, where none is made.
    fn needs_capacity(&self, name: &str, has_capacity: bool) -> Result<(), String> {
        if has_capacity { Ok(()) } else { self.refused(name, NEEDS_CAPACITY) }
    }

    /// Refuses a setting that is given.
    fn refused(&self, name: &str, why: &str) -> Result<(), String> {
        let given = (self.0)(name);
        given.map_or(Ok(()), |given| Err(wrong(name, &given.to_string_lossy(), why)))
    }

    /// Reads the bound on what one source can take, which belongs to the cache that a capacity makes.
    fn fairness(&self, has_capacity: bool) -> Result<Option<Fairness>, String> {
        let kinds = [
            ("address", SourceBy::Address),
            ("certificate", SourceBy::Certificate),
            ("name", SourceBy::Name),
        ];
        let by = self.one_of("source_by", kinds)?;
        let Some(text) = self.text("source_share")? else {
            return match self.text("source_by")? {
                Some(by) => Err(wrong("source_by", &by, "set source_share = 10%, too")),
                None => Ok(None),
            };
        };
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
        match percent {
            Some(1..=100) if !has_capacity => Err(wrong("source_share", &text, NEEDS_CAPACITY)),
            Some(percent @ 1..=100) => Ok(Some(Fairness { by, percent })),
            _ => Err(wrong("source_share", &text, "write 1% to 100%")),
        }
    }

    fn resumable_for(&self) -> Result<Duration, String> {
        self.seconds("resumable_for", LONGEST_TICKET_LIFETIME_S).map(Duration::from_secs)
    }

    fn context(&self) -> Result<Option<String>, String> {
        const LONGEST: usize = 64;
        let given = self.text("context")?;
        let fits = |name: &str| (1..=LONGEST).contains(&name.len());
        match given {
            Some(name) if !fits(&name) => {
                Err(wrong("context", &name, "give a name of 1 to 64 bytes"))
            }
            given => Ok(given),
        }
    }

    fn vouched(&self) -> Result<bool, String> {
        let name = "client_certificates";
        let vouched = self.one_of(name, [("apart", false), ("context", true)])?;
        match self.text("context")? {
            None if vouched => Err(wrong(name, "context", "set context = NAME, too")),
            _ => Ok(vouched),
        }
    }

    /// Reads one of these words. The first is the default.
    fn one_of<T, const N: usize>(&self, name: &str, words: [(&str, T); N]) -> Result<T, String> {
        let text = self.text(name)?;
        let known = words.map(|(word, value)| (word, Some(value)));
        let is_it = |word: &str| text.as_deref().is_none_or(|text| text == word);
        let names = known.each_ref().map(|(word, _)| *word);
        let found = known.into_iter().find_map(|(word, value)| value.filter(|_| is_it(word)));
        found.ok_or_else(|| {
            let [others @ .., last] = &names[..] else { return String::new() };
            let text = text.unwrap_or_default();
            wrong(name, &text, format!("write {} or {last}", others.join(", ")))
        })
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, String> {
        let parse = |text: String| text.parse().map_err(|error: T::Err| wrong(name, &text, error));
        self.text(name)?.map(parse).transpose()
    }

    fn seconds(&self, name: &str, otherwise: u64) -> Result<u64, String> {
        Ok(self.parsed(name)?.map_or(otherwise, |Seconds(seconds)| seconds))
    }
}

fn wrong(name: &str, text: &str, what: impl std::fmt::Display) -> String {
    format!("{name} = {text}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<ModuleSettings, String> {
        let known = |name: &str| settings.iter().find(|setting| setting.0 == name);
        ModuleSettings::read(|name| known(name).map(|setting| setting.1.into()))
    }

    #[test]
    fn nothing_said_is_the_usual() {
        let settings = read(&[]).expect("usual");
        let tickets = settings.tickets.expect("shared");
        assert_eq!((tickets.schedule, tickets.file), (Schedule::default(), None));
        assert_eq!(settings.resumable_for, rejoin_openssl::RESUMABLE_FOR);
        assert!(settings.settings.is_none() && !settings.stateful && !settings.errors_only);
        assert!(!settings.vouched);
    }

    #[test]
    fn a_source_has_its_share_of_a_cache_that_is_made() {
        let fairness = |settings: &[(&str, &str)]| {
            read(settings).map(|settings| settings.settings.expect("made").fairness)
        };
        let (capacity, share) = (("capacity", "8MiB"), ("source_share", "15%"));
        let address = Fairness { by: SourceBy::Address, percent: 15 };
        assert_eq!(fairness(&[capacity]), Ok(None));
        assert_eq!(fairness(&[capacity, share]), Ok(Some(address)));
        let name = Fairness { by: SourceBy::Name, ..address };
        assert_eq!(fairness(&[capacity, share, ("source_by", "name")]), Ok(Some(name)));
        assert!(read(&[share]).expect_err("no capacity").contains("set capacity"));
    }

    #[test]
    fn what_is_said_is_taken_or_refused() {
        let tickets =
            read(&[("rotate_every", "30m"), ("ticket_lifetime", "2h"), ("key_file", "k")]);
        let tickets = tickets.expect("read").tickets.expect("shared");
        assert_eq!(tickets.schedule, Schedule::new(1_800, 7_200, 900).expect("a schedule"));
        assert_eq!(tickets.file, Some(PathBuf::from("k")));
        let vouched = read(&[("context", "brokers"), ("client_certificates", "context")]);
        assert!(vouched.expect("read").vouched);
        assert!(read(&[("ticket_keys", "server")]).expect("read").tickets.is_none());
        for (name, text) in [
            ("rotate_every", "12"),
            ("rotate_every", "h"),
            ("rotate_every", ""),
            ("rotate_every", "1s"),
            ("rotate_every", "99999999999999999999d"),
            ("ticket_lifetime", "8d"),
            ("resumable_for", "soon"),
            ("resumable_for", "5µ"),
            ("ticket_keys", "mine"),
            ("stateful", "maybe"),
            ("client_certificates", "all"),
            ("client_certificates", "context"),
            ("log", "debug"),
            ("source_share", "10"),
            ("source_share", "0%"),
            ("source_share", "101%"),
            ("source_share", "10%"),
            ("source_by", "address"),
            ("source_by", "port"),
            ("capacity", "99999GiB"),
            ("folder", "caches"),
            ("folder", ""),
        ] {
            let refused = read(&[(name, text)]).expect_err(text);
            assert!(refused.contains(name), "{name} = {text}: {refused}");
        }
    }

    #[test]
    fn a_setting_that_would_do_nothing_is_refused() {
        let own = ("ticket_keys", "server");
        for (name, text) in [
            ("resumable_for", "1h"),
            ("key_file", "k"),
            ("rotate_every", "1h"),
            ("ticket_lifetime", "2d"),
        ] {
            let refused = read(&[own, (name, text)]).expect_err(name);
            assert!(refused.contains(name) && refused.contains("ticket_keys"), "{refused}");
        }
        let stateful = [own, ("resumable_for", "1h"), ("stateful", "yes")];
        let read_stateful = read(&stateful).expect("sessions have the bound");
        assert_eq!(read_stateful.resumable_for, Duration::from_secs(3_600));
        assert!(read(&[own, ("resumable_for", "1h"), ("single_use", "yes")]).is_ok());
        for policy in ["lru", "predictive"] {
            let refused = read(&[("policy", policy)]).expect_err("no capacity");
            assert!(refused.contains("policy") && refused.contains("set capacity"), "{refused}");
            assert!(read(&[("policy", policy), ("capacity", "8MiB")]).is_ok());
        }
    }

    #[test]
    fn a_path_is_of_any_bytes_and_nothing_else_is() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || OsString::from_vec(b"/tmp/caf\xe9".to_vec());
        let read = |wanted: &str| ModuleSettings::read(|name| (name == wanted).then(odd));
        assert_eq!(read("folder").expect("a path").folder, PathBuf::from(odd()));
        let keys = read("key_file").expect("a path").tickets.expect("shared");
        assert_eq!(keys.file, Some(PathBuf::from(odd())));
        for name in ["cache", "context", "policy", "capacity", "rotate_every"] {
            let refused = read(name).expect_err(name);
            assert!(refused.contains(name) && refused.ends_with("not UTF-8"), "{refused}");
        }
    }
}
