//! Reports: their contents, and the escaping of text from outside.

use rejoin_sim::report::{self, Error};
use rejoin_sim::{Cell, GroupCell, HitRates, Outcome, Rate};

fn rate(mean: f64, sd: f64) -> Option<Rate> {
    Some(Rate { mean, sd })
}

fn cell(policy: &str, capacity: u32, after_first_of_run: Option<Rate>) -> Cell {
    Cell {
        policy: policy.parse().expect("a policy"),
        capacity,
        seeds: 10,
        requests: 12_345.5,
        full_handshakes: 6_000.25,
        rates: HitRates {
            hit_all: rate(51.5, 0.25),
            hit_after_first_of_device: rate(65.7, 1.0),
            hit_after_first_of_run: after_first_of_run,
        },
        groups: Vec::new(),
    }
}

fn outcome() -> Outcome {
    Outcome {
        title: "Paper 000".to_owned(),
        seeds: 10,
        complete: true,
        cells: vec![
            cell("predictive", 600, rate(76.84, 0.4)),
            cell("predictive", 1_000, rate(98.4, 0.1)),
            cell("fifo", 600, rate(27.0, 12.0)),
            cell("fifo", 1_000, None),
        ],
    }
}

/// Makes an outcome with two groups, and fewer seeds than asked for.
fn interrupted(groups: [&str; 2]) -> Outcome {
    let mut outcome = outcome();
    outcome.complete = false;
    outcome.cells.truncate(1);
    let cell = &mut outcome.cells[0];
    cell.seeds = 3;
    let rates = HitRates { hit_all: rate(40.0, 2.0), ..cell.rates };
    cell.groups =
        groups.map(|name| GroupCell { name: name.to_owned(), requests: 6_172.75, rates }).into();
    outcome
}

#[test]
fn the_table_has_a_row_for_each_policy_and_size() {
    let table = "\
Paper 000: 10 seeds, hit rates in percent
 policy       sessions   all requests   after the first   after the first   requests
                                         of each device       of each run
─────────────────────────────────────────────────────────────────────────────────────
 predictive        600     51.5 ± 0.2        65.7 ± 1.0        76.8 ± 0.4     12,346
                 1,000     51.5 ± 0.2        65.7 ± 1.0        98.4 ± 0.1     12,346

 fifo              600     51.5 ± 0.2        65.7 ± 1.0       27.0 ± 12.0     12,346
                 1,000     51.5 ± 0.2        65.7 ± 1.0                 –     12,346";
    assert_eq!(report::table(&outcome()), table);
}

#[test]
fn the_table_shows_groups_and_what_is_missing() {
    let table = "\
Paper 000: 10 seeds, hit rates in percent
 policy       sessions   seeds   all requests   after the first   after the first   requests
                                                 of each device       of each run
─────────────────────────────────────────────────────────────────────────────────────────────
 predictive        600       3     51.5 ± 0.2        65.7 ± 1.0        76.8 ± 0.4     12,346
   honest                          40.0 ± 2.0        65.7 ± 1.0        76.8 ± 0.4      6,173
   liars\u{fffd}                          40.0 ± 2.0        65.7 ± 1.0        76.8 ± 0.4      6,173
incomplete: not every seed of every policy and size was played";
    assert_eq!(report::table(&interrupted(["honest", "liars\u{1b}"])), table);
}

#[test]
fn one_seed_has_no_deviation() {
    let mut outcome = outcome();
    outcome.seeds = 1;
    outcome.cells.truncate(1);
    outcome.cells[0].seeds = 1;
    let table = report::table(&outcome);
    assert!(table.starts_with("Paper 000: one seed,") && !table.contains('±'), "{table}");
    let page = report::html(&outcome).expect("a page");
    assert!(page.contains("600 sessions\n76.8 %</title>"));
}

