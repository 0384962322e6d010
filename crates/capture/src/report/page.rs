//! The HTML page: Table I of paper 004 as bars, and its Fig. 3 and 4.

use std::fmt::{self, Display};

use rejoin_report::{Escaped, Page};
use rejoin_trace::grouped;
use time::OffsetDateTime;

use super::{
    Average, NOT_MEASURED, Report, STEPS, UNKNOWN, WITHOUT_BYTES, WITHOUT_TIME, figure,
    percent_full, saved,
};
use crate::sharing::{Cause, Interval, Measured, OverTime, Party, Service, Times};

const STYLE: &str = include_str!("page.css");

/// The most hosts of a service drawn one by one; the others share one area.
const MOST_AREAS: usize = 120;
/// The most unread captures that are listed.
const MOST_LISTED: usize = 50;

/// The report as a single HTML page that makes no requests and needs no script.
pub fn html(report: &Report, title: &str) -> String {
    Page { title, style: STYLE, script: "", body: Body(report) }.to_string()
}

struct Body<'a>(&'a Report);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        self.steps(f)?;
        self.measured(f)?;
        self.over_time(f)?;
        self.causes(f)?;
        self.services(f)?;
        self.left_out(f)
    }
}

impl Body<'_> {
    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { captured, findings, .. } = self.0;
        let [client, server] = findings.ideal.only_through_others().map(grouped);
        let client = if findings.applications > 1 {
            client
        } else {
            "not measured, one application".to_owned()
        };
        let server = match (findings.applications, findings.networks_given) {
            (2.., true) => server,
            (2.., false) => NOT_MEASURED.to_owned(),
            _ => "not measured".to_owned(),
        };
        writeln!(
            f,
            "<p>{} of {} TLS and QUIC handshakes in {} captures count: classified, direct, without a \
             client certificate, in no earlier capture. Avoidable only through another application’s \
             session: {}; if servers share, {}.</p>",
            grouped(findings.ideal.handshakes),
            grouped(captured.handshakes_seen),
            grouped(captured.captures),
            client,
            server,
        )?;
        if findings.without_time > 0 {
            let (count, what) = (grouped(findings.without_time), Escaped(WITHOUT_TIME));
            writeln!(f, "<p>Of {count} handshakes {what}.</p>")?;
        }
        if captured.interrupted {
            writeln!(f, "<p class=\"incomplete\">Interrupted: what was read by then.</p>")?;
        }
        Ok(())
    }

    fn steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = Escaped(&self.0.model.name);
        writeln!(
            f,
            "<h2>Full handshakes, step by step of sharing</h2>\n<p>As in Table I of paper 004: every \
             session lives for ever. “Truly” is by the clock, within lifetimes, each TLS 1.3 ticket \
             once. Latency and energy of an average handshake by the model “{model}”.</p>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Steps\">\n\
             <table class=\"steps\">\n<thead><tr><th scope=\"col\">sessions<th scope=\"col\">\
             <th scope=\"col\">full<th scope=\"col\">%<th scope=\"col\">truly<th scope=\"col\">latency \
             ms<th scope=\"col\">energy µAh</thead>\n<tbody>"
        )?;
        for (step, (average, (_, name))) in self.0.average.iter().zip(STEPS).enumerate() {
            if !self.0.is_measured(step) {
                writeln!(f, "<tr><th scope=\"row\">{name}<td colspan=\"6\">{NOT_MEASURED}")?;
                continue;
            }
            let Average { full, resumed, realistic_full, cost, .. } = average;
            let share = percent_full(*full, *resumed);
            let width = share.unwrap_or(0.0);
            writeln!(
                f,
                "<tr><th scope=\"row\">{name}<td><span class=\"bar\" aria-hidden=\"true\">\
                 <i style=\"width:{width:.2}%\"></i></span><td>{}<td>{}<td>{}<td>{}<td>{}",
                grouped(*full),
                figure(share, 1),
                realistic_full.map_or_else(|| UNKNOWN.to_owned(), grouped),
                figure(cost.latency_ms, 2),
                figure(cost.energy_uah, 2)
            )?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")?;
        if self.0.lacks_bytes() {
            writeln!(f, "<p>“{UNKNOWN}”: {WITHOUT_BYTES}.</p>")?;
        }
        Ok(())
    }

    fn measured(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "<h2>Measured in these captures</h2>\n<p>From the ClientHello until both sides had sent \
             encrypted records; the model’s figures above are for comparison.</p>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Measured\">\n\
             <table>\n<thead><tr><th scope=\"col\">protocol<th scope=\"col\">full<th \
             scope=\"col\">median ms<th scope=\"col\">bytes<th scope=\"col\">resumed<th \
             scope=\"col\">median ms<th scope=\"col\">bytes</thead>\n<tbody>\n",
        )?;
        for Measured { protocol, full, resumed, .. } in &self.0.findings.measured {
            write!(f, "<tr><th scope=\"row\">{protocol}")?;
            for Times { handshakes, median_ms, bytes, .. } in [full, resumed] {
                let (median, bytes) = (figure(*median_ms, 1), figure(*bytes, 0));
                write!(f, "<td>{}<td>{median}<td>{bytes}", grouped(*handshakes))?;
            }
            f.write_str("\n")?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }

    fn over_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverTime { step_s, intervals } = &self.0.findings.over_time;
        let most = intervals.iter().map(|it| it.full + it.resumed).max().unwrap_or(0).max(1);
        if intervals.len() < 2 {
            return Ok(());
        }
        f.write_str(
            "<h2>Over time</h2>\n<p>Full handshakes, and resumed ones lighter, by the beginning of each \
             interval, UTC; one without handshakes is left out.</p>\n<div class=\"scroll\" \
             tabindex=\"0\" role=\"region\" aria-label=\"Over time\">\n<table class=\"services\">\n\
             <thead><tr><th scope=\"col\">begin<th scope=\"col\"><th scope=\"col\">full\
             <th scope=\"col\">resumed<th scope=\"col\">resumed %</thead>\n<tbody>\n",
        )?;
        for Interval { begin_s, full, resumed } in intervals {
            let [wide, light] = [full, resumed].map(|count| width(*count, most));
            let share = 100.0 * *resumed as f64 / (*full + *resumed).max(1) as f64;
            writeln!(
                f,
                "<tr><th scope=\"row\">{}<td><span class=\"bar\" aria-hidden=\"true\">\
                 <i style=\"{wide}\"></i><i style=\"{light}\"></i></span>\
                 <td>{}<td>{}<td>{share:.1}",
                moment(*begin_s, *step_s),
                grouped(*full),
                grouped(*resumed)
            )?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }

    fn causes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not_resumed = &self.0.findings.not_resumed;
        if not_resumed.causes.is_empty() {
            return Ok(());
        }
        f.write_str(
            "<h2>Why handshakes were full</h2>\n<p>Each cause is a fact of the capture; where two \
             could be the cause, neither is named.</p>\n<div class=\"scroll\" tabindex=\"0\" \
             role=\"region\" aria-label=\"Causes\">\n<table class=\"causes\">\n<thead><tr>\
             <th scope=\"col\">cause<th scope=\"col\">handshakes<th scope=\"col\">servers\
             <th scope=\"col\">clients<th scope=\"col\">what helps</thead>\n<tbody>\n",
        )?;
        for count in &not_resumed.causes {
            writeln!(
                f,
                "<tr><th scope=\"row\">{}<td>{}<td>{}<td>{}<td>{}",
                count.cause.name(),
                grouped(count.handshakes),
                grouped(count.servers),
                grouped(count.clients),
                count.cause.mend()
            )?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")?;
        self.parties(f, "Servers", &not_resumed.by_server)?;
        self.parties(f, "Clients", &not_resumed.by_client)
    }

    fn parties(&self, f: &mut fmt::Formatter<'_>, what: &str, parties: &[Party]) -> fmt::Result {
        if parties.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "<h3>{what} whose handshakes could have been resumed</h3>\n<div class=\"scroll\" \
             tabindex=\"0\" role=\"region\" aria-label=\"{what}\">\n<table class=\"causes\">\n\
             <thead><tr><th scope=\"col\">address<th scope=\"col\">resumed<th scope=\"col\">could \
             have been<th scope=\"col\">most of them</thead>\n<tbody>"
        )?;
        for party in parties {
            writeln!(
                f,
                "<tr><th scope=\"row\">{}<td>{}<td>{}<td>{}",
                Escaped(&party.address),
                grouped(party.resumed),
                grouped(party.full),
                party.main_cause().map_or("", Cause::name)
            )?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }

    fn services(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = &self.0.findings.top_services;
        let most = services.iter().map(areas).max().unwrap_or(1).max(1);
        f.write_str(
            "<h2>Services that most applications use</h2>\n<p>As in Fig. 3 and 4 of paper 004: an \
             area for each host, as wide as the applications that connect to it. A service of one \
             area gains all there is by sharing on the client; one of many needs its servers to \
             share.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Services\">\n\
             <table class=\"services\">\n<thead><tr><th scope=\"col\">service<th scope=\"col\">\
             applications by host<th scope=\"col\">applica&shy;tions<th scope=\"col\">hosts\
             <th scope=\"col\">full<th scope=\"col\">shared on the client<th scope=\"col\">and between \
             servers<th scope=\"col\">saved ms, client<th scope=\"col\">and servers</thead>\n<tbody>\n",
        )?;
        for service in services {
            self.service(f, service, most)?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }

    fn service(&self, f: &mut fmt::Formatter<'_>, service: &Service, most: u64) -> fmt::Result {
        write!(f, "<tr><th scope=\"row\">{}<td><span class=\"bar\">", Escaped(&service.name))?;
        let (drawn, rest) = service.hosts.split_at(service.hosts.len().min(MOST_AREAS));
        for host in drawn {
            let width = 100.0 * host.applications as f64 / most as f64;
            let (address, applications) = (Escaped(&host.address), host.applications);
            write!(f, "<i style=\"width:{width:.2}%\" title=\"{address}: {applications}\"></i>")?;
        }
        if !rest.is_empty() {
            let applications: u64 = rest.iter().map(|host| host.applications).sum();
            let (width, hosts) = (100.0 * applications as f64 / most as f64, rest.len());
            write!(f, "<i style=\"width:{width:.2}%\" title=\"{hosts} more hosts\"></i>")?;
        }
        let [now, client, server] = self.0.average_of(service).map(|cost| cost.latency_ms);
        let (shared_server, saved_server) = match self.0.findings.networks_given {
            true => (grouped(service.full_shared_server), figure(saved(now, server), 0)),
            false => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
        };
        writeln!(
            f,
            "</span><td>{}<td>{}<td>{}<td>{}<td>{shared_server}<td>{}<td>{saved_server}",
            grouped(service.applications),
            grouped(service.hosts.len() as u64),
            grouped(service.full_observed),
            grouped(service.full_shared_client),
            figure(saved(now, client), 0),
        )
    }

    fn left_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = &self.0.captured.left_out;
        if left_out.is_empty() {
            return Ok(());
        }
        f.write_str("<h2>Not read, or not to the end</h2>\n<ul class=\"left\">\n")?;
        for left in left_out.iter().take(MOST_LISTED) {
            writeln!(f, "<li>{}: {}", Escaped(&left.file), Escaped(&left.reason))?;
        }
        if left_out.len() > MOST_LISTED {
            writeln!(f, "<li>and {} more", left_out.len() - MOST_LISTED)?;
        }
        f.write_str("</ul>\n")
    }
}

/// The width of a part of a bar. An empty one is not seen.
fn width(count: u64, most: u64) -> String {
    match count {
        0 => "width:0;min-width:0".to_owned(),
        _ => format!("width:{:.2}%", 100.0 * count as f64 / most as f64),
    }
}

/// A time as far as intervals of this length need it.
fn moment(at_s: i64, step_s: i64) -> String {
    let Ok(at) = OffsetDateTime::from_unix_timestamp(at_s) else { return "–".to_owned() };
    let date = format!("{}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day());
    match step_s {
        86_400.. => date,
        60.. => format!("{date} {:02}:{:02}", at.hour(), at.minute()),
        _ => format!("{date} {:02}:{:02}:{:02}", at.hour(), at.minute(), at.second()),
    }
}

/// The width of a service's bar. An application that uses two hosts counts in both areas.
fn areas(service: &Service) -> u64 {
    service.hosts.iter().map(|host| host.applications).sum()
}
