//! `rejoin stats --serve`, as a browser and others see it.

use crate::REJOIN;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// For whatever takes a moment: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects to an exporter.
fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// The whole answer to these bytes.
pub(crate) fn tell(address: &str, request: &[u8]) -> String {
    let mut stream = connect(address);
    // It may answer before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The whole answer to a request with these fields besides `Host`, each with its end.
pub(crate) fn get(address: &str, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n");
    tell(address, request.as_bytes())
}

/// A `rejoin stats --serve`, killed when dropped.
pub(crate) struct Shown {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Shown {
    /// Starts `rejoin stats --serve` with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(REJOIN)
            .args(["stats", "--serve", "127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut line).expect("a line");
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        let (address, _) = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, address: address.to_owned() }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// The whole answer to these bytes.
    pub(crate) fn tell(&self, request: &[u8]) -> String {
        tell(&self.address, request)
    }

    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.address, path, "")
    }

    pub(crate) fn stats(&self) -> Value {
        let answer = self.get("/stats.json");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }

    /// Waits until the counts are so.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.stats()) {
            assert!(Instant::now() < until, "not {what}: {}", self.stats());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The page once its script has run, as Chromium has it.
    pub(crate) fn drawn(&self, folder: &Path) -> String {
        let browser = Command::new("timeout")
            .args([
                "--kill-after=5",
                "120",
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args(["--disable-dev-shm-usage", "--virtual-time-budget=4000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.join("browser").display()))
            .arg(format!("http://{}/", self.address))
            .env("HOME", folder)
            .output()
            .expect("chromium is installed: make test-all");
        assert!(browser.status.success(), "{}", String::from_utf8_lossy(&browser.stderr));
        String::from_utf8(browser.stdout).expect("UTF-8")
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // Already ended, when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of the element with this id.
pub(crate) fn text_of<'a>(dom: &'a str, id: &str) -> &'a str {
    let (_, rest) = dom
        .split_once(&format!("id=\"{id}\""))
        .and_then(|(_, rest)| rest.split_once('>'))
        .unwrap_or_else(|| panic!("no {id} in {dom}"));
    rest.split_once('<').expect("its end").0
}

pub(crate) fn number(dom: &str, id: &str) -> u64 {
    let text = text_of(dom, id);
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{id} is {text:?}"))
}
