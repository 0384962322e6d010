//! A service, as systemd has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::systemctl;
use crate::arguments::Misuse;

/// The properties of a service that matter to Rejoin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Unit {
    /// The name, with `.service`.
    pub(super) id: String,
    /// The program that it starts.
    pub(super) program: PathBuf,
    /// The id of the main process, if it runs.
    pub(super) main_process: Option<u32>,
    /// The user that it starts as. `None`: root.
    pub(super) user: Option<String>,
    /// The user may be another at each start.
    pub(super) has_dynamic_user: bool,
    /// Files of its user in `/dev/shm` are removed when it stops.
    pub(super) removes_ipc: bool,
    /// The root folder that it runs in, or the image.
    pub(super) root: Option<String>,
    /// It has a `/dev/shm` of its own.
    pub(super) has_own_memory: bool,
    /// It has a network of its own.
    pub(super) has_own_network: bool,
    /// Its control group.
    pub(super) group: String,
    /// The state: `active`, `failed` and others.
    pub(super) state: String,
    /// The files that its environment comes from besides.
    pub(super) environment_files: Vec<PathBuf>,
    /// The file that its environment names for OpenSSL.
    pub(super) openssl_conf: Option<PathBuf>,
    /// OpenSSL's variable is taken from its environment.
    pub(super) drops_openssl_conf: bool,
    /// The memory that it may lock, in bytes.
    pub(super) lockable_bytes: u64,
}

/// Checks that this may be the name of a service, not of a template.
pub(super) fn check(name: &str) -> Result<(), Misuse> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.-@\\".contains(&byte);
    let is_template = name.strip_suffix(".service").unwrap_or(name).ends_with('@');
    let is_name = !name.is_empty() && !name.starts_with(['-', '.']) && name.bytes().all(is_plain);
    let wrong =
        if is_template { "name an instance of it, as web@1" } else { "no name of a service" };
    (is_name && !is_template).then_some(()).ok_or_else(|| Misuse(format!("{name}: {wrong}")))
}

/// Returns the names that may be meant: packages of Apache have names of their own.
pub(super) fn names(name: &str) -> Vec<&str> {
    let mut names = vec![name];
    if name == "apache" {
        names.extend(["apache2", "httpd"]);
    }
    names
}

const PROPERTIES: &str = "--property=Id,LoadState,MainPID,User,DynamicUser,RemoveIPC,RootDirectory,RootImage,\
                          TemporaryFileSystem,PrivateNetwork,Environment,EnvironmentFiles,UnsetEnvironment,\
                          ExecStart,LimitMEMLOCK,ControlGroup,ActiveState";

