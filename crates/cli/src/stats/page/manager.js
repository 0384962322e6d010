"use strict";

// The sections of the TLS manager.

// The rows of programs and services shown here; /metrics has all of them.
const MOST_ROWS = 20;

const handshakesOf = (stats) => stats.handshakes;

function showSections(stats) {
  showState("TLS manager", stats.problem ? "gone" : "live", stats.problem ? "It does not answer" : `At ${stats.socket}`);
  notice(stats.problem ? `What is shown is old: ${stats.problem}.` : "");
  write("since", "since it started");
  for (const name of ["sessions", "open"]) write(name, grouped(stats[name]));
  for (const name of ["across_names", "refused", "failed", "early_data"]) {
    write(name.replaceAll("_", "-"), grouped(stats.handshakes[name]));
  }
  write("session-bytes", bytes(stats.session_bytes));
  for (const of of ["programs", "services"]) showNames(of, stats[of]);
  const went = stats.directly.map(({ why, times }) => tableRow([why.replaceAll("_", " "), grouped(times)]));
  element("directly").replaceChildren(...went);
  element("directly-section").hidden = went.length === 0;
}

function showNames(of, shares) {
  const all = ({ full, resumed }) => full + resumed;
  const most = Math.max(1, ...shares.map(({ handshakes }) => all(handshakes)));
  const rows = shares.slice(0, MOST_ROWS).map(({ name, handshakes }) => {
    const { full, resumed, failed } = handshakes;
    const chart = shape("svg", { "aria-hidden": "true" });
    const [of_resumed, of_full] = [resumed, full].map((count) => 100 * count / most);
    chart.append(bar(of_resumed), bar(of_full, of_resumed));
    chart.lastChild.setAttribute("class", "full");
    const counts = [grouped(full), grouped(resumed), percent(resumed, all(handshakes)), grouped(failed)];
    const row = tableRow([name, chart, ...counts]);
    row.children[1].className = "share";
    return row;
  });
  element(of).replaceChildren(...rows);
  const more = shares.length - rows.length;
  element(`${of}-more`).hidden = more === 0;
  write(`${of}-more`, `${grouped(more)} more are at metrics.`);
}
