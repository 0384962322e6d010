//! The outcome for a terminal, in the layout of the paper's tables.

use rejoin_report::{Table, distinct};

use super::model::{Fit, Line, Parts, percent_cut};
use super::paper::Measured;
use super::{Counters, Outcome, Row, Shares, Size, SuiteModel};

/// Where a figure would need hardware counters.
const UNAVAILABLE: &str = "not available here";
/// Where there is nothing to say.
const NONE: &str = "–";
const PAPER: &str = "paper 001, one processor";

/// All tables, and what is to be known of them.
pub fn text(outcome: &Outcome) -> String {
    let mut parts: Vec<String> = tables(outcome).iter().map(Table::text).collect();
    parts.extend(outcome.models.is_empty().then(|| missing_model(outcome)));
    parts.extend(notes(outcome));
    parts.join("\n\n")
}

/// Returns all tables.
pub(super) fn tables(outcome: &Outcome) -> Vec<Table> {
    let mut tables = vec![
        titled(
            "Table 1: transactions a second, scaled to full utilisation of the server's cores; path \
             length in thousands of instructions",
            table_1(outcome),
        ),
        titled("Table 2: what transactions without TLS do better", table_2(outcome)),
        titled("Table 6: branches per instruction, and predicted wrong of them", table_6(outcome)),
        titled("Table 7: milliseconds to the first byte, under load", table_7(outcome)),
        titled("Per transaction, the server's threads and the wire", transactions(outcome)),
    ];
    if !outcome.models.is_empty() {
        tables.push(titled(
            "Where the server's time goes: Th handshake, Te cipher, Tn the rest",
            model(outcome),
        ));
        tables.push(titled("The lines, d in KB", lines(outcome)));
    }
    tables
}

/// Returns notes on the figures.
pub(super) fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let cut = outcome.ended.cut("interrupted");
    notes.extend(cut.map(|why| format!("partial: {why}; these are the figures so far")));
    notes.extend(outcome.ended.notes());
    for cores in outcome.cores.iter().filter(|cores| cores.are_shared()) {
        notes.push(match cores.server.len() {
            1 => "one core: server and clients shared it; throughput and response times are of both"
                .to_owned(),
            number => format!(
                "{number} cores: there are no others, so server and clients shared them; throughput and \
                 response times are of both"
            ),
        });
    }
    if outcome.cells.iter().any(|row| row.server.counters.cache_references.is_some()) {
        notes.push(
            "last cache: what this processor counts as references and misses, which most do of their last cache; \
             the paper's is L2"
                .to_owned(),
        );
    }
    notes.extend(outcome.counters_missing.map(|missing| missing.text().to_owned()));
    let failed = outcome.cells.iter().filter(|row| row.failed > 0);
    notes.extend(failed.map(|row| {
        let why = row.failure.as_deref().unwrap_or("for no known reason");
        let [tls, key, cipher] = names(row);
        let (mode, size, failed) = (row.mode, row.size_bytes, row.failed);
        format!("{failed} transactions failed ({tls} {key} {cipher} {mode} {size}): {why}")
    }));
    notes
}

/// Why there is no model.
pub(super) fn missing_model(outcome: &Outcome) -> String {
    let why = if outcome.ended.complete {
        "it needs modes plain and full, and four sizes"
    } else {
        "too little was measured for it"
    };
    format!("no model of where the time goes: {why}")
}

/// Columns that are text, heads divided by bars, and rows.
type Untitled = (&'static [usize], &'static str, Vec<Vec<String>>);

fn titled(title: &str, (text, head, rows): Untitled) -> Table {
    let head = head.split('|').map(str::to_owned).collect();
    Table { title: title.to_owned(), text, head, rows }
}

/// A size, a number of cores, a kind of TLS, and the rows of its modes.
struct Group<'a> {
    cores: usize,
    size: Size,
    names: [&'static str; 3],
    full: Option<&'a Row>,
    resumed: Option<&'a Row>,
    once: Option<&'a Row>,
    plain: Option<&'a Row>,
}

impl<'a> Group<'a> {
    /// By size, then by the number of cores, then by kind of TLS; without any, plain HTTP alone.
    fn all(outcome: &'a Outcome) -> Vec<Self> {
        let mut cores: Vec<usize> = outcome.cells.iter().map(|row| row.cores).collect();
        cores.sort_unstable();
        cores.dedup();
        let kinds = kinds(outcome);
        let mut groups = Vec::new();
        for size in sizes(outcome) {
            for cores in cores.iter().copied() {
                groups.extend(kinds.iter().map(|names| Self::of(outcome, (size, cores), *names)));
            }
        }
        groups
    }