impl Unit {
    /// Asks systemd for a service.
    ///
    /// # Errors
    /// Its name makes no sense, systemd does not run, or knows no such service.
    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        for name in names(name) {
            if let Some(found) = Self::loaded(name)? {
                return Ok(found);
            }
        }
        let how = "`systemctl list-units --type=service` lists those that run";
        Err(Misuse(format!("{name}: systemd knows no such service; {how}")).into())
    }

    fn loaded(name: &str) -> anyhow::Result<Option<Self>> {
        check(name)?;
        let id =
            if name.contains(".service") { name.to_owned() } else { format!("{name}.service") };
        Ok(Self::parse(&systemctl::output(&["show", PROPERTIES, &id])?))
    }

    /// Reads what `systemctl show` printed. Returns `None` if there is no such unit.
    fn parse(shown: &str) -> Option<Self> {
        let pairs = shown.lines().filter_map(|line| line.split_once('='));
        let properties: BTreeMap<&str, &str> =
            pairs.filter(|(_, value)| !value.is_empty()).collect();
        let text = |name: &str| properties.get(name).copied();
        let is_set = |name: &str| text(name) == Some("yes");
        let conf = "OPENSSL_CONF";
        let variables = words(text("Environment").unwrap_or_default());
        let of_openssl =
            |word: &String| word.strip_prefix(conf)?.strip_prefix('=').map(PathBuf::from);
        let unset = words(text("UnsetEnvironment").unwrap_or_default());
        (text("LoadState") == Some("loaded")).then(|| Self {
            id: text("Id").unwrap_or_default().to_owned(),
            program: program(text("ExecStart").unwrap_or_default()).into(),
            main_process: text("MainPID").and_then(|id| id.parse().ok()).filter(|id| *id != 0),
            user: text("User").filter(|user| !["root", "0"].contains(user)).map(str::to_owned),
            has_dynamic_user: is_set("DynamicUser"),
            removes_ipc: is_set("RemoveIPC"),
            root: text("RootDirectory").or_else(|| text("RootImage")).map(str::to_owned),
            has_own_memory: words(text("TemporaryFileSystem").unwrap_or_default())
                .iter()
                .any(|word| word.split(':').next() == Some("/dev/shm")),
            has_own_network: is_set("PrivateNetwork"),
            group: text("ControlGroup").unwrap_or_default().to_owned(),
            state: text("ActiveState").unwrap_or_default().to_owned(),
            // `/etc/default/web (ignore_errors=yes)`, once for each file.
            environment_files: shown
                .lines()
                .filter_map(|line| line.strip_prefix("EnvironmentFiles="))
                .filter_map(|value| value.split(" (").next().map(PathBuf::from))
                .collect(),
            openssl_conf: variables.iter().filter_map(of_openssl).next_back(),
            drops_openssl_conf: unset.iter().any(|word| word.split('=').next() == Some(conf)),
            // "infinity" is no number.
            lockable_bytes: text("LimitMEMLOCK")
                .and_then(|limit| limit.parse().ok())
                .unwrap_or(u64::MAX),
        })
    }

    /// Returns the name without `.service`.
    pub(super) fn short_name(&self) -> &str {
        self.id.strip_suffix(".service").unwrap_or(&self.id)
    }

    /// Returns true if it has processes.
    pub(super) fn is_running(&self) -> bool {
        self.main_process.is_some() || ["active", "reloading"].contains(&&*self.state)
    }

    /// Returns what sets OpenSSL's variable, if it is not this file.
    pub(super) fn overrides(&self, settings: &Path) -> Option<String> {
        let names_it = |file: &&PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| line.trim_start().starts_with("OPENSSL_CONF="))
        };
        if let Some(file) = self.environment_files.iter().find(names_it) {
            return Some(format!("{} sets OPENSSL_CONF, which prevails", file.display()));
        }
        let found = self.openssl_conf.as_deref();
        (found != Some(settings)).then(|| {
            let found = found.map_or_else(|| "nothing".into(), Path::to_string_lossy);
            format!(
                "its OPENSSL_CONF is {found}: another drop-in prevails (systemctl cat {})",
                self.id
            )
        })
    }

    /// Returns the folder for the unit's drop-ins.
    pub(super) fn drop_ins(&self) -> PathBuf {
        Path::new("/etc/systemd/system").join(format!("{}.d", self.id))
    }
}

/// Returns the path of the first command: `{ path=/usr/sbin/nginx ; argv[]=… }`.
fn program(commands: &str) -> &str {
    let path = commands.split_once("path=").map_or("", |(_, rest)| rest);
    path.split(" ;").next().unwrap_or_default().trim()
}

/// Splits a list of words, of which some are in quotes.
fn words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for letter in list.chars() {
        match letter {
            _ if is_escaped => words.last_mut().into_iter().for_each(|word| word.push(letter)),
            '\\' => {}
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().into_iter().for_each(|word| word.push(letter)),
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_read_as_systemctl_shows_it() {
        let shown = "\
ExecStart={ path=/usr/sbin/nginx ; argv[]=/usr/sbin/nginx -g daemon on; master_process on; ; ignore_errors=no ; pid=0 }
Environment=A=1 OPENSSL_CONF=/etc/my.cnf \"B=x y\"
UnsetEnvironment=
LimitMEMLOCK=8388608
EnvironmentFiles=/etc/default/nginx (ignore_errors=yes)
ControlGroup=/system.slice/nginx.service
ActiveState=inactive
Id=nginx.service
LoadState=loaded
MainPID=0
User=www-data
DynamicUser=no
RemoveIPC=yes
TemporaryFileSystem=/dev/shm:ro /tmp
PrivateNetwork=no
";
        let expected = Unit {
            id: "nginx.service".to_owned(),
            program: "/usr/sbin/nginx".into(),
            user: Some("www-data".to_owned()),
            removes_ipc: true,
            has_own_memory: true,
            group: "/system.slice/nginx.service".to_owned(),
            state: "inactive".to_owned(),
            environment_files: vec!["/etc/default/nginx".into()],
            openssl_conf: Some("/etc/my.cnf".into()),
            lockable_bytes: 8 << 20,
            ..Unit::default()
        };
        assert_eq!(Unit::parse(shown), Some(expected));
        assert_eq!(Unit::parse("Id=x.service\nLoadState=not-found\n"), None);
    }

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(words(r#"A=1 "B=x y" "C=\"z\"""#), ["A=1", "B=x y", "C=\"z\""]);
        assert!(words("").is_empty());
    }

    #[test]
    fn a_name_is_a_services() {
        for name in ["nginx", "web@1.service", "my\\x2dapp"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["", "-x", "../x", "a b", "web@", "/", ".service"] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
