//! The outputs of a capture: lines, CSV, logs, a page, a trace, and the report.

use std::fs;
use std::hash::Hasher;
use std::io::{BufWriter, ErrorKind, Stdout, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_capture::report::{self, Report, ZeekLog};
use rejoin_capture::{Handshake, Pseudonyms};
use rejoin_trace::Event;
use serde_json::Value;
use siphasher::sip::SipHasher13;

use super::inputs::Inputs;
use super::{Arguments, fill_random, misuse};
use crate::beside::{Beside, resolved};
use crate::{terminal, trace_file};

/// The requested outputs.
pub(super) struct Outputs {
    list: Option<List>,
    json: bool,
    table: bool,
    csv: Option<(csv::Writer<fs::File>, Beside)>,
    zeek: Vec<Log>,
    html: Option<(Beside, String)>,
    trace: Option<(PathBuf, Arrivals)>,
    pseudonyms: Option<Pseudonyms>,
    failed: Option<anyhow::Error>,
    /// True once every output is closed.
    is_closed: bool,
}

struct List {
    to: BufWriter<Stdout>,
    explain: bool,
    /// True if each line is flushed at once.
    is_live: bool,
}

/// A log of Zeek's form.
struct Log {
    kind: ZeekLog,
    to: BufWriter<fs::File>,
    file: Beside,
}

/// Arrivals: the time in microseconds and a number for the client, which does not reveal its address.
struct Arrivals {
    key: [u8; 16],
    arrivals: Vec<(i64, u64)>,
    /// Those of the capture that is read, which may be copies, with an entry for each handshake.
    of_capture: Vec<Option<(i64, u64)>>,
    /// Those that are new and have no time.
    without_time: u64,
}

impl Outputs {
    pub(super) fn create(arguments: &Arguments, inputs: &Inputs) -> anyhow::Result<Self> {
        let mut taken: Vec<PathBuf> = inputs.paths().map(resolved).collect();
        let read =
            [&arguments.app_map, &arguments.networks, &arguments.model, &arguments.anonymise_key];
        taken.extend(read.into_iter().flatten().map(|path| resolved(path)));
        let mut create = |path: &Path| {
            let file = Beside::create(path)?;
            file.differs_from(&taken)?;
            if inputs.reads_from(file.target()) {
                return Err(misuse(path, &"standard input is read from it: give another name"));
            }
            taken.push(file.target().to_owned());
            anyhow::Ok(file)
        };
        let html = arguments.html.as_deref().map(&mut create).transpose()?;
        let csv = arguments.csv.as_deref().map(&mut create).transpose()?;
        let zeek = arguments.zeek_logs().map(|(kind, path)| Log::begin(kind, create(&path)?));
        let zeek = zeek.collect::<anyhow::Result<_>>()?;
        if let Some(trace) = &arguments.write_trace {
            create(trace)?;
        }
        let pseudonyms = arguments.anonymise.then(|| pseudonyms(arguments)).transpose()?;
        let list = arguments.list.then(|| List {
            to: BufWriter::new(std::io::stdout()),
            explain: arguments.explain,
            is_live: inputs.is_live(),
        });
        let arrivals = |path: &PathBuf| anyhow::Ok((path.clone(), Arrivals::new()?));
        Ok(Self {
            json: arguments.json,
            table: !arguments.list,
            list,
            csv: csv.map(csv_writer).transpose()?,
            zeek,
            html: html.map(|file| (file, title(arguments))),
            trace: arguments.write_trace.as_ref().map(arrivals).transpose()?,
            pseudonyms,
            failed: None,
            is_closed: false,
        })
    }

    /// Returns true while there is an output to write.
    pub(super) fn is_open(&self) -> bool {
        !self.is_closed && self.failed.is_none()
    }

    /// Returns a file's name, or its pseudonym.
    pub(super) fn shown(&self, file: &str) -> String {
        let pseudonym = self.pseudonyms.as_ref().map(|pseudonyms| pseudonyms.of("file", file));
        pseudonym.unwrap_or_else(|| file.to_owned())
    }

    /// Returns true if the outputs need more than one handshake at a time: a report of all, or the knowledge which are new.
    pub(super) fn needs_all(&self) -> bool {
        self.table || self.html.is_some() || self.needs_new()
    }

    /// Returns true if the outputs need to know which handshakes are new.
    pub(super) fn needs_new(&self) -> bool {
        self.trace.is_some()
    }

    /// Ends a capture, of whose handshakes these are new.
    pub(super) fn end(&mut self, is_new: &[bool]) {
        if let Some((_, arrivals)) = &mut self.trace {
            arrivals.end(is_new);
        }
    }

    /// Adds a handshake of this file. `finish` reports errors.
    pub(super) fn handshake(&mut self, file: &str, handshake: &Handshake) {
        if let Some((_, arrivals)) = &mut self.trace {
            arrivals.add(handshake);
        }
        if self.list.is_none() && self.csv.is_none() && self.zeek.is_empty() {
            return;
        }
        if let Err(error) = self.write(file, handshake) {
            let closed = error.downcast_ref::<std::io::Error>();
            match closed.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
                // The list's pipe is closed; files are still written to the end.
                true => {
                    self.list = None;
                    self.is_closed = self.csv.is_none()
                        && self.zeek.is_empty()
                        && self.html.is_none()
                        && self.trace.is_none();
                }
                false => self.failed = Some(error),
            }
        }
    }

    fn write(&mut self, file: &str, handshake: &Handshake) -> anyhow::Result<()> {
        let mut record = serde_json::to_value(handshake)?;
        record["file"] = file.into();
        let explain = self.list.as_ref().is_some_and(|list| list.explain);
        if explain {
            record["explanation"] = report::explained(handshake).into();
        }
        if let Some(pseudonyms) = &self.pseudonyms {
            pseudonyms.replace(&mut record);
        }
        if let Some((csv, _)) = &mut self.csv {
            let written = csv.write_record(report::fields(&record));
            written.context("the CSV cannot be written")?;
        }
        for Log { kind, to, .. } in &mut self.zeek {
            let written = to.write_all(kind.row(&record).as_bytes());
            written.with_context(|| format!("{} cannot be written", kind.file_name()))?;
        }
        if let Some(list) = &mut self.list {
            match list.write(&record, self.json) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    return Err(error).context("standard output cannot be written");
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// Prints and writes the results. A failed output does not prevent the others.
    pub(super) fn finish(mut self, report: &mut Report) -> anyhow::Result<()> {
        if let Some(pseudonyms) = &self.pseudonyms {
            pseudonyms.replace_in(report);
        }
        let list = self.list.take().map_or(Ok(()), List::finish);
        let printed = match (self.table, self.json) {
            (true, true) => terminal::print_result(&serde_json::to_string(report)?),
            (true, false) => terminal::print_result(&report::table(report)),
            (false, _) => Ok(()),
        };
        let csv = self.csv.map_or(Ok(()), |(mut writer, file)| {
            writer.flush().context("the CSV cannot be written")?;
            drop(writer);
            file.finish()
        });
        let zeek = self.zeek.into_iter().map(Log::finish).fold(Ok(()), anyhow::Result::and);
        let html =
            self.html.map_or(Ok(()), |(file, title)| file.write(&report::html(report, &title)));
        let trace = self.trace.map_or(Ok(()), |(path, arrivals)| arrivals.write(&path));
        self.failed
            .map_or(Ok(()), Err)
            .and(list)
            .and(printed)
            .and(csv)
            .and(zeek)
            .and(html)
            .and(trace)
    }
}

impl List {
    fn finish(mut self) -> anyhow::Result<()> {
        match self.to.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("standard output cannot be written")
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, record: &Value, json: bool) -> std::io::Result<()> {
        if json {
            serde_json::to_writer(&mut self.to, record)?;
            self.to.write_all(b"\n")?;
        } else {
            writeln!(self.to, "{}", rejoin_report::printable(&report::line(record)))?;
            if let Some(why) = record["explanation"].as_str() {
                writeln!(self.to, "    {}", rejoin_report::printable(why))?;
            }
        }
        if self.is_live { self.to.flush() } else { Ok(()) }
    }
}

impl Log {
    fn begin(kind: ZeekLog, file: Beside) -> anyhow::Result<Self> {
        let mut to = BufWriter::new(file.file()?);
        to.write_all(kind.head().as_bytes())?;
        Ok(Self { kind, to, file })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let flushed = self.to.flush();
        flushed.with_context(|| format!("{} cannot be written", self.kind.file_name()))?;
        drop(self.to);
        self.file.finish()
    }
}

impl Arrivals {
    fn new() -> anyhow::Result<Self> {
        let mut key = [0; 16];
        fill_random(&mut key)?;
        Ok(Self { key, arrivals: Vec::new(), of_capture: Vec::new(), without_time: 0 })
    }

    fn add(&mut self, handshake: &Handshake) {
        let time = handshake.t_ch.or(handshake.t_sh);
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(handshake.client().to_string().as_bytes());
        self.of_capture.push(time.map(|time| ((time * 1e6) as i64, hasher.finish())));
    }

    /// Keeps the arrivals of a capture that are new: a copy would be a client that returns at once.
    fn end(&mut self, is_new: &[bool]) {
        for (arrival, _) in self.of_capture.drain(..).zip(is_new).filter(|(_, is_new)| **is_new) {
            match arrival {
                Some(arrival) => self.arrivals.push(arrival),
                None => self.without_time += 1,
            }
        }
    }

    fn write(mut self, path: &Path) -> anyhow::Result<()> {
        if self.without_time > 0 {
            let path = path.display();
            if self.arrivals.is_empty() {
                anyhow::bail!("{path}: of no handshake a time is captured, so there is no trace");
            }
            let count = self.without_time;
            let what = if count == 1 { "handshake" } else { "handshakes" };
            terminal::complain(&format!(
                "{path}: without {count} {what} of which no time is captured"
            ));
        }
        self.arrivals.sort_unstable();
        let first = self.arrivals.first().map_or(0, |(time, _)| *time);
        trace_file::write(path, |write| {
            self.arrivals.iter().try_for_each(|(time, client)| {
                let time_ms = u64::try_from((time - first) / 1_000).unwrap_or(0);
                write(Event { time_ms, client: *client, first_of_run: false, returns_in_ms: None })
            })
        })
    }
}

fn csv_writer(file: Beside) -> anyhow::Result<(csv::Writer<fs::File>, Beside)> {
    let mut writer = csv::Writer::from_writer(file.file()?);
    writer.write_record(report::COLUMNS)?;
    Ok((writer, file))
}

/// Returns the title of the page.
fn title(arguments: &Arguments) -> String {
    match (&arguments.interface, arguments.files.as_slice()) {
        _ if arguments.anonymise => "TLS handshakes".to_owned(),
        (Some(interface), _) => format!("TLS handshakes on {interface}"),
        (None, [one]) if one.as_os_str() != "-" => {
            let name = one.file_name().unwrap_or(one.as_os_str());
            format!("TLS handshakes in {}", name.to_string_lossy())
        }
        _ => "TLS handshakes in captures".to_owned(),
    }
}

fn pseudonyms(arguments: &Arguments) -> anyhow::Result<Pseudonyms> {
    let mut key = [0; 16];
    let Some(path) = &arguments.anonymise_key else {
        fill_random(&mut key)?;
        return Ok(Pseudonyms::new(key));
    };
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("{}: cannot be read", path.display()))?;
    let text = text.trim();
    let what = "a key is 32 hexadecimal digits: openssl rand -hex 16 makes one";
    let is_key = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_key.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    Ok(Pseudonyms::new(number.ok_or_else(|| misuse(path, &what))?.to_be_bytes()))
}