    fn of(outcome: &'a Outcome, (size, cores): (Size, usize), kind: [&'static str; 3]) -> Self {
        let find = |mode: &str| {
            let cells = outcome.cells.iter();
            let is = |row: &&Row| mode == "plain" || names(row) == kind;
            let mut its = cells.filter(|row| row.size_bytes == size && row.cores == cores);
            its.find(|row| row.mode == mode && is(row))
        };
        Self {
            cores,
            size,
            names: kind,
            full: find("full"),
            resumed: find("resumed"),
            once: find("once"),
            plain: find("plain"),
        }
    }

    fn modes(&self) -> [Option<&'a Row>; 4] {
        [self.full, self.resumed, self.once, self.plain]
    }

    fn head(&self) -> Vec<String> {
        let [tls, key, cipher] = self.names;
        let cores = if self.cores > 1 { format!(", {} cores", self.cores) } else { String::new() };
        vec![self.size.to_string(), format!("TLS {tls} {key} {cipher}{cores}")]
    }
}

/// A row of the paper's before the first of ours of its size.
fn beside_the_paper(
    outcome: &Outcome,
    paper: impl Fn(Measured) -> Option<Vec<String>>,
    ours: impl Fn(&Group<'_>) -> Vec<String>,
) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut last = None;
    for group in Group::all(outcome) {
        if last.replace(group.size) != Some(group.size)
            && let Some(figures) = Measured::of(group.size.bytes()).and_then(&paper)
        {
            let mut row = vec![group.size.to_string(), PAPER.to_owned()];
            row.extend(figures);
            rows.push(row);
        }
        let mut row = group.head();
        row.extend(ours(&group));
        rows.push(row);
    }
    rows
}

fn table_1(outcome: &Outcome) -> Untitled {
    let none = || NONE.to_owned();
    let paper = |Measured { throughput, path_length, cycles_per_instruction, .. }: Measured| {
        let [with, without] = throughput.map(whole);
        let mut figures = vec![with, none(), none(), without];
        figures.extend(path_length.map(whole));
        figures.extend(cycles_per_instruction.map(|figure| format!("{figure:.2}")));
        Some(figures)
    };
    let ours = |group: &Group<'_>| {
        let rate = |row: &Row| row.marked(whole(row.scaled_per_s));
        let rate = |row: Option<&Row>| row.map_or_else(none, rate);
        let mut figures = group.modes().map(rate).to_vec();
        let counters = [group.full, group.plain].map(|row| row.map(|row| row.server.counters));
        for counters in counters {
            let thousands = counters.and_then(|counters| counters.instructions);
            figures.push(available(thousands.map(|count| whole(count / 1e3))));
        }
        for counters in counters {
            let ratio = counters.and_then(|counters| counters.cycles_per_instruction());
            figures.push(available(ratio.map(|ratio| format!("{ratio:.2}"))));
        }
        figures
    };
    let head = "size||full|resumed|once|w/o TLS|path length full|w/o|cycles/inst full|w/o";
    (&[0, 1], head, beside_the_paper(outcome, paper, ours))
}

fn table_2(outcome: &Outcome) -> Untitled {
    let paper = |Measured { relative: [throughput, cycles], misses, .. }: Measured| {
        let misses = misses.map(|[with, without]| format!("{with} % {without} %"));
        let mut figures = vec![format!("{throughput:.2}"), NONE.to_owned(), NONE.to_owned()];
        figures.extend([NONE.to_owned(), format!("{cycles:.2}")]);
        figures.extend(misses);
        Some(figures)
    };
    let ours = |group: &Group<'_>| {
        let ratio = |of: Option<&Row>, value: fn(&Row) -> f64| match (group.plain, of) {
            (Some(plain), Some(of)) => {
                plain.marked(of.marked(format!("{:.2}", value(plain) / value(of))))
            }
            _ => NONE.to_owned(),
        };
        let scaled = |of| ratio(of, |row| row.scaled_per_s);
        let mut figures = [group.full, group.resumed, group.once].map(scaled).to_vec();
        figures.push(ratio(group.full, |row| row.per_s));
        let [full, plain] = [group.full, group.plain].map(|row| row.map(|row| row.server.counters));
        let cycles = |of: Option<Counters>| of.and_then(|of| of.cycles);
        let relative = cycles(full).zip(cycles(plain)).map(|(full, plain)| full / plain);
        figures.push(available(relative.map(|relative| format!("{relative:.2}"))));
        let ratios = [full, plain].map(|of| of.map_or([None; 3], Counters::miss_ratios));
        let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
        figures.extend((0..3).map(|cache| both([ratios[0][cache], ratios[1][cache]], percent)));
        figures
    };
    let head = "size||rel tput full|resumed|once|full, not scaled|cycle/op|L1 inst MR w/, w/o|\
                L1 data MR w/, w/o|last cache MR w/, w/o";
    (&[0, 1], head, beside_the_paper(outcome, paper, ours))
}

