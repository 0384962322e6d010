//! What the module is told, by its section of the configuration or by the environment.

use std::path::PathBuf;

use rejoin_cache::{Capacity, Policy, Settings};
use rejoin_store::{CacheName, Store};

/// The module's settings.
#[derive(Debug)]
pub(crate) struct ModuleSettings {
    /// Where caches lie.
    pub(crate) folder: PathBuf,
    pub(crate) cache: CacheName,
    /// `None`: those of the cache that is there.
    pub(crate) settings: Option<Settings>,
    /// No context issues stateless tickets.
    pub(crate) stateful: bool,
}

impl ModuleSettings {
    /// The names that are known, beside `path`, which OpenSSL reads itself.
    pub(crate) const NAMES: [&str; 5] = ["cache", "capacity", "folder", "policy", "stateful"];

    /// Asks for every setting by its name.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let wrong = |name: &str, text: &str, what: &str| format!("{name} = {text}: {what}");
        let cache = get("cache").unwrap_or_else(|| "default".to_owned());
        let cache = cache.parse().map_err(|error| wrong("cache", &cache, &format!("{error}")))?;
        let capacity = get("capacity")
            .map(|text| text.parse().map_err(|error: String| wrong("capacity", &text, &error)));
        let policy = match get("policy").as_deref() {
            None | Some("predictive") => Policy::Predictive,
            Some("lru") => Policy::Lru,
            Some(text) => return Err(wrong("policy", text, "write predictive or lru")),
        };
        let stateful = match get("stateful").as_deref() {
            None | Some("no") => false,
            Some("yes") => true,
            Some(text) => return Err(wrong("stateful", text, "write yes or no")),
        };
        let capacity: Option<Capacity> = capacity.transpose()?;
        Ok(Self {
            folder: get("folder").map_or_else(|| PathBuf::from(Store::FOLDER), PathBuf::from),
            cache,
            settings: capacity.map(|capacity| Settings { policy, ..Settings::new(capacity) }),
            stateful,
        })
    }
}
