//! The groups of clients of a plan, made from its keys.

use rejoin_trace::{
    BrowserSettings, Browsers, Claims, Event, Flood, FloodSettings, Gaps, Group, Mixture,
    Population, PopulationSettings, Runs, Start,
};

use super::file::{self, ClaimsName, GapsName, Kind, RunsName, StartName};
use super::{bad, milliseconds, value, within};
use crate::error::Error;

/// Returns the groups' names and the groups; `None` if there is none.
pub(super) fn mixture(groups: Vec<file::Group>) -> Result<(Vec<String>, Option<Mixture>), Error> {
    let mut names: Vec<String> = Vec::new();
    let mut made = Vec::new();
    for group in groups {
        let name = name(&group, &names)?;
        let keys = Keys { name: &name, group: &group };
        keys.only_of_its_kind()?;
        made.push(match group.kind {
            Kind::Devices => keys.devices()?,
            Kind::Browsers => keys.browsers()?,
            Kind::Flood => keys.flood()?,
        });
        names.push(name);
    }
    if made.is_empty() {
        return Ok((names, None));
    }
    let mixture = Mixture::new(made).map_err(|cause| value("group", cause.to_string()))?;
    Ok((names, Some(mixture)))
}

/// Returns a group's own name, or one of its kind: the second group of a kind is "devices-2".
fn name(group: &file::Group, taken: &[String]) -> Result<String, Error> {
    let free = |name: &String| !taken.contains(name);
    if let Some(name) = &group.name {
        if name.is_empty() || !free(name) {
            return bad("name", format!("{name:?} is empty or taken: give every group its own"));
        }
        return Ok(name.clone());
    }
    let kind = group.kind.as_str();
    let names = (1..).map(|number| match number {
        1 => kind.to_owned(),
        _ => format!("{kind}-{number}"),
    });
    Ok(names.into_iter().find(free).unwrap_or_else(|| kind.to_owned()))
}

/// A group's keys, and its name for messages.
struct Keys<'a> {
    name: &'a str,
    group: &'a file::Group,
}

