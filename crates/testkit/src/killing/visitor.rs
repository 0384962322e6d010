//! Clients that come again and again, ask which process serves them, and record the outcome.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::site::{Client, Site, Versions};

/// The pause between the two requests of a connection, in which most kills happen.
const PAUSE: Duration = Duration::from_millis(8);

/// A client, and the subject that the server is to repeat.
pub(super) struct Visitor {
    client: Client,
    subject: String,
    /// Comes without its session now and then.
    forgets: bool,
}

/// Makes clients with and without a certificate, of both versions.
pub(super) fn visitors(site: &Site, thread: usize) -> Vec<Visitor> {
    let mut visitors = Vec::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        for number in 0..3 {
            let subject = format!("CN=client-{thread}-{number}-{versions:?}");
            let file = (number > 0).then(|| certificate(site, &subject));
            let subject = if number > 0 { subject } else { String::new() };
            let client = Client::presenting(site.address(), versions, file.as_deref());
            visitors.push(Visitor { client, subject, forgets: number == 2 });
        }
    }
    visitors
}

fn certificate(site: &Site, subject: &str) -> PathBuf {
    let file = site.file(&format!("{subject}.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", &format!("/{subject}"), "-days", "2", "-keyout"])
        .arg(&file)
        .arg("-out")
        .arg(file.with_extension("cert"))
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let both = [fs::read(&file), fs::read(file.with_extension("cert"))];
    let both = both.map(|part| part.expect("just written")).concat();
    fs::write(&file, both).expect("a file");
    file
}

/// One connection, and its outcome.
pub(super) struct Visit {
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// The worker that answered.
    pub(super) worker: Option<u32>,
    /// The client had a session.
    pub(super) offered: bool,
    pub(super) resumed: bool,
    pub(super) failure: Option<String>,
    pub(super) wrong: Option<String>,
}

pub(super) fn load(visitors: &mut [Visitor], stop: &AtomicBool, visits: &Mutex<Vec<Visit>>) {
    for turn in 0_usize.. {
        for visitor in &mut *visitors {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if visitor.forgets && turn.is_multiple_of(3) {
                *visitor.client.session.lock().expect("no panic") = None;
            }
            let visit = visitor.visit();
            visits.lock().expect("no panic").push(visit);
        }
    }
}

impl Visitor {
    fn visit(&self) -> Visit {
        let from = Instant::now();
        let mut visit = Visit {
            from,
            until: from,
            worker: None,
            offered: self.client.session.lock().expect("no panic").is_some(),
            resumed: false,
            failure: None,
            wrong: None,
        };
        visit.failure = self.ask_twice(&mut visit).err().map(|error| error.to_string());
        visit.until = Instant::now();
        visit
    }

    fn ask_twice(&self, visit: &mut Visit) -> Result<(), Box<dyn Error>> {
        let mut tls = self.client.shake_hands()?;
        visit.resumed = tls.ssl().session_reused();
        for connection in ["keep-alive", "close"] {
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n");
            tls.write_all(request.as_bytes())?;
            let answer = answer(&mut tls)?;
            let (worker, subject) = answer.split_once(' ').ok_or("no process is named")?;
            visit.worker = Some(worker.parse()?);
            if subject != self.subject {
                visit.wrong = Some(format!("{} was taken for {subject}", self.subject));
            }
            if connection == "keep-alive" {
                thread::sleep(PAUSE);
            }
        }
        let _ = tls.shutdown();
        Ok(())
    }
}

/// The line that is the body of an answer.
fn answer(tls: &mut impl Read) -> Result<String, Box<dyn Error>> {
    let (mut answer, mut part) = (Vec::new(), [0; 1_024]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").and_then(|(_, body)| body.strip_suffix('\n'));
        if let Some(body) = body {
            let is_200 = text.starts_with("HTTP/1.1 200");
            return is_200.then(|| body.to_owned()).ok_or_else(|| text.clone().into());
        }
        match tls.read(&mut part)? {
            0 => return Err("the answer ended early".into()),
            read => answer.extend_from_slice(&part[..read]),
        }
    }
}