fn table_6(outcome: &Outcome) -> Untitled {
    let paper = |Measured { branches, .. }: Measured| {
        let pair = |[with, without]: [f64; 2]| format!("{with:.3} {without:.3}");
        Some(branches.map(pair).to_vec())
    };
    let ours = |group: &Group<'_>| {
        let counters = [group.full, group.plain].map(|row| row.map(|row| row.server.counters));
        let figures = |of: fn(Counters) -> Option<f64>| {
            both(counters.map(|counters| counters.and_then(of)), |figure| format!("{figure:.3}"))
        };
        vec![figures(Counters::branch_frequency), figures(Counters::misprediction)]
    };
    let head = "size||branches per inst full, w/o|predicted wrong full, w/o";
    (&[0, 1], head, beside_the_paper(outcome, paper, ours))
}

fn table_7(outcome: &Outcome) -> Untitled {
    let none = || NONE.to_owned();
    let paper = |measured: Measured| {
        let [with, without] = measured.first_byte_ms?.map(whole);
        Some(vec![with, none(), none(), without])
    };
    let ours = |group: &Group<'_>| {
        let time = |row: &Row| row.marked(format!("{:.2}", row.first_byte_us / 1e3));
        group.modes().map(|row| row.map_or_else(none, time)).to_vec()
    };
    let head = "size||full|resumed|once|w/o TLS";
    (&[0, 1], head, beside_the_paper(outcome, paper, ours))
}

fn transactions(outcome: &Outcome) -> Untitled {
    let head = "TLS|key|cipher|mode|cores|size|per s|used %|CPU µs|lowest|highest|user|kernel|\
                switches|bytes to server|to client|packets to server|to client";
    let rows = outcome.cells.iter().map(|row| {
        let (server, wire) = (row.server, row.wire);
        let mut cells: Vec<String> = names(row).map(str::to_owned).to_vec();
        let us = |ns: f64| format!("{:.1}", ns / 1e3);
        cells.extend([
            row.marked(row.mode.to_owned()),
            row.cores.to_string(),
            row.size_bytes.to_string(),
        ]);
        cells.push(whole(row.per_s));
        cells.push(whole(row.utilisation * 100.0));
        cells.extend([server.cpu_ns, server.cpu_ns_lowest, server.cpu_ns_highest].map(us));
        let halves = [server.user_ns, server.kernel_ns];
        cells.extend(halves.map(|half| half.map_or_else(|| NONE.to_owned(), us)));
        cells.push(format!("{:.2}", server.context_switches));
        cells.extend([wire.bytes_to_server, wire.bytes_to_client].map(whole));
        let packets = [wire.packets_to_server, wire.packets_to_client];
        cells.extend(packets.map(|packets| format!("{packets:.1}")));
        cells
    });
    (&[0, 1, 2, 3], head, rows.collect())
}

fn model(outcome: &Outcome) -> Untitled {
    let head = "TLS|key|cipher|size|Th µs|Te µs|Tn µs|Th|Te|Tn|paper's Th|Te|Tn|resumed Th µs|Th|\
                Te|Tn|saved";
    let rows = outcome.models.iter().flat_map(|model| {
        let SuiteModel { tls, key, cipher, .. } = model;
        model.sizes.iter().map(|shares| {
            let mut cells = [*tls, *key, *cipher].map(str::to_owned).to_vec();
            cells.push(shares.size_bytes.to_string());
            cells.extend(figures(shares));
            cells
        })
    });
    (&[0, 1, 2], head, rows.collect())
}

fn figures(shares: &Shares) -> Vec<String> {
    let each = |Parts { handshake, cipher, remainder }| [handshake, cipher, remainder];
    let mut cells = each(shares.full_us).map(|us| format!("{us:.1}")).to_vec();
    cells.extend(each(shares.full_percent).map(percent_cut));
    cells.extend(each(shares.paper_percent).map(percent_cut));
    let Some((us, percent)) = shares.resumed_us.zip(shares.resumed_percent) else {
        cells.extend([NONE; 5].map(str::to_owned));
        return cells;
    };
    cells.push(format!("{:.1}", us.handshake));
    cells.extend(each(percent).map(percent_cut));
    cells.push(shares.saved_percent.map_or_else(|| NONE.to_owned(), percent_cut));
    cells
}

