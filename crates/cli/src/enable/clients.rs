//! `rejoin enable clients`: programs that are not changed go through the TLS manager.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::files::{self, Written};
use super::systemctl;
use crate::arguments::Misuse;
use crate::terminal::print;

/// Whose programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The programs of this user.
    Own,
    /// The programs of all users.
    Machine,
}

impl Whose {
    /// Root means the machine, everybody else themselves.
    pub(super) fn by_default() -> Self {
        if rustix::process::geteuid().is_root() { Self::Machine } else { Self::Own }
    }

    /// Returns the files that lead programs to the manager: one that systemd reads for its services, and one for shells.
    fn files(self, library: &Path) -> anyhow::Result<Vec<Written>> {
        let preload = library.with_file_name("librejoin_preload.so");
        anyhow::ensure!(preload.is_file(), "{}: is not installed", preload.display());
        let preload = preload.display();
        let variables = format!("LD_PRELOAD={preload}\nREJOIN_MANAGER=yes\n");
        let shell = format!(
            "[ -r {preload} ] || return 0\ncase \":${{LD_PRELOAD-}}:\" in\n*:{preload}:*) ;;\n*) export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}{preload}\" \
             ;;\nesac\nexport REJOIN_MANAGER=yes\n"
        );
        let [services, shells] = self.paths()?;
        Ok(vec![Written::new(services, NAME, &variables), Written::new(shells, NAME, &shell)])
    }

    fn paths(self) -> anyhow::Result<[PathBuf; 2]> {
        if self == Self::Machine {
            let files = ["/etc/environment.d/60-rejoin.conf", "/etc/profile.d/rejoin.sh"];
            return Ok(files.map(PathBuf::from));
        }
        let home = std::env::home_dir().context("you have no home folder")?.join(".config");
        Ok(["environment.d/60-rejoin.conf", "rejoin/profile.sh"].map(|file| home.join(file)))
    }

    /// Leaves an empty file for a `~/.profile` that reads it without asking whether it is there, as an earlier version advised: a login
    /// would end there.
    fn keep_shells(self) -> anyhow::Result<()> {
        let home = std::env::home_dir().filter(|_| self == Self::Own);
        let Some(home) = home else { return Ok(()) };
        let [_, shells] = self.paths()?;
        let reads = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| {
                let line = line.trim_start();
                let is_plain = line.starts_with(". ") || line.starts_with("source ");
                is_plain && line.contains("rejoin/profile.sh")
            })
        };
        let files = [".profile", ".bash_profile", ".bash_login", ".bashrc", ".zprofile", ".zshrc"];
        let reader = files.map(|file| home.join(file)).into_iter().find(reads);
        let Some(reader) = reader else { return Ok(()) };
        let folder = shells.parent().map_or(Ok(()), std::fs::create_dir_all);
        let stub = Written::new(shells.clone(), NAME, "").text;
        let written = folder.and_then(|()| std::fs::write(&shells, stub));
        written.with_context(|| format!("{}: cannot be written", shells.display()))?;
        print(&format!(
            "emptied  {}, because {} reads it: take that line out, and run this command again",
            shells.display(),
            reader.display()
        ));
        Ok(())
    }

    /// The unit by which the manager starts.
    fn unit(self) -> [&'static str; 2] {
        match self {
            Self::Own => ["--user", "rejoin-manager.service"],
            Self::Machine => ["--system", "rejoin-manager.socket"],
        }
    }
}

/// The name of unchanged programs, where the commands take the name of a service.
pub(super) const NAME: &str = "clients";

/// Returns the error of an option that programs have no use for.
pub(super) fn not_of(option: &str) -> Misuse {
    Misuse(format!("{option} is for a service, and not for {NAME}"))
}

/// Writes the files and starts the manager, or only shows the files.
pub(super) fn enable(whose: Whose, library: &Path, dry_run: bool) -> anyhow::Result<()> {
    let files = whose.files(library)?;
    if dry_run {
        files.iter().for_each(|file| print(&file.shown()));
        return Ok(());
    }
    for file in &files {
        file.check()?;
    }
    let [manager, unit] = whose.unit();
    systemctl::run(&[manager, "enable", "--now", unit])
        .context("the manager cannot be started: log in at the console or by ssh, not by su")?;
    for file in &files {
        let done = if file.write()? { "wrote   " } else { "kept    " };
        print(&format!("{done} {}", file.path.display()));
    }
    print(&format!("started  {unit}"));
    let shells = files.last().map(|file| file.path.display().to_string()).unwrap_or_default();
    print(&match whose {
        Whose::Machine => format!(
            "New logins of users in the group `users` go through the manager; for this shell:  . {shells}\nunshared_programs and unshared_hosts in \
             /etc/rejoin/manager.toml name what is left out."
        ),
        Whose::Own => format!(
            "Your services of systemd go through the manager from the next login on; for shells, put this line into \
             ~/.profile:  [ ! -r {shells} ] || . {shells}"
        ),
    });
    print("rejoin stats --manager  shows what it saves.");
    Ok(())
}

/// Removes the files and stops the manager from starting. Returns false if nothing was there.
pub(super) fn disable(whose: Whose) -> anyhow::Result<bool> {
    let mut was_there = false;
    for path in whose.paths()? {
        if files::remove(&path)? {
            was_there = true;
            print(&format!("removed  {}", path.display()));
        }
    }
    if was_there {
        whose.keep_shells()?;
        let [manager, unit] = whose.unit();
        let _ = systemctl::run(&[manager, "disable", unit]);
        print(&format!(
            "Programs that run go on as before. When they have ended:  systemctl {manager} stop {unit}"
        ));
    }
    Ok(was_there)
}
