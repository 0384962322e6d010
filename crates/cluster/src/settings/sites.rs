//! The settings of several sites, each with a Valkey of its own.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::access::Access;
use super::{SentinelSettings, Settings, TlsFiles, parsed};
use crate::{Error, Site, SiteName, Sites};

/// The settings of another site than the machine's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSettings {
    /// The site's name.
    #[serde(deserialize_with = "parsed")]
    pub name: SiteName,
    /// The host and port of its Valkey, of a primary and its replicas, or of some nodes of a Valkey cluster.
    #[serde(default)]
    pub servers: Vec<String>,
    /// True if they are one Valkey cluster.
    #[serde(default)]
    pub clustered: bool,
    /// The sentinels that know the primary, instead of servers.
    pub sentinel: Option<SentinelSettings>,
    /// The ACL user, if it is not that of the machine's own site.
    pub user: Option<String>,
    /// A file with the user's password, if it is not that of the machine's own site.
    pub password_file: Option<PathBuf>,
    /// The TLS files, if they are not those of the machine's own site.
    pub tls: Option<TlsFiles>,
}

impl SiteSettings {
    fn access<'a>(&'a self, own: &'a Settings) -> Access<'a> {
        Access {
            servers: &self.servers,
            clustered: self.clustered,
            sentinel: self.sentinel.as_ref(),
            user: self.user.as_ref().or(own.user.as_ref()),
            password_file: self.password_file.as_deref().or(own.password_file.as_deref()),
            tls: self.tls.as_ref().or(own.tls.as_ref()),
        }
    }
}

impl Settings {
    /// The most other sites.
    pub const MOST_SITES: usize = 8;

