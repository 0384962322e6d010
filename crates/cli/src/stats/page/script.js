"use strict";

// Fetches the counters once a second and shows them, as text and as attributes of shapes, never as
// markup. sections.js has the parts for a cache or a manager: showSections, handshakesOf.

const POLL_MS = 1_000;
const PATIENCE_MS = 5_000;
// The age in seconds that counts as now.
const NOW_S = 10;
// A row of the table beside the chart.
const ROW_S = 10;

let shown = null;

const element = (id) => document.getElementById(id);
const grouped = new Intl.NumberFormat("en").format;
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–");

// Writes only a different text, so that selections stay, and screen readers read it once.
function write(id, text) {
  if (element(id).textContent !== text) element(id).textContent = text;
}

async function poll() {
  try {
    const answer = await fetch("stats.json", { signal: AbortSignal.timeout(PATIENCE_MS) });
    show(await answer.json());
  } catch {
    document.body.className = "silent";
    write("state", "No answer: rejoin stats has ended, or cannot be reached. What is shown is old.");
  }
  setTimeout(poll, POLL_MS);
}

function show(stats) {
  shown = stats;
  showSections(stats);
  const { full, resumed } = handshakesOf(stats);
  write("full-handshakes", grouped(full));
  write("resumed-handshakes", grouped(resumed));
  showShares(stats.history, full, resumed);
  showRows(stats.history);
  draw(stats.history);
}

// The subject of the page, and its state: "live" or "gone".
function showState(name, life, text) {
  document.title = `${name} · Rejoin`;
  write("name", name);
  document.body.className = life;
  write("state", text);
}

function notice(text) {
  element("notice").hidden = text === "";
  write("notice", text);
}

function showShares(history, full, resumed) {
  const [handshakes, were] = ["handshakes", "resumed"].map((of) => sum(history[of].slice(-NOW_S)));
  write("resumed-now", percent(were, handshakes));
  const some = `${grouped(were)} of ${grouped(handshakes)} in the last ten seconds`;
  write("resumed-now-note", handshakes > 0 ? some : "no handshakes in the last ten seconds");
  write("resumed-percent", percent(resumed, full + resumed));
  write("resumed-percent-note", `of ${grouped(full + resumed)} handshakes`);
}

// The history in steps of ten seconds, newest first.
function showRows({ handshakes, resumed }) {
  const rows = [];
  for (let end = handshakes.length; end > 0; end -= ROW_S) {
    const [of, were] = [handshakes, resumed].map((counts) => sum(counts.slice(Math.max(0, end - ROW_S), end)));
    const ago = handshakes.length - end;
    const label = `${ago} to ${Math.min(handshakes.length, ago + ROW_S)}`;
    rows.push(tableRow([label, grouped(of), grouped(were), percent(were, of)]));
  }
  element("rate-rows").replaceChildren(...rows);
}

function tableRow([head, ...cells]) {
  const row = document.createElement("tr");
  const first = document.createElement("th");
  first.scope = "row";
  first.append(head);
  row.append(first);
  for (const cell of cells) row.insertCell().append(cell);
  return row;
}

// Two areas, one above the other: all handshakes and the resumed ones.
function draw({ handshakes, resumed, most_s }) {
  const chart = element("rate");
  const [width, height] = [chart.clientWidth, chart.clientHeight];
  const [left, bottom, top] = [44, 20, 8];
  const peak = Math.max(4, rounded(Math.max(0, ...handshakes)));
  const x = (second) => left + (width - left) * (most_s - handshakes.length + second + 1) / most_s;
  const y = (count) => height - bottom - (height - bottom - top) * count / peak;
  const line = (counts) => counts.map((count, second) => `${x(second).toFixed(1)},${y(count).toFixed(1)}`).join("L");
  const area = (counts) => `M${x(0).toFixed(1)},${y(0)}L${line(counts)}L${x(counts.length - 1).toFixed(1)},${y(0)}Z`;
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const at = y(part * peak);
    parts.push(shape("line", { class: "grid", x1: left, x2: width, y1: at, y2: at }));
    parts.push(label(left - 8, at + 4, "end", grouped(part * peak)));
  }
  for (const minutes of [5, 4, 3, 2, 1]) {
    parts.push(label(x(handshakes.length - 1 - 60 * minutes), height - 4, minutes === 5 ? "start" : "middle", `−${minutes} min`));
  }
  parts.push(label(width, height - 4, "end", "now"));
  if (handshakes.length > 1) {
    parts.push(shape("path", { class: "all", d: area(handshakes) }));
    parts.push(shape("path", { class: "edge", d: `M${line(handshakes)}` }));
    parts.push(shape("path", { class: "resumed", d: area(resumed) }));
    parts.push(shape("path", { class: "edge of-resumed", d: `M${line(resumed)}` }));
  }
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.setAttribute("aria-label", summary(handshakes, resumed));
  chart.replaceChildren(...parts);
}

function summary(handshakes, resumed) {
  const [all, were] = [sum(handshakes), sum(resumed)];
  return `In ${handshakes.length} seconds ${grouped(all)} handshakes; ${grouped(were)} were resumed.`;
}

// The next of 1, 2, 4, 6, 8, 10 times a power of ten: half of it is a whole number from 2 on.
function rounded(count) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, count)));
  return power * [1, 2, 4, 6, 8, 10].find((step) => count <= step * power);
}

// From a part on, in percent.
function bar(share, from = 0) {
  return shape("rect", { x: `${from.toFixed(2)}%`, width: `${Math.min(100, share).toFixed(2)}%`, height: "100%", rx: 2 });
}

function label(x, y, anchor, text) {
  const made = shape("text", { x, y, "text-anchor": anchor, "aria-hidden": "true" });
  made.textContent = text;
  return made;
}

function shape(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  const scaled = count / 1024 ** power;
  return `${power === 0 ? scaled : scaled.toFixed(scaled < 10 ? 1 : 0)} ${units[power]}`;
}

addEventListener("resize", () => shown && draw(shown.history));
poll();
