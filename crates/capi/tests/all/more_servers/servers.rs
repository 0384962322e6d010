//! The servers, their words, and the settings of Rejoin that they are measured with.

use super::visits::{FTP, HELLO, HTTP, IMAP, MQTT, MYSQL, POSTGRES, REDIS, SMTP, STUN, Talk};

/// The release that a server's package is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packages {
    Debian12,
    /// With OpenSSL 3.5.
    Debian13,
}

/// A server from a package, unmodified.
#[derive(Debug)]
pub(crate) struct Server {
    /// The name in the table.
    pub(crate) name: &'static str,
    pub(crate) packages: Packages,
    /// The end of the script `world.sh`: it writes the configuration, and becomes the server.
    pub(crate) script: &'static str,
    pub(crate) talk: Talk,
    /// Rejoin's settings, one row for each, without and with client certificates.
    pub(crate) settings: [&'static [&'static str]; 2],
    /// The reason if a cell gains nothing, without and with client certificates.
    pub(crate) why: [&'static str; 2],
}

/// The row of a server that needs no setting.
const USUAL: Server = Server {
    name: "",
    packages: Packages::Debian12,
    script: "",
    talk: HTTP,
    settings: [&[""], &["", VOUCHED]],
    why: ["", ""],
};

pub(crate) const FREERADIUS: Server =
    Server { name: "FreeRADIUS", why: ["it resumes only what its own cache knows"; 2], ..USUAL };

pub(crate) const FREERADIUS_WITHOUT_CACHE: Server =
    Server { name: "FreeRADIUS, resumption switched off", why: [OFF; 2], ..USUAL };

const VOUCHED: &str = "context = one; client_certificates = context";
const PORT: &str = "its session-id context names the port";
const RANDOM: &str = "its session-id context is random in each process";
const OFF: &str = "it switches resumption off";
const NO_TICKETS: &str = "it switches resumption off, and sends no tickets over TLS 1.3";
const FILLS: &str = "it puts data of its own into tickets, which stay its own";
const CERTIFICATE: &str =
    "where certificates are asked for, sessions stay in their process, unless the operator vouches";
const EVERYBODY: &str = "it asks everybody for a certificate: sessions stay in their process, unless the operator vouches";
const INFO: &str = "it sets an info callback of its own on each connection";
const NO_CONTEXT: &str = "it sets no session-id context, without which OpenSSL resumes nothing where certificates are asked for";

pub(crate) const SERVERS: [Server; 18] = [
    Server {
        name: "Mosquitto",
        script: include_str!("mosquitto.sh"),
        talk: MQTT,
        settings: [&["", "context = one"], &["", VOUCHED]],
        why: [PORT, CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "PostgreSQL",
        script: include_str!("postgres.sh"),
        talk: POSTGRES,
        settings: [
            &["", "stateful = yes"],
            &["", "stateful = yes; context = one; client_certificates = context"],
        ],
        why: [NO_TICKETS, NO_TICKETS],
        ..USUAL
    },
    Server {
        name: "stunnel",
        script: include_str!("stunnel.sh"),
        talk: HELLO,
        why: [FILLS, FILLS],
        ..USUAL
    },
    Server {
        name: "lighttpd",
        script: include_str!("lighttpd.sh"),
        why: ["", CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "vsftpd",
        script: include_str!("vsftpd.sh"),
        talk: FTP,
        settings: [&["", VOUCHED]; 2],
        why: [EVERYBODY, CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "Redis",
        script: include_str!("redis.sh"),
        talk: REDIS,
        why: ["", CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "Dovecot",
        script: include_str!("dovecot.sh"),
        talk: IMAP,
        why: ["", NO_CONTEXT],
        ..USUAL
    },
    Server {
        name: "Postfix",
        script: include_str!("postfix.sh"),
        talk: SMTP,
        why: ["", CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "MariaDB",
        script: include_str!("mariadb.sh"),
        talk: MYSQL,
        settings: [&["", VOUCHED]; 2],
        why: [EVERYBODY, CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "coturn",
        script: include_str!("coturn.sh"),
        talk: STUN,
        why: [INFO, NO_CONTEXT],
        ..USUAL
    },
    Server { name: "uvicorn", script: include_str!("uvicorn.sh"), why: ["", CERTIFICATE], ..USUAL },
    Server {
        name: "gunicorn",
        script: include_str!("gunicorn.sh"),
        why: ["", CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "Puma",
        script: include_str!("puma.sh"),
        settings: [&["", "context = one"], &["", VOUCHED]],
        why: [RANDOM, CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "nginx of Debian 13",
        settings: [&[""]; 2],
        packages: Packages::Debian13,
        script: concat!("cache=none tickets=on\n", include_str!("nginx.sh")),
        ..USUAL
    },
    Server {
        name: "nginx of Debian 13, without tickets",
        settings: [&[""]; 2],
        packages: Packages::Debian13,
        script: concat!("cache=none tickets=off\n", include_str!("nginx.sh")),
        ..USUAL
    },
    Server {
        name: "nginx of Debian 13, resumption switched off",
        packages: Packages::Debian13,
        script: concat!("cache=off tickets=off\n", include_str!("nginx.sh")),
        settings: [&["", "stateful = yes"]; 2],
        why: [OFF; 2],
        ..USUAL
    },
    Server {
        name: "HAProxy of Debian 13",
        packages: Packages::Debian13,
        script: include_str!("haproxy.sh"),
        why: ["", CERTIFICATE],
        ..USUAL
    },
    Server {
        name: "Apache of Debian 13",
        packages: Packages::Debian13,
        script: include_str!("apache.sh"),
        why: ["", CERTIFICATE],
        ..USUAL
    },
];