    /// Returns the connection settings of all sites. Reads the files of passwords and of TLS.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn all_sites(&self) -> Result<Sites, Error> {
        let site = |site: &SiteSettings| {
            Ok(Site { name: site.name.clone(), servers: site.access(self).read()? })
        };
        let others: Result<_, Error> = self.sites.iter().map(site).collect();
        Ok(Sites::new(self.valkey()?, others?, self.home.as_ref()))
    }

    pub(super) fn check_sites(&self) -> Result<(), String> {
        let most = Self::MOST_SITES;
        let own = match (&self.site, &self.home) {
            (None, None) if self.sites.is_empty() => return Ok(()),
            (None, _) => return Err("site: give the name of this machine's site".to_owned()),
            (Some(_), None) if !self.sites.is_empty() => {
                return Err(
                    "home: give the site whose Valkey keeps the ticket keys, the same on all machines"
                        .to_owned(),
                );
            }
            (Some(own), _) => own,
        };
        if self.sites.len() > most {
            return Err(format!("sites: give {most} at most"));
        }
        let mut names = HashSet::from([own]);
        for SiteSettings { name, .. } in &self.sites {
            if !names.insert(name) {
                return Err(format!("sites: two are named {name}"));
            }
        }
        if let Some(home) = self.home.as_ref().filter(|home| !names.contains(home)) {
            return Err(format!("home: no site is named {home}"));
        }
        self.check_places(own)
    }

    /// Checks the place of each site's Valkey. No server is in two sites: sessions would be looked up where they are not.
    fn check_places(&self, own: &SiteName) -> Result<(), String> {
        let others = self.sites.iter().map(|site| (&site.name, site.access(self)));
        let mut known = HashMap::new();
        for (name, access) in [(own, self.access())].into_iter().chain(others) {
            let wrong = |what| format!("sites: {name}: {what}");
            access.check().map_err(wrong)?;
            if access.sentinel.is_some() {
                continue;
            }
            for address in access.addresses().map_err(wrong)? {
                if let Some(other) =
                    known.insert(address.clone(), name).filter(|other| *other != name)
                {
                    return Err(wrong(format!("{address} is in {other}, too")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str =
        "name = \"web\"\nkey_file = \"/key\"\ncapacity = \"1MiB\"\nservers = [\"a:1\"]\n";

    fn parsed(rest: &str) -> Result<Settings, String> {
        let settings = Settings::parse(&format!("{OWN}{rest}"))?;
        settings.check_sites().map(|()| settings)
    }

    #[test]
    fn sites_are_named_once_and_one_is_the_home() {
        const TOKYO: &str = "[[sites]]\nname = \"tokyo\"\nservers = [\"b:1\"]\n";
        let named = |site, home| format!("site = \"{site}\"\nhome = \"{home}\"\n");
        let berlin = named("berlin", "tokyo");
        let many: String = (0..9)
            .map(|number| format!("[[sites]]\nname = \"s{number}\"\nservers = [\"s{number}:1\"]\n"))
            .collect();
        for (text, expected) in [
            (String::new(), None),
            ("site = \"berlin\"".to_owned(), None),
            (format!("{berlin}{TOKYO}"), None),
            (TOKYO.to_owned(), Some("site: give")),
            ("home = \"berlin\"".to_owned(), Some("site: give")),
            (format!("site = \"berlin\"\n{TOKYO}"), Some("home: give")),
            (named("berlin", "osaka") + TOKYO, Some("home: no site is named osaka")),
            (named("berlin", "tokyo"), Some("home: no site is named tokyo")),
            (named("tokyo", "tokyo") + TOKYO, Some("two are named tokyo")),
            (format!("{berlin}{TOKYO}{TOKYO}"), Some("two are named tokyo")),
            (format!("{berlin}{many}"), Some("give 8 at most")),
            (
                format!("{berlin}{}", TOKYO.replace("b:1", "a:1")),
                Some("tokyo: a:1 is in berlin, too"),
            ),
            (format!("{berlin}{}", TOKYO.replace("b:1", "b")), Some("tokyo: servers: \"b\"")),
            (format!("{berlin}[[sites]]\nname = \"tokyo\"\n"), Some("tokyo: servers: give")),
            (format!("{berlin}{TOKYO}tls = {{ key = \"/key\" }}\n"), Some("tokyo: tls: give both")),
            (
                named("berlin", "to kyo") + TOKYO,
                Some("is not the name of a cluster, site or machine"),
            ),
            (format!("{berlin}{TOKYO}deadline_ms = 9\n"), Some("unknown field `deadline_ms`")),
            (format!("{berlin}{}", TOKYO.replace("[[sites]]", "[sites]")), Some("invalid type")),
        ] {
            match (parsed(&text), expected) {
                (Ok(_), None) => {}
                (Err(why), Some(expected)) => assert!(why.contains(expected), "{text}: {why}"),
                (told, _) => panic!("{text}: {told:?}"),
            }
        }
    }

    #[test]
    fn what_a_site_leaves_out_is_as_in_the_own_one_but_the_place() {
        let text = "site = \"berlin\"\nhome = \"berlin\"\nclustered = true\nuser = \"agent\"\n\
                    [[sites]]\nname = \"tokyo\"\nservers = [\"b:1\"]\n\
                    [[sites]]\nname = \"osaka\"\nuser = \"other\"\n\
                    sentinel = { servers = [\"c:1\"], master = \"m\" }\n";
        let settings = parsed(text).expect("settings");
        let sites = settings.all_sites().expect("no files");
        assert_eq!(sites.home_elsewhere(), None);
        let told = sites.others().iter().map(|Site { name, servers }| {
            format!("{name}: {:?}, {}", servers.place, servers.login)
        });
        let told: Vec<_> = told.collect();
        assert!(
            told[0].starts_with("tokyo: Primary") && told[0].ends_with("user agent"),
            "{told:?}"
        );
        assert!(told[1].starts_with("osaka: Sentinels") && told[1].ends_with("user other"));
        let elsewhere = text.replace("home = \"berlin\"", "home = \"osaka\"");
        let sites = parsed(&elsewhere).expect("settings").all_sites().expect("no files");
        assert_eq!(sites.home_elsewhere().map(SiteName::as_str), Some("osaka"));
    }
}
