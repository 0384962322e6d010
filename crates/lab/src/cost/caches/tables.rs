//! The outcome for a terminal, in the layout of the paper's tables, with its figures beside ours.

use rejoin_report::{Table, distinct};

use super::super::paper::{CacheMeasured, Measured, Pair};
use super::{Outcome, PARTS, Row, Size, Traced};

/// Modes in the order of columns.
const COLUMNS: [&str; 3] = ["full", "resumed", "plain"];
const NONE: &str = "–";
const PAPER: &str = "paper 001, one processor";
/// The L1 caches of the paper's processor.
const PAPER_L1_BYTES: u32 = 16 << 10;
/// Which Table 5 is relative to.
const PAPER_LEAST_BYTES: u32 = 512 << 10;

/// All tables, and what is to be known of them.
pub fn text(outcome: &Outcome) -> String {
    let tables: Vec<String> = tables(outcome).iter().map(Table::text).collect();
    let parts = std::iter::once(about(outcome)).chain(tables).chain(notes(outcome));
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Returns what the tables are of.
pub(super) fn about(outcome: &Outcome) -> String {
    let Outcome { line_bytes, l1_ways, l2_ways, valgrind, .. } = outcome;
    format!(
        "By {valgrind}: user space only, lines of {line_bytes} bytes, {l1_ways} of them in a set of L1 and \
         {l2_ways} in one of L2. \"full\" is the paper's \"with SSL\", \"w/o\" its \"without\"."
    )
}

/// Returns all tables that have rows.
pub(super) fn tables(outcome: &Outcome) -> Vec<Table> {
    let Outcome { l1_bytes, l2_bytes, .. } = outcome;
    let tables = [
        (
            format!(
                "Tables 3 and 4, behind L1 of {l1_bytes}: path length in thousands of instructions, L2 misses in \
                 percent of L1's and for each thousand instructions (MPI)"
            ),
            by_second(outcome),
        ),
        (
            format!(
                "Table 5, behind L1 of {l1_bytes}: L2 misses per transaction, relative to those with 512 KB or the \
                 smallest here"
            ),
            relative(outcome),
        ),
        (
            format!(
                "L1 misses by its size, before L2 of {l2_bytes}, in percent of accesses (Table 2's columns)"
            ),
            by_first(outcome),
        ),
        ("The same by our simulator from a trace".to_owned(), traced_first(outcome)),
        (
            "Table 6: branches, conditional or indirect, in percent of instructions, and those of them that \
             cachegrind's predictor gets wrong"
                .to_owned(),
            branches(outcome),
        ),
        (
            format!(
                "§5, behind L1 of {l1_bytes}: L2 misses in percent of L1's, alone, with L2′ of a part of its size, \
                 and with an L2 larger by as much"
            ),
            auxiliary(outcome),
        ),
        (
            format!(
                "Misses per transaction with L1 of {l1_bytes}, by our simulator from a trace and by cachegrind"
            ),
            agreement(outcome),
        ),
    ];
    let tables = tables.into_iter().filter(|(_, (_, rows))| !rows.is_empty());
    tables.map(|(title, (head, rows))| Table { title, text: &[0, 1, 2], head, rows }).collect()
}

/// Returns notes on the figures.
pub(super) fn notes(outcome: &Outcome) -> Vec<String> {
    let cut = outcome.ended.cut("interrupted, or out of time").into_iter();
    cut.map(|why| format!("partial: {why}; these are the figures so far")).collect()
}

type Untitled = (Vec<String>, Vec<Vec<String>>);

/// The heads of a table: those of its first columns, divided by bars, and three of each figure.
fn head(start: &str, figures: &[&str]) -> Vec<String> {
    let of_modes = |what| ["full", "resumed", "w/o"].map(|mode| format!("{what} {mode}"));
    let figures = figures.iter().flat_map(of_modes).map(|head| head.trim_start().to_owned());
    start.split('|').map(str::to_owned).chain(figures).collect()
}

/// A kind of TLS; where there is none, plain HTTP alone.
type Tls = [Option<&'static str>; 2];

pub(super) fn kinds(outcome: &Outcome) -> Vec<Tls> {
    let rows = outcome.cells.iter().map(|row| [row.kind.tls, row.kind.key]);
    let all = rows.chain(outcome.traces.iter().map(|row| [row.kind.tls, row.kind.key]));
    let mut kinds = distinct(all);
    if kinds.len() > 1 {
        kinds.retain(|kind| kind[0].is_some());
    }
    kinds
}

pub(super) fn name([tls, key]: Tls) -> String {
    let name = |tls| format!("TLS {tls} {}", key.unwrap_or(NONE));
    tls.map_or_else(|| "no TLS".to_owned(), name)
}

/// Full, resumed and plain of one size before one pair of caches.
pub(super) fn columns(outcome: &Outcome, kind: Tls, (size, caches): Place) -> [Option<&Row>; 3] {
    COLUMNS.map(|mode| {
        let of_kind = |row: &Row| mode == "plain" || [row.kind.tls, row.kind.key] == kind;
        let mut rows = outcome.cells.iter().filter(|row| row.kind.mode == mode && of_kind(row));
        rows.find(|row| row.kind.size_bytes == size && (row.l1_bytes, row.l2_bytes) == caches)
    })
}

/// A size of responses, and L1 and L2.
pub(super) type Place = (Size, (Size, Size));

/// Sizes of responses with the pairs of caches that were measured of them.
pub(super) fn places(outcome: &Outcome) -> Vec<Place> {
    let rows = outcome.cells.iter().map(|row| (row.kind.size_bytes, (row.l1_bytes, row.l2_bytes)));
    let mut places = distinct(rows);
    places.sort();
    places
}

/// The places that differ in L2 alone, one for each L2.
pub(super) fn behind_first(outcome: &Outcome) -> Vec<Place> {
    let mut places = places(outcome);
    places.retain(|(_, (l1, _))| *l1 == outcome.l1_bytes);
    places
}

/// The places that differ in L1 alone, one for each L1.
pub(super) fn compared(outcome: &Outcome) -> Vec<Place> {
    let mut places = places(outcome);
    places.retain(|(_, (_, l2))| *l2 == outcome.l2_bytes);
    places
}

/// The paper's figures, if L1 is as large as its processor's.
fn paper_of((size, (l1, l2)): Place) -> Option<CacheMeasured> {
    CacheMeasured::of(size.bytes(), l2.bytes()).filter(|_| l1.bytes() == PAPER_L1_BYTES)
}

/// The figures of a row: of full, resumed and plain transactions.
type Figures = Vec<[String; 3]>;

/// The rows of each place: the paper's, where it has one, and one for each kind of TLS.
fn beside_paper(
    outcome: &Outcome,
    places: Vec<Place>,
    start: impl Fn(Place) -> Vec<String>,
    paper: impl Fn(Place) -> Option<Figures>,
    ours: impl Fn(Tls, Place) -> Figures,
) -> Vec<Vec<String>> {
    let row = |place, name: String, figures: Figures| {
        start(place).into_iter().chain([name]).chain(figures.concat()).collect()
    };
    let mut rows = Vec::new();
    for place in places {
        rows.extend(paper(place).map(|figures| row(place, PAPER.to_owned(), figures)));
        let kinds = kinds(outcome).into_iter();
        rows.extend(kinds.map(|kind| row(place, name(kind), ours(kind, place))));
    }
    rows
}

fn by_second(outcome: &Outcome) -> Untitled {
    let start = |(size, (_, l2)): Place| vec![size.to_string(), l2.to_string()];
    let paper = |place| {
        let CacheMeasured { path_length, l2_misses, .. } = paper_of(place)?;
        let path_length = beside(path_length, |figure| format!("{figure:.0}"));
        Some(vec![path_length, beside(l2_misses, |figure| format!("{figure:.1} %")), none()])
    };
    let ours = |kind, place| {
        let ours = columns(outcome, kind, place);
        vec![
            each(ours, |row| format!("{:.0}", row.instructions / 1e3)),
            each(ours, |row| format!("{:.1} %", row.l2_percent)),
            each(ours, |row| format!("{:.3}", row.mpi * 1e3)),
        ]
    };
    let rows = beside_paper(outcome, behind_first(outcome), start, paper, ours);
    (head("size|L2|", &["path", "L2 MR", "MPI ‰"]), rows)
}

fn relative(outcome: &Outcome) -> Untitled {
    let head = head("size|L2|", &["", "misses"]);
    let mut places = behind_first(outcome);
    let mut seconds = places.iter().map(|(_, (_, l2))| *l2);
    let papers = seconds.clone().find(|size| size.bytes() == PAPER_LEAST_BYTES);
    let Some(least) = papers.or_else(|| seconds.next()) else { return (head, Vec::new()) };
    places.retain(|(_, (_, l2))| *l2 != least);
    let start = |(size, (_, l2)): Place| vec![size.to_string(), l2.to_string()];
    let paper = |place| {
        let relative = paper_of(place)?.relative.filter(|_| least.bytes() == PAPER_LEAST_BYTES)?;
        Some(vec![beside(relative, |figure| format!("{figure:.3}")), none()])
    };
    let ours = |kind, (size, (l1, l2)): Place| {
        let base = columns(outcome, kind, (size, (l1, least)));
        let ours = columns(outcome, kind, (size, (l1, l2)));
        let ratio = |mode: usize| {
            let (ours, base) = ours[mode].zip(base[mode])?;
            (base.l2_misses > 0.0).then(|| format!("{:.3}", ours.l2_misses / base.l2_misses))
        };
        let ratios = [0, 1, 2].map(|mode| ratio(mode).unwrap_or_else(|| NONE.to_owned()));
        vec![ratios, each(ours, |row| format!("{:.0}", row.l2_misses))]
    };
    (head, beside_paper(outcome, places, start, paper, ours))
}

fn by_first(outcome: &Outcome) -> Untitled {
    let start = |(size, (l1, _)): Place| vec![size.to_string(), l1.to_string()];
    let paper = |(size, (l1, _)): Place| {
        let paper = Measured::of(size.bytes()).filter(|_| l1.bytes() == PAPER_L1_BYTES)?;
        Some(paper.misses[..2].iter().map(|pair| beside(*pair, percent)).collect())
    };
    let ours = |kind, place| {
        let ours = columns(outcome, kind, place);
        vec![each(ours, |row| percent(row.l1i_percent)), each(ours, |row| percent(row.l1d_percent))]
    };
    let rows = beside_paper(outcome, compared(outcome), start, paper, ours);
    (head("size|L1|", &["inst MR", "data MR"]), rows)
}

/// Before one pair of caches: no cache bears on branches.
fn branches(outcome: &Outcome) -> Untitled {
    let mut places = places(outcome);
    places.dedup_by_key(|(size, _)| *size);
    let paper = |(size, _): Place| {
        let Measured { branches, .. } = Measured::of(size.bytes())?;
        Some(branches.map(|pair| beside(pair, |part| percent(part * 100.0))).to_vec())
    };
    let ours = |kind, place| {
        let ours = columns(outcome, kind, place);
        let mispredicted = each(ours, |row| percent(row.mispredicted_percent));
        vec![each(ours, |row| percent(row.branch_percent)), mispredicted]
    };
    let start = |(size, _): Place| vec![size.to_string()];
    let rows = beside_paper(outcome, places, start, paper, ours);
    (head("size|", &["branches", "predicted wrong"]), rows)
}

fn traced_first(outcome: &Outcome) -> Untitled {
    let rows = outcome.traces.iter().flat_map(|row| {
        row.l1.iter().map(move |l1| {
            let mut cells = start(row);
            cells.extend([l1.bytes.to_string(), percent(l1.i_percent), percent(l1.d_percent)]);
            cells.extend([l1.i_misses, l1.d_misses].map(|misses| format!("{misses:.0}")));
            cells
        })
    });
    let head = head("size||mode|L1|inst MR|data MR|inst misses|data misses", &[]);
    (head, rows.collect())
}

fn auxiliary(outcome: &Outcome) -> Untitled {
    let mut head = head("size||mode|L2|alone", &[]);
    head.extend(PARTS.iter().flat_map(|part| [format!("L2′ 1/{part}"), "larger".to_owned()]));
    let rows = outcome.traces.iter().flat_map(|row| {
        row.l2.iter().map(move |l2| {
            let mut cells = start(row);
            cells.extend([l2.bytes.to_string(), percent(l2.percent)]);
            let both = l2.auxiliary.iter().flat_map(|one| [one.percent, one.larger_percent]);
            cells.extend(both.map(percent));
            cells
        })
    });
    (head, rows.collect())
}

fn agreement(outcome: &Outcome) -> Untitled {
    let mut rows = Vec::new();
    for traced in &outcome.traces {
        let Some(l1) = traced.l1.first() else { continue };
        for l2 in &traced.l2 {
            let same = |row: &&Row| {
                row.kind == traced.kind && (row.l1_bytes, row.l2_bytes) == (l1.bytes, l2.bytes)
            };
            let Some(row) = outcome.cells.iter().find(same) else { continue };
            let mut cells = start(traced);
            cells.push(l2.bytes.to_string());
            let pairs = [
                [traced.instructions, row.instructions],
                [l1.i_misses, row.l1i_misses],
                [l1.d_misses, row.l1d_misses],
                [l2.misses, row.l2_misses],
            ];
            cells.extend(pairs.as_flattened().iter().map(|figure| format!("{figure:.0}")));
            rows.push(cells);
        }
    }
    let pairs = "instructions|cachegrind|L1 inst|cachegrind|L1 data|cachegrind|L2|cachegrind";
    (head(&format!("size||mode|L2|{pairs}"), &[]), rows)
}

fn start(row: &Traced) -> Vec<String> {
    vec![
        row.kind.size_bytes.to_string(),
        name([row.kind.tls, row.kind.key]),
        row.kind.mode.to_owned(),
    ]
}

fn none() -> [String; 3] {
    [NONE; 3].map(str::to_owned)
}

/// The paper's figures with SSL and without; it resumed nothing.
fn beside([with, without]: Pair, show: impl Fn(f64) -> String) -> [String; 3] {
    [show(with), NONE.to_owned(), show(without)]
}

fn each(rows: [Option<&Row>; 3], show: impl Fn(&Row) -> String) -> [String; 3] {
    rows.map(|row| row.map_or_else(|| NONE.to_owned(), &show))
}

fn percent(figure: f64) -> String {
    format!("{figure:.2} %")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::simulator::Tally;
    use super::super::{Misses, Mode, Settings};
    use super::*;
    use crate::Error;
    use crate::experiment::Turns;
    use rejoin_serve::{KeyType, Versions};

    /// Two transactions of each kind, of 30 bytes: figures grow with the mode, and shrink with the cache.
    pub(in super::super) fn made() -> Outcome {
        made_with(["16KB", "32KB"])
    }

    /// The same with these L1 caches.
    fn made_with(first: [&str; 2]) -> Outcome {
        let size = |text: &str| text.parse::<Size>().expect(text);
        let settings = Settings {
            program: "rejoin".into(),
            sizes: vec![size("30")],
            modes: vec![Mode::Plain, Mode::Full, Mode::Resumed],
            versions: vec![Versions::Tls13],
            key: KeyType::Rsa2048,
            first: first.map(size).to_vec(),
            second: vec![size("512KB"), size("2MB")],
            traced_second: vec![size("512KB"), size("1MB")],
            line_bytes: 32,
            transactions: 2,
            traced: 2,
            jobs: 1,
            longest: std::time::Duration::MAX,
        };
        let outcome = Outcome::begun(&settings, "valgrind-3.19.0".to_owned());
        let mut outcome = outcome.expect("possible");
        let all = settings.services().into_iter().flat_map(|(_, cells)| cells);
        for (at, cell) in all.enumerate() {
            let times = at as u64 + 1;
            for (l1, l2) in settings.pairs() {
                let without = Misses { instructions: 7, ..Misses::default() };
                let with = Misses {
                    instructions: 7 + 2_000_000 * times,
                    data: 1_000_000,
                    first_instructions: 400_000_000 / u64::from(l1.bytes()),
                    first_data: 800_000_000 / u64::from(l1.bytes()),
                    second: 2_000_000_000 / u64::from(l2.bytes()),
                    branches: 500_000,
                    mispredicted: 50_000,
                };
                outcome.cells.push(Row::of(&cell, (l1, l2), 2, (without, with)));
            }
            let second = (0..18).map(|one| 4_000 - 100 * one).collect();
            let first = vec![[10_000, 40_000], [5_000, 20_000]];
            let tally = Tally { instructions: 2_000_000, data: 1_000_000, first, second };
            outcome.traces.push(Traced::of(&settings, &cell, 2, &tally));
        }
        let mut turns = Turns::unwatched(1);
        turns.run([0], &AtomicBool::new(false), |_| {}, |_, _| Ok(Some(())));
        outcome.ended(turns).expect("it did not fail")
    }

    #[test]
    fn ours_stand_beside_the_papers() {
        let text = text(&made());
        let tables: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(tables.len(), 8, "{text}");
        let line = |table: usize, words: &[&str]| {
            let mut lines = tables[table].lines();
            let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
            found.unwrap_or_else(|| panic!("{words:?}: {text}")).to_owned()
        };
        for (words, figures) in [
            (["512 KB", PAPER], ["714", "49", "16.7 %", "5.0 %"]),
            (["2 MB", PAPER], ["734", "49", "12.1 %", "1.9 %"]),
            (["512 KB", "TLS 1.3"], ["2000", "3000", "1000", "5.2 %"]),
        ] {
            let line = line(1, &words);
            assert!(figures.iter().all(|figure| line.contains(figure)), "{line}");
        }
        assert!(line(2, &["2 MB", PAPER]).contains("0.601"), "{text}");
        assert!(line(2, &["2 MB", "TLS 1.3"]).contains("0.250"), "{text}");
        assert!(line(3, &["16 KB", PAPER]).contains("0.93 %"), "{text}");
        assert!(line(3, &["32 KB", "TLS 1.3"]).contains("2.44 %"), "{text}");
        assert!(!tables[3].contains("512 KB"), "{text}");
        assert!(line(4, &["full", "32 KB"]).contains("0.25 %"), "{text}");
        // 4,000 of 50,000; the auxiliary after it, the larger one after that.
        assert!(line(5, &[PAPER]).contains("11.60 %"), "{text}");
        assert!(line(5, &["TLS 1.3"]).contains("12.50 %"), "{text}");
        let auxiliary = line(6, &["full", "512 KB"]);
        for figure in ["8.00 %", "7.80 %", "7.60 %", "6.40 %"] {
            assert!(auxiliary.contains(figure), "{figure}: {auxiliary}");
        }
        assert!(line(7, &["full", "512 KB"]).contains("1000000"), "{text}");
    }

    #[test]
    fn what_is_partial_says_so() {
        let mut outcome = made();
        assert!(!text(&outcome).contains("partial"));
        outcome.ended.complete = false;
        outcome.cells.truncate(1);
        outcome.traces.clear();
        let told = text(&outcome);
        assert!(told.contains("partial: interrupted") && !told.contains("§5"), "{told}");
        outcome.ended.failure = Some("TLS, 30 B: trace: no more memory".to_owned());
        let told = text(&outcome);
        assert!(told.contains("partial: TLS, 30 B: trace: no more memory;"), "{told}");
    }

    #[test]
    fn tables_are_of_the_first_first_level_and_name_it() {
        let told = text(&made_with(["64KB", "16KB"]));
        let tables: Vec<&str> = told.split("\n\n").collect();
        for at in [1, 2, 6, 7] {
            assert!(tables[at].contains("L1 of 64 KB"), "{told}");
        }
        // Where L1 is not the paper's, the paper has nothing to say.
        assert!(!tables[1].contains(PAPER) && !tables[2].contains(PAPER), "{told}");
        assert!(tables[3].contains("L2 of 2 MB") && tables[3].contains(PAPER), "{told}");
    }

    #[test]
    fn a_failure_leaves_what_was_measured() {
        let mut outcome = made();
        let failed = || {
            let mut turns = Turns::unwatched(1);
            let failure = Error::Settings("no more memory");
            let mut failure = Some(failure);
            turns.run(
                [0],
                &AtomicBool::new(false),
                |_| {},
                |_, _| failure.take().map_or(Ok(Some(())), Err),
            );
            turns
        };
        let partial = outcome.clone().ended(failed()).expect("something was measured");
        assert!(
            !partial.ended.complete && partial.ended.failure.is_some() && !partial.cells.is_empty()
        );
        outcome.cells.clear();
        assert!(!outcome.clone().ended(failed()).expect("a trace").ended.complete);
        outcome.traces.clear();
        let error = outcome.ended(failed()).expect_err("nothing was measured").to_string();
        assert!(error.contains("no more memory"), "{error}");
    }
}
