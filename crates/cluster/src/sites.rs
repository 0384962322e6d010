//! The sites of a cluster, each with a Valkey of its own, as one machine sees them.

use crate::{Error, Link, Servers, SiteName};

/// A site, and the settings of the connections to its Valkey.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its name.
    pub name: SiteName,
    /// Its Valkey.
    pub servers: Servers,
}

/// The machine's own site, and the others.
#[derive(Debug, Clone)]
pub struct Sites {
    own: Servers,
    others: Vec<Site>,
    /// The ring's home among the others. `None` if it is the own one.
    home: Option<usize>,
}

/// The connections to the Valkeys of all sites.
#[derive(Debug, Clone)]
pub struct SiteLinks {
    own: Link,
    others: Vec<(SiteName, Link)>,
    home: Option<usize>,
}

impl Sites {
    /// The own site, and the others. If none of them is the home, the own one is.
    pub fn new(own: Servers, others: Vec<Site>, home: Option<&SiteName>) -> Self {
        let home = others.iter().position(|site| Some(&site.name) == home);
        Self { own, others, home }
    }

    /// Begins to connect to all of them: see [`Link::open`].
    pub fn open(&self) -> SiteLinks {
        let open = |site: &Site| (site.name.clone(), Link::open(site.servers.clone()));
        SiteLinks {
            own: Link::open(self.own.clone()),
            others: self.others.iter().map(open).collect(),
            home: self.home,
        }
    }

    /// Connects to all of them, and waits for the ring's home or else for the own site.
    ///
    /// # Errors
    /// The reason why there is no connection to either at first.
    pub async fn connect(&self) -> Result<SiteLinks, Error> {
        let links = self.open();
        let (own, home) = tokio::join!(links.own().begun(), links.home().begun());
        home.or(own).map(|()| links)
    }

    /// Returns the connection settings of the ring's home.
    pub fn home(&self) -> &Servers {
        self.home.map_or(&self.own, |home| &self.others[home].servers)
    }

    /// Returns the connection settings of the own site.
    pub fn own(&self) -> &Servers {
        &self.own
    }

    /// Returns the other sites.
    pub fn others(&self) -> &[Site] {
        &self.others
    }

    /// Returns the ring's home, if it is another site.
    pub fn home_elsewhere(&self) -> Option<&SiteName> {
        self.home.map(|home| &self.others[home].name)
    }
}

impl SiteLinks {
    /// Returns the connection to the own site's Valkey.
    pub fn own(&self) -> &Link {
        &self.own
    }

    /// Returns the connection to the Valkey of the ring's home.
    pub fn home(&self) -> &Link {
        self.home.map_or(&self.own, |home| &self.others[home].1)
    }

    /// Returns the ring's home, if it is another site.
    pub fn home_elsewhere(&self) -> Option<&(SiteName, Link)> {
        self.home.map(|home| &self.others[home])
    }

    /// Returns the other sites.
    pub fn others(&self) -> &[(SiteName, Link)] {
        &self.others
    }

    /// Returns the first command that a Valkey denied to the user, once for each site.
    pub fn take_denied(&self) -> Option<Error> {
        let of_others = self.others.iter().find_map(|(site, link)| {
            let cause = Box::new(link.take_denied()?);
            Some(Error::AtSite { site: site.clone(), cause })
        });
        self.own.take_denied().or(of_others)
    }

    /// Returns another primary beside the one in use, once for each site: see [`Link::take_rival`].
    pub fn take_rival(&self) -> Option<Error> {
        let of_others = self.others.iter().find_map(|(site, link)| {
            let cause = Box::new(link.take_rival()?);
            Some(Error::AtSite { site: site.clone(), cause })
        });
        self.own.take_rival().or(of_others)
    }

    /// Returns the connections to the Valkeys that have copies of the ring, but for the own site's.
    pub(crate) fn with_copies(&self) -> impl Iterator<Item = &Link> {
        let is_home = |at: usize| Some(at) == self.home;
        let others = self.others.iter().enumerate().filter(move |(at, _)| !is_home(*at));
        others.map(|(_, (_, link))| link)
    }
}