fn lines(outcome: &Outcome) -> Untitled {
    let head = "TLS|key|cipher||CPU µs|residuals, % of each size";
    let rows = outcome.models.iter().flat_map(|model| {
        let SuiteModel { tls, key, cipher, full, resumed, plain, .. } = model;
        let fits =
            [("Ts, full", Some(full)), ("Ts, resumed", resumed.as_ref()), ("Tn", Some(plain))];
        fits.into_iter().filter_map(|(name, fit)| Some((name, fit?))).map(|(name, fit)| {
            let Line { constant, per_kb } = fit.line;
            let mut cells = [*tls, *key, *cipher, name].map(str::to_owned).to_vec();
            cells.extend([format!("{constant:.1} + {per_kb:.3} d"), residuals(fit)]);
            cells
        })
    });
    (&[0, 1, 2, 3, 4, 5], head, rows.collect())
}

fn residuals(fit: &Fit) -> String {
    let each = fit.residuals.iter().map(|residual| format!("{:+.1}", residual.percent));
    each.collect::<Vec<_>>().join(" ")
}

/// Returns the kinds of TLS, or that of plain HTTP where it is alone.
pub(super) fn kinds(outcome: &Outcome) -> Vec<[&'static str; 3]> {
    let tls = outcome.cells.iter().filter(|row| row.tls.is_some());
    let mut kinds = distinct(tls.map(names));
    if kinds.is_empty() {
        kinds.extend(outcome.cells.first().map(names));
    }
    kinds
}

/// Returns the sizes of responses, the smallest first.
pub(super) fn sizes(outcome: &Outcome) -> Vec<Size> {
    let mut sizes = distinct(outcome.cells.iter().map(|row| row.size_bytes));
    sizes.sort();
    sizes
}

pub(super) fn names(row: &Row) -> [&'static str; 3] {
    [row.tls.unwrap_or("none"), row.key.unwrap_or(NONE), row.cipher.unwrap_or(NONE)]
}

/// With TLS and without.
fn both(figures: [Option<f64>; 2], show: impl Fn(f64) -> String) -> String {
    available(
        figures[0].zip(figures[1]).map(|(one, other)| format!("{} {}", show(one), show(other))),
    )
}

fn available(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| UNAVAILABLE.to_owned())
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

#[cfg(test)]
mod tests {
    use super::super::Missing;
    use super::super::outcome::tests::papers;
    use super::*;

    #[test]
    fn the_papers_shares_stand_beside_ours() {
        let text = text(&papers());
        let line = text.lines().find(|line| line.contains("36 KB") && line.contains("43.0 %"));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert_eq!(line.matches("43.0 %").count(), 2, "{line}");
        assert_eq!(line.matches("36.6 %").count(), 2, "{line}");
        assert_eq!(line.matches("20.3 %").count(), 2, "{line}");
        assert!(line.contains("28.8 %"), "1 - 2100 / 2950: {line}");
    }

    #[test]
    fn the_papers_rows_are_where_the_cell_exists() {
        let text = text(&papers());
        let rows = |title: &str| {
            let table = text.split("\n\n").find(|table| table.starts_with(title)).expect(title);
            table.lines().filter(|line| line.contains(PAPER)).collect::<Vec<_>>()
        };
        assert_eq!(rows("Table 1").len(), 3);
        let first = rows("Table 1")[0];
        assert!(
            first.contains("353") && first.contains("2496") && first.contains("734"),
            "{first}"
        );
        let first = rows("Table 2")[0];
        assert!(first.contains("7.07") && first.contains("12.1 % 1.9 %"), "{first}");
        assert!(text.contains("last cache MR") && text.contains("the paper's is L2"), "{text}");
        assert_eq!(rows("Table 7").len(), 2);
        assert!(rows("Table 7")[1].contains("272"), "{text}");
        let first = rows("Table 6")[0];
        assert!(first.contains("0.116 0.210") && first.contains("0.116 0.219"), "{first}");
    }

    #[test]
    fn what_was_not_counted_is_not_available_and_it_is_said_why() {
        let mut outcome = papers();
        assert!(!text(&outcome).contains(UNAVAILABLE));
        outcome.cells.iter_mut().for_each(|row| row.server.counters = Counters::default());
        outcome.counters_missing = Some(Missing::NotPermitted);
        let text = text(&outcome);
        assert!(text.contains(UNAVAILABLE) && text.contains("perf_event_paranoid"), "{text}");
    }

    #[test]
    fn what_is_partial_says_so() {
        let mut outcome = papers();
        assert!(!text(&outcome).contains("partial"));
        outcome.ended.complete = false;
        outcome.models.clear();
        outcome.cells.truncate(1);
        let text = text(&outcome);
        assert!(text.contains("partial: interrupted") && text.contains("no model"), "{text}");
        outcome.ended.failure = Some("plain 30 B: reset".to_owned());
        assert!(super::text(&outcome).contains("partial: plain 30 B: reset;"));
    }
}