impl Keys<'_> {
    /// Refuses a key of another kind, which would have no effect.
    fn only_of_its_kind(&self) -> Result<(), Error> {
        let file::Group { kind, .. } = *self.group;
        let given = [
            (Kind::Devices, "devices", self.group.devices.is_some()),
            (Kind::Devices, "running_s", self.group.running_s.is_some()),
            (Kind::Devices, "runs", self.group.runs.is_some()),
            (Kind::Devices, "waiting_s", self.group.waiting_s.is_some()),
            (Kind::Devices, "intervals", self.group.intervals.is_some()),
            (Kind::Devices, "jitter_s", self.group.jitter_s.is_some()),
            (Kind::Devices, "start", self.group.start.is_some()),
            (Kind::Devices, "departures_known", self.group.departures_known.is_some()),
            (Kind::Devices, "claims", self.group.claims.is_some()),
            (Kind::Browsers, "browsers", self.group.browsers.is_some()),
            (Kind::Browsers, "gaps", self.group.gaps.is_some()),
            (Kind::Flood, "per_s", self.group.per_s.is_some()),
            (Kind::Flood, "claims_s", self.group.claims_s.is_some()),
            (Kind::Flood, "visits", self.group.visits.is_some()),
            (Kind::Flood, "every_s", self.group.every_s.is_some()),
        ];
        match given.into_iter().find(|(of, _, given)| *given && *of != kind) {
            Some((of, key, _)) => {
                let (kind, of) = (kind.as_str(), of.as_str());
                bad(&self.key(key), format!("it belongs to kind {of:?}, and this is {kind:?}"))
            }
            None => Ok(()),
        }
    }

    fn devices(&self) -> Result<Group, Error> {
        let group = self.group;
        let intervals = self.needed("intervals", group.intervals.as_ref())?;
        let settings = PopulationSettings {
            devices: self.count("devices", group.devices)?,
            waiting_ms: self.time("waiting_s", group.waiting_s)?,
            running_ms: self.time("running_s", group.running_s)?,
            runs: match group.runs {
                None | Some(RunsName::Exponential) => Runs::Exponential,
                Some(RunsName::LogNormal { sigma }) => Runs::LogNormal { sigma },
                Some(RunsName::Habits { sigma, within }) => Runs::Habits { sigma, within },
            },
            intervals: intervals.parse().map_err(|cause| self.wrong(cause))?,
            jitter_ms: milliseconds(&self.key("jitter_s"), group.jitter_s.unwrap_or(0.0), 0)?,
            start: match group.start {
                None | Some(StartName::Steady) => Start::Steady,
                Some(StartName::Waiting) => Start::Waiting,
            },
            departures_known: group.departures_known.unwrap_or(false),
            claims: self.claims()?,
        };
        Ok(Population::new(settings).map_err(|cause| self.wrong(cause))?.into())
    }

    fn claims(&self) -> Result<Claims, Error> {
        Ok(match self.group.claims {
            None | Some(ClaimsName::Truth) => Claims::Truth,
            Some(ClaimsName::Nothing) => Claims::Nothing,
            Some(ClaimsName::Permille(permille)) => {
                Claims::Permille(within(&self.key("claims.permille"), permille, 0, 1_000_000)?)
            }
            Some(ClaimsName::FixedS(s)) => Claims::Fixed(self.claim("claims.fixed_s", s)?),
        })
    }

    fn browsers(&self) -> Result<Group, Error> {
        let time = |key, seconds| self.time(key, Some(seconds));
        let gaps = match *self.needed("gaps", self.group.gaps.as_ref())? {
            GapsName::Pareto { least_s, shape } => {
                Gaps::Pareto { least_ms: time("gaps.pareto.least_s", least_s)?, shape }
            }
            GapsName::LogNormal { median_s, sigma } => {
                Gaps::LogNormal { median_ms: time("gaps.log_normal.median_s", median_s)?, sigma }
            }
        };
        let browsers = self.count("browsers", self.group.browsers)?;
        let made = Browsers::new(BrowserSettings { browsers, gaps });
        Ok(made.map_err(|cause| self.wrong(cause))?.into())
    }

    fn flood(&self) -> Result<Group, Error> {
        let claims = self.group.claims_s.map(|seconds| self.claim("claims_s", seconds));
        let per_s = self.count("per_s", self.group.per_s)?;
        let visits = self.count("visits", Some(self.group.visits.unwrap_or(1)))?;
        let every_ms = match visits {
            0 | 1 if self.group.every_s.is_some() => {
                let what = "it has no effect without visits: give 2 or more";
                return bad(&self.key("every_s"), what.to_owned());
            }
            0 | 1 => 1,
            _ => self.time("every_s", self.group.every_s)?,
        };
        let claims_ms = claims.transpose()?;
        let made = Flood::new(FloodSettings { per_s, claims_ms, visits, every_ms });
        Ok(made.map_err(|cause| self.wrong(cause))?.into())
    }

    fn needed<'a, T>(&self, key: &str, given: Option<&'a T>) -> Result<&'a T, Error> {
        let kind = self.group.kind.as_str();
        given.ok_or_else(|| value(&self.key(key), format!("it is missing: {kind} need it")))
    }

    /// Reads a whole number. The group itself checks its range.
    fn count(&self, key: &str, given: Option<i64>) -> Result<u64, Error> {
        let count = *self.needed(key, given.as_ref())?;
        u64::try_from(count).map_err(|_| value(&self.key(key), format!("{count} is below 1")))
    }

    fn time(&self, key: &str, given: Option<f64>) -> Result<u64, Error> {
        milliseconds(&self.key(key), *self.needed(key, given.as_ref())?, 1)
    }

    /// Reads a claim, which is a time that fits in a trace.
    fn claim(&self, key: &str, seconds: f64) -> Result<u32, Error> {
        let ms = milliseconds(&self.key(key), seconds, 0)?;
        let fits = u32::try_from(ms).ok().filter(|ms| *ms < Event::NOT_BACK_MS);
        fits.ok_or_else(|| value(&self.key(key), format!("{seconds} s is more than 49 days")))
    }

    fn key(&self, key: &str) -> String {
        format!("group {:?}, {key}", self.name)
    }

    fn wrong(&self, cause: rejoin_trace::Error) -> Error {
        Error::BadGroup { name: self.name.to_owned(), cause }
    }
}