#[test]
fn csv_has_a_line_for_each_cell_and_group() {
    let csv = "\
policy,capacity,group,seeds,requests,full_handshakes,hit_all_mean,hit_all_sd,\
hit_after_first_of_device_mean,hit_after_first_of_device_sd,hit_after_first_of_run_mean,\
hit_after_first_of_run_sd
predictive,600,,10,12345.5,6000.25,51.5,0.25,65.7,1,76.84,0.4
predictive,1000,,10,12345.5,6000.25,51.5,0.25,65.7,1,98.4,0.1
fifo,600,,10,12345.5,6000.25,51.5,0.25,65.7,1,27,12
fifo,1000,,10,12345.5,6000.25,51.5,0.25,65.7,1,,
";
    assert_eq!(report::csv(&outcome()), csv);
    let groups = report::csv(&interrupted(["honest, mostly", "liars"]));
    let lines: Vec<_> = groups.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "predictive,600,\"honest, mostly\",3,6172.75,,40,2,65.7,1,76.84,0.4",
            "predictive,600,liars,3,6172.75,,40,2,65.7,1,76.84,0.4",
        ]
    );
}

#[test]
fn the_picture_has_a_line_for_each_policy() {
    let page = report::html(&outcome()).expect("a page");
    for picture in ["wide", "narrow"] {
        let lines = displayed(&page, picture).matches("<polyline").count();
        assert_eq!(lines, 2, "{picture}");
    }
    // Every rate can be chosen; the most telling one is chosen at first.
    assert!(page.contains(r#"value="run" autocomplete="off" checked"#));
    assert_eq!(page.matches(r#"name="rate""#).count(), 3);
}

#[test]
fn the_picture_shows_the_rates_of_the_outcome() {
    let page = report::html(&outcome()).expect("a page");
    for picture in ["wide", "narrow"] {
        let points = points(displayed(&page, picture));
        let texts: Vec<&str> = points.iter().map(|point| point.text).collect();
        let expected = [
            "predictive\n600 sessions\n76.8 ± 0.4 %",
            "predictive\n1,000 sessions\n98.4 ± 0.1 %",
            "fifo\n600 sessions\n27.0 ± 12.0 %",
        ];
        assert_eq!(texts, expected);
        let (floor, ceiling) = (height(&page, picture, 0), height(&page, picture, 100));
        for (point, mean) in points.iter().zip([76.84, 98.4, 27.0]) {
            let read = (floor - point.y) / (floor - ceiling) * 100.0;
            assert!((read - mean).abs() < 0.03, "{read} for {}", point.text);
        }
        // The axis begins at 0: 600 of 1,000.
        let left = points[0].x - 1.5 * (points[1].x - points[0].x);
        assert!((left - 38.0).abs() < 0.5, "{left}");
    }
}

#[test]
fn the_table_of_the_page_has_the_figures() {
    let page = report::html(&outcome()).expect("a page");
    let row = "<tr><th scope=\"row\">fifo<td>600<td>27.0 ± 12.0<td>65.7 ± 1.0<td>51.5 ± 0.2<td>12,346<td>6,000\n";
    assert!(page.contains(row));
    let page = report::html(&interrupted(["honest", "liars"])).expect("a page");
    assert!(page.contains("Incomplete: ") && page.contains("<th scope=\"col\">seeds"));
    assert!(page.contains("<tr class=\"group\"><th scope=\"row\">liars<td><td><td>76.8 ± 0.4"));
    assert!(page.contains("76.8 ± 0.4 %\n3 of 10 seeds</title>"));
}

#[test]
fn each_group_can_be_chosen() {
    let page = report::html(&interrupted(["honest", "liars"])).expect("a page");
    assert_eq!(page.matches(r#"name="group""#).count(), 3);
    // Of three rates and of all clients or one of two groups, in either format.
    assert_eq!(page.matches(r#"<g class="view""#).count(), 2 * 3 * 3);
    assert_eq!(page.matches(r#" data-group="0">"#).count(), 2);
}

#[test]
fn text_from_outside_stays_text() {
    let hostile =
        "\"'><img src=x onerror=alert(1)></title></script><script>alert(1)</script>&\u{1}";
    let mut outcome = interrupted([hostile, "</svg><b>"]);
    outcome.title = hostile.to_owned();
    let page = report::html(&outcome).expect("a page");
    for forbidden in ["<img", "<script>alert", "<b>\n", "</svg><b>", "\u{1}", "'>&"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
    assert!(page.contains("<h1>&quot;&#39;&gt;&lt;img src=x onerror=alert(1)&gt;&lt;/title&gt;"));
    assert!(page.contains("&amp;\u{fffd}</h1>"));
    assert!(
        page.contains(
            r#"data-file="img-src-x-onerror-alert-1-title-script-script-alert-1-script""#
        )
    );
}

#[test]
fn the_page_asks_nobody() {
    let page = report::html(&interrupted(["honest", "liars"])).expect("a page");
    let namespace = "http://www.w3.org/2000/svg";
    for scheme in ["http://", "https://", "//www", "url(", "@import", "src=", "fetch("] {
        assert!(!page.replace(namespace, "").contains(scheme), "{scheme}");
    }
    assert_eq!(page.matches("href=").count(), 1, "the empty icon");
    assert!(page.contains("content=\"default-src 'none'; "));
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let empty = Outcome { cells: Vec::new(), ..outcome() };
    assert_eq!(report::html(&empty), Err(Error::Empty));
    let mut nothing = outcome();
    for cell in &mut nothing.cells {
        cell.rates = HitRates {
            hit_all: None,
            hit_after_first_of_device: None,
            hit_after_first_of_run: None,
        };
    }
    assert_eq!(report::html(&nothing), Err(Error::Empty));
    for mean in [f64::NAN, -0.1, 100.1] {
        let mut wrong = outcome();
        wrong.cells[2].rates.hit_all = rate(mean, 0.0);
        let error = report::html(&wrong).expect_err("no percentage").to_string();
        assert!(error.starts_with("fifo at 600 sessions: "), "{error}");
    }
}

struct Point<'a> {
    text: &'a str,
    x: f64,
    y: f64,
}

/// Returns one of the two pictures.
fn picture<'a>(page: &'a str, class: &str) -> &'a str {
    let start = page.find(&format!("class=\"{class}\"")).expect("a picture");
    let end = page[start..].find("</svg>").expect("its end");
    &page[start..start + end]
}

/// Returns the view that is displayed at first.
fn displayed<'a>(page: &'a str, class: &str) -> &'a str {
    let views = picture(page, class).split("<g class=\"view\" ").skip(1);
    let mut displayed = views.filter(|view| {
        let (attributes, _) = view.split_once('>').expect("a tag");
        !attributes.contains("display")
    });
    let view = displayed.next().expect("one view");
    assert!(displayed.next().is_none(), "one view only");
    view
}

fn points(view: &str) -> Vec<Point<'_>> {
    let points = view.split("<g class=\"point\" transform=\"translate(").skip(1);
    points
        .map(|point| {
            let (position, rest) = point.split_once(")\"><title>").expect("a position");
            let (x, y) = position.split_once(' ').expect("two coordinates");
            let (text, _) = rest.split_once("</title>").expect("a text");
            Point { text, x: x.parse().expect("a number"), y: y.parse().expect("a number") }
        })
        .collect()
}

/// Returns the height of the grid's line for so many percent.
fn height(page: &str, class: &str, percent: u8) -> f64 {
    let label = format!(">{percent}</text>");
    let picture = picture(page, class);
    let before = &picture[..picture.find(&label).expect("a label")];
    let line = &before[before.rfind("d=\"M").expect("a line")..];
    let y = line.split([' ', 'H']).nth(1).expect("a height");
    y.parse().expect("a number")
}
