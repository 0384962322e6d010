//! `rejoin connect`

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use rejoin_manager::client::{Error, Manager, Stream};
use rejoin_manager::protocol::{
    Base64, Certificate, Connect, Connected, EARLY_DATA_BYTES, EarlyData, ErrorKind as Kind,
    Fingerprint, Host, Label, MOST_DEADLINE_MS, Problem, Protocol, Trust, Why,
};
use serde_json::json;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::arguments::Misuse;
use crate::terminal;
use crate::units::above_zero;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard input is sent to the server, and its answer is written to standard output; standard error
has a line about the session. The connection lasts until the server closes it, or until Ctrl-C;
`--half-close` tells the server when standard input has ended. `rejoin manager` must be running.
Also exits 1 if the server closes without close_notify (possible truncation).
Examples:
  printf 'HEAD / HTTP/1.0\\r\\n\\r\\n' | rejoin connect example.com:443
  rejoin connect -v --ca ca.pem --alpn h2,http/1.1 '[::1]:8443'")]
pub(crate) struct Arguments {
    /// The server: a name or an address, such as `[::1]:443`
    #[arg(value_name = "HOST:PORT")]
    target: Target,
    /// ALPN protocols, the preferred one first
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    alpn: Vec<Protocol>,
    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pin", "insecure"])]
    ca: Option<PathBuf>,
    /// Trust chains with a certificate or public key of this SHA-256
    #[arg(long, value_name = "HEX", value_delimiter = ',', conflicts_with = "insecure")]
    pin: Vec<Fingerprint>,
    /// Trust any certificate; no session is shared then
    #[arg(long)]
    insecure: bool,
    /// Neither use a stored session nor store one
    #[arg(long)]
    no_share: bool,
    /// Share sessions only with programs of the same label
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: Label,
    /// Send this file as 0-RTT data if a session allows it; others can replay it. If it is rejected,
    /// it is not sent again
    #[arg(long, value_name = "FILE")]
    early_data: Option<PathBuf>,
    /// Send close_notify when standard input has ended. Many HTTP servers then take the client for
    /// gone, and do not send close_notify themselves
    #[arg(long, short = 'N')]
    half_close: bool,
    /// The longest time for resolving, connecting and the handshake together, 2 minutes at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = deadline)]
    deadline: u32,
    /// The old name of --deadline, in milliseconds
    #[arg(long, value_name = "MS", hide = true, conflicts_with = "deadline")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_DEADLINE_MS)))]
    deadline_ms: Option<u32>,
    /// The socket of the TLS manager [default: $XDG_RUNTIME_DIR/rejoin.sock, else
    /// /run/rejoin/manager.sock]
    #[arg(long, value_name = "PATH", alias = "socket")]
    manager: Option<PathBuf>,
    /// Print also why the handshake was full or resumed, and the certificates
    #[arg(long, short)]
    verbose: bool,
    /// Print the session as JSON, on standard error
    #[arg(long)]
    json: bool,
}

/// A server.
#[derive(Debug, Clone)]
struct Target {
    host: Host,
    port: NonZeroU16,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) =
            text.rsplit_once(':').ok_or("give HOST:PORT, such as example.com:443")?;
        let port = port.parse().map_err(|_| "give HOST:PORT, with a port from 1 to 65535")?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Self { host: bare.unwrap_or(host).parse()?, port })
    }
}

/// Reads a deadline and returns it in milliseconds.
fn deadline(text: &str) -> Result<u32, String> {
    let ms = above_zero(text)?.ms;
    let possible = u32::try_from(ms).ok().filter(|ms| *ms <= MOST_DEADLINE_MS);
    possible.ok_or_else(|| format!("at most {} s", MOST_DEADLINE_MS / 1_000))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let manager = arguments.manager.clone().map_or_else(Manager::find, Manager::at);
    let stream = match manager.connect(&wanted(arguments)?) {
        Ok(stream) => stream,
        Err(Error::Malformed(why)) => return Err(Misuse(why.to_string()).into()),
        Err(Error::Refused(problem)) => return Err(Error::Refused(mended(problem)).into()),
        Err(error) => return Err(error.into()),
    };
    let session = stream.session();
    if arguments.json {
        let _ = writeln!(io::stderr().lock(), "{}", json!(session));
    } else {
        describe(session, arguments);
    }
    carry(stream, arguments.half_close)
}

fn wanted(arguments: &Arguments) -> anyhow::Result<Connect> {
    let Target { host, port } = arguments.target.clone();
    let mut wanted = Connect::new(host, port);
    wanted.alpn.clone_from(&arguments.alpn);
    wanted.trust = trust(arguments)?;
    wanted.share = !arguments.no_share;
    wanted.label = arguments.label.clone();
    wanted.deadline_ms = arguments.deadline_ms.unwrap_or(arguments.deadline);
    if let Some(path) = &arguments.early_data {
        let data = read(path)?;
        if data.len() > EARLY_DATA_BYTES {
            let why = format!("{}: at most {EARLY_DATA_BYTES} bytes", path.display());
            return Err(Misuse(why).into());
        }
        wanted.early_data = Some(Base64(data.into()));
    }
    Ok(wanted)
}

