//! The pages that measurements write, in Chromium: legible, light and dark, on a screen and on a telephone.

use crate::access_logs::made_log;
use crate::program::{has_measured, rejoin, scratch};
use std::path::Path;
use std::process::Command;

use rejoin_testkit::serve::Server;
use serde_json::Value;

/// Says what a reader would see of a page. Text needs a contrast of 4.5 to what is behind it, shapes one of 3 (WCAG 2.1,
/// 1.4.3 and 1.4.11).
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const parse = (c) => c.match(/[\d.]+/g).map(Number);
  const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const contrast = (a, b) => {
    const [low, high] = [light(parse(a)), light(parse(b))].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const opaque = (c) => { const [, , , a = 1] = parse(c); return a > 0.99; };
  const paper = getComputedStyle(document.body).backgroundColor;
  const behind = (e) => {
    if (e.classList.contains("on")) return getComputedStyle(e.previousElementSibling).fill;
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (opaque(colour)) return colour;
    }
    return paper;
  };
  let texts = 0, faults = [];
  const low = (what, e, ratio) => faults.push(`${what} ${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 90)}`);
  for (const e of document.querySelectorAll("main *")) {
    const style = getComputedStyle(e);
    if (e.closest("[hidden], title, style, script") || !e.getClientRects().length) continue;
    const own = [...e.childNodes].some((n) => n.nodeType == 3 && n.data.trim());
    const svg = e.closest("svg");
    if (own) {
      texts++;
      const ratio = contrast(svg ? style.fill : style.color, behind(e));
      if (ratio < 4.5) low("text", e, ratio);
      const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
      const px = parseFloat(style.fontSize) * scale;
      if (px < 9) low("size", e, px);
    }
    if (svg && e.matches("rect:not(.paper), polyline, circle")) {
      const colour = style.fill == "none" ? style.stroke : style.fill;
      const ratio = contrast(colour, paper);
      if (ratio < 3) low("shape", e, ratio);
    }
    if (e.matches(".scroll") && e.scrollWidth > e.clientWidth && e.tabIndex != 0) low("keyboard", e, 0);
  }
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) faults.push(`${root.scrollWidth} px wide`);
  parent.postMessage({ texts, faults, paper, width: innerWidth }, "*");
});
</script>
"#;

const FRAME: &str = r#"<!doctype html><body style="margin:0"><pre></pre><iframe src="page.html"
style="width:WIDTHpx;height:900px;border:0"></iframe><script>
addEventListener("message", (e) => document.querySelector("pre").textContent = JSON.stringify(e.data));
</script>"#;

/// Returns what a reader sees of a page in a window of this width.
fn seen(folder: &Path, page: &Path, width: u32, is_dark: bool) -> Value {
    let text = std::fs::read_to_string(page).expect("a page");
    std::fs::write(folder.join("page.html"), text + PROBE).expect("a page");
    let frame = folder.join("frame.html");
    std::fs::write(&frame, FRAME.replace("WIDTH", &width.to_string())).expect("a page");
    let scheme = if is_dark { 0 } else { 1 };
    let browser = Command::new("timeout")
        .args(["--kill-after=5", "120", "chromium", "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=4000", "--dump-dom"])
        .args(["--allow-file-access-from-files", "--window-size=1400,1000"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", folder.join("browser").display()))
        .arg(format!("file://{}", frame.display()))
        .env("HOME", folder)
        .output()
        .expect("chromium is installed: make test-all");
    assert!(browser.status.success(), "{}", String::from_utf8_lossy(&browser.stderr));
    let dom = String::from_utf8(browser.stdout).expect("UTF-8");
    let said = dom.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (said, _) = said.unwrap_or_else(|| panic!("no answer: {dom}"));
    let said = said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("no answer: {dom}"))
}

#[test]
#[ignore = "slow: needs Chromium; make test-all"]
fn pages_are_legible_light_and_dark_wide_and_narrow() {
    let folder = scratch("pages");
    let file = |name: &str| folder.join(name).display().to_string();
    let [cost, throughput, handshake, simulate, doctor, planned, captured] =
        ["cost", "throughput", "handshake", "simulate", "doctor", "plan", "capture"]
            .map(|name| file(&format!("{name}.html")));
    let capture = file("day.pcap");
    std::fs::write(&capture, crate::capture::of_a_day()).expect("a file");
    // It grows, so that there is a warning.
    let log = made_log(&folder, 4);
    // It keeps no sessions, so that there are findings.
    let server = Server::start(&["--resumption", "none"]);
    let examined = rejoin(&["doctor", &server.target, "--html", &doctor]);
    assert_eq!(examined.status.code(), Some(1), "{}", String::from_utf8_lossy(&examined.stderr));
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/paper-000.toml");
    let folder_name = folder.display().to_string();
    // What is measured does not matter; that the machine does not keep up shows the footnotes, too.
    let short = ["--devices", "2000", "--speedup", "3000", "--warm-up", "60", "--duration", "60"];
    let pages: [(&[&str], &[&str]); 7] = [
        (&["demo", "--folder", &folder_name], &short),
        (
            &["bench", "throughput", "--quick", "--saturation", "4000", "--folder", &folder_name],
            &["--html", &throughput, "--speedup", "300", "--resumption", "tickets,predictive"],
        ),
        (
            &["cost", "--sizes", "30,4KB,36KB,256KB", "--rounds", "1", "--round-duration", "50ms"],
            &["--html", &cost, "--tls", "1.3", "--cipher", "aes-gcm", "--cores", "1"],
        ),
        (&["bench", "handshake", "--quick", "--stack", "openssl"], &["--html", &handshake]),
        (&["simulate", "--plan", plan, "--capacities", "200,400"], &["--html", &simulate]),
        (&["capture", "--html", &captured], &[&capture]),
        (&["plan", "--log", &log, "--full-us", "900", "--resumed-us", "90"], &["--html", &planned]),
    ];
    for (words, more) in pages {
        let output = rejoin(&[words, more].concat());
        assert!(has_measured(&output), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut faults = Vec::new();
    for name in ["demo", "cost", "throughput", "handshake", "simulate", "doctor", "plan", "capture"]
    {
        let page = folder.join(name).with_extension("html");
        for (width, is_dark) in [(1_280, false), (1_280, true), (400, false), (400, true)] {
            let seen = seen(&folder, &page, width, is_dark);
            assert_eq!(seen["width"], width, "{seen}");
            assert!(seen["texts"].as_u64() > Some(20), "{name}: {seen}");
            assert_eq!(seen["paper"] == "rgb(255, 255, 255)", !is_dark, "{name}: {seen}");
            let its = seen["faults"].as_array().expect("a list");
            faults.extend(its.iter().map(|fault| format!("{name} {width} {is_dark}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
