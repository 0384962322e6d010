//! The table of situations, from `situations.txt`.

/// How a server changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is told to, while it runs.
    Told,
    /// Another process takes its place.
    Restarted,
    /// Another process runs beside it, and gets the client.
    Beside,
}

/// Why a session with a client's certificate may be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It may not: the program is not known.
    Unknown,
    /// The program's name and the form of its session-id context are those of nginx.
    Known,
    /// The operator vouches (`client_certificates = context`).
    Vouched,
}

#[derive(Debug)]
pub(crate) struct Situation {
    pub(crate) name: &'static str,
    /// The client's name, and that of its certificate's file, if it has one.
    pub(crate) client: &'static str,
    /// The hosts that it asks for, before and after.
    pub(crate) hosts: [&'static str; 2],
    pub(crate) before: &'static str,
    pub(crate) change: Change,
    /// The connection of a client with a session from before may end once, without Rejoin's session the client gets in.
    pub(crate) is_cut: bool,
    pub(crate) after: &'static str,
    /// The outcome for new clients after the change.
    pub(crate) new: &'static str,
    /// The outcome for the returning client without Rejoin, with stateless tickets and without.
    pub(crate) alone: [&'static str; 2],
}

/// Situations of one kind: a table of the page.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) trust: Trust,
    pub(crate) situations: Vec<Situation>,
}

/// Returns all groups, in the order of the page.
pub(crate) fn groups() -> Vec<Group> {
    include_str!("situations.txt").split("\n# ").skip(1).map(Group::of).collect()
}

impl Group {
    fn of(part: &'static str) -> Self {
        let mut parts = part.trim_end().splitn(3, "\n\n");
        let [name, text, rows] = [(); 3].map(|()| parts.next().expect("a group has three parts"));
        let trust = match name.split(' ').next_back() {
            Some("known") => Trust::Known,
            Some("vouched") => Trust::Vouched,
            _ => Trust::Unknown,
        };
        Self { name, text, trust, situations: rows.lines().map(Situation::of).collect() }
    }
}

impl Situation {
    fn of(row: &'static str) -> Self {
        let cells: Vec<_> = row.split(" | ").collect();
        let [name, client, before, change, after, new, alone] = cells[..] else {
            panic!("a situation has seven cells: {row}");
        };
        let (client, is_secure) = match client.strip_suffix("@secure") {
            Some(client) => (client, true),
            None => (client, false),
        };
        let (change, is_cut) = match change.strip_suffix(" cut") {
            Some(change) => (change, true),
            None => (change, false),
        };
        let (change, is_renamed) = match change {
            "told" => (Change::Told, false),
            "renamed" => (Change::Told, true),
            "restarted" => (Change::Restarted, false),
            "restarted renamed" => (Change::Restarted, true),
            "beside" => (Change::Beside, false),
            other => panic!("no such change: {other}"),
        };
        let hosts = [is_secure, is_secure || is_renamed];
        let hosts = hosts.map(|is| if is { "secure.example" } else { "localhost" });
        let (tickets, cache) = alone.split_once(" / ").unwrap_or((alone, alone));
        let after = if after == "-" { "" } else { after };
        let alone = [tickets, cache];
        Self { name, client, hosts, before, change, is_cut, after, new, alone }
    }
}