/// Returns a problem with a remedy that this command has, where the manager's is one of its protocol.
fn mended(problem: Problem) -> Problem {
    let remedy = match problem.kind {
        Kind::Timeout => "try again, or allow more time with --deadline",
        Kind::CertificateUnknownIssuer => "trust the authority with --ca",
        Kind::CertificatePinMismatch => "give --pin of a certificate that the server has now",
        Kind::NoCommonAlpn => "give --alpn with a protocol that the server speaks",
        Kind::ClientCertificateRequired | Kind::ClientCertificateInvalid => {
            "`rejoin connect` presents no certificate"
        }
        _ => return problem,
    };
    Problem { remedy: remedy.to_owned(), ..problem }
}

fn trust(arguments: &Arguments) -> anyhow::Result<Trust> {
    Ok(match &arguments.ca {
        Some(path) => Trust::Bundle(bundle(path)?),
        None if !arguments.pin.is_empty() => Trust::Pins(arguments.pin.clone()),
        None if arguments.insecure => Trust::None,
        None => Trust::System,
    })
}

/// Reads certificates in PEM. What they are worth is the manager's to say.
fn bundle(path: &Path) -> anyhow::Result<String> {
    let pem = String::from_utf8(read(path)?).ok();
    let has_any = |text: &String| text.contains("-----BEGIN CERTIFICATE-----");
    let missing = || Misuse(format!("{}: no certificate in it", path.display()));
    Ok(pem.filter(has_any).ok_or_else(missing)?)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))
}

/// Carries plaintext in both directions until the server closes.
fn carry(mut stream: Stream, half_closes: bool) -> anyhow::Result<()> {
    let writer = stream.writer().context("the connection cannot be written to")?;
    // This thread ends with the process: standard input may stay silent for ever.
    thread::spawn(move || {
        // A server that reads no more may still send data.
        let _ = io::copy(&mut io::stdin().lock(), &mut &writer);
        if half_closes {
            let _ = writer.shutdown(Shutdown::Write);
        }
    });
    let mut part = vec![0; 64 << 10];
    let mut output = io::stdout().lock();
    loop {
        let count = match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        match output.write_all(&part[..count]).and_then(|()| output.flush()) {
            Ok(()) => {}
            // A reader that has closed the pipe has read enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error).context("standard output cannot be written"),
        }
    }
}

fn describe(session: &Connected, arguments: &Arguments) {
    terminal::complain(&line(session, arguments.early_data.is_some()));
    if !arguments.verbose {
        return;
    }
    terminal::complain(&format!("why: {}", why(session)));
    for (place, certificate) in session.chain.iter().enumerate() {
        terminal::complain(&format!("certificate {place}: {}", shown(certificate)));
    }
}

fn line(session: &Connected, has_early_data: bool) -> String {
    let Connected { version, cipher, peer, .. } = session;
    let kind = if session.resumed { "resumed" } else { "full handshake" };
    let mut parts = vec![kind.to_owned(), version.clone(), cipher.clone()];
    parts.extend(session.group.clone());
    parts.extend(session.alpn.as_ref().map(|alpn| format!("ALPN {alpn}")));
    match session.early_data {
        EarlyData::Accepted => parts.push("0-RTT accepted".to_owned()),
        EarlyData::Rejected => parts.push("0-RTT rejected".to_owned()),
        EarlyData::NotOffered if has_early_data => {
            parts.push("0-RTT data not sent: no session allows it".to_owned());
        }
        EarlyData::NotOffered | EarlyData::Sent => {}
    }
    format!("{} with {peer}", parts.join(", "))
}

fn why(session: &Connected) -> String {
    let text = match session.why {
        Why::Resumed => "the server took a session that this user's programs had",
        Why::ResumedOtherName => {
            let other = session.session_of.as_deref().unwrap_or("another name");
            return format!("the server took a session of {other}");
        }
        Why::NoSession => "no session with it was known",
        Why::AllUsed => "each session known with it has been used",
        Why::TooOld => "the sessions known with it are too old",
        Why::NotTrusted => "the sessions known with it have certificates that are not trusted here",
        Why::Version => "the sessions known with it are of an older version",
        Why::Refused => "the server did not take the session",
        Why::NotWanted => "--no-share",
        Why::NotShared => "the manager's settings",
        Why::NotVerified => "--insecure",
        Why::Other => "a reason that this version does not know",
    };
    text.to_owned()
}

fn shown(certificate: &Certificate) -> String {
    let fingerprint = certificate.sha256;
    let der = certificate.der.as_ref().map_or(&[][..], |Base64(der)| der);
    match X509Certificate::from_der(der) {
        Ok((_, parsed)) => {
            format!("{} by {}, sha256 {fingerprint}", parsed.subject(), parsed.issuer())
        }
        Err(_) => format!("sha256 {fingerprint}"),
    }
}
