"use strict";

// The sections of a shared cache.

const RETURNS = {
  overdue: "overdue",
  within_1_s: "within a second",
  within_10_s: "1 to 10 seconds",
  within_1_min: "10 seconds to a minute",
  within_10_min: "1 to 10 minutes",
  within_1_h: "10 minutes to an hour",
  later: "later",
  unknown: "not known",
  never: "not expected",
};

const COUNTS = [
  "sessions", "capacity_sessions", "evicted_overdue", "evicted_latest", "evicted_oldest",
  "evicted_source_share", "wanted_after_eviction", "refused_returns_later", "refused_source_share",
  "refused_too_large", "refused_expired", "hits", "rejected", "misses", "expired",
  "foreign_context", "forged", "stored", "predictions", "tickets_issued", "tickets_keyless",
  "tickets_known", "tickets_renewed", "tickets_unknown", "tickets_overdue", "lock_waits",
  "lock_timeouts", "locks_broken", "emptied",
];

let made_unix_s = null;

const handshakesOf = (stats) => ({ full: stats.full_handshakes, resumed: stats.resumed_handshakes });

function showSections(stats) {
  const made = new Date(1_000 * stats.created_unix_s).toLocaleString();
  showState(stats.name, stats.removed ? "gone" : "live", stats.removed ? "Removed" : `Made ${made}`);
  showRemoval(stats);
  write("since", "since it was made, or its counts reset");
  for (const name of COUNTS) write(name.replaceAll("_", "-"), grouped(stats[name]));
  write("bytes", bytes(stats.bytes));
  write("mean-prediction-error", duration(stats.mean_prediction_error_ms));
  showFill(stats);
  showReturns(stats.sessions_by_return);
}

function showRemoval(stats) {
  if (stats.removed) {
    const problem = stats.problem ? ` There is another, which cannot be opened: ${stats.problem}.` : "";
    notice(`This cache was removed. Servers that have it go on with it; nobody new can open it.${problem}`);
  } else if (stats.replaced_in_use) {
    notice("This name had another cache before. Servers that have it go on with it, and share nothing with the others: restart them.");
  } else if (made_unix_s !== null && made_unix_s !== stats.created_unix_s) {
    notice("The cache was removed and made anew. What is shown is the new one.");
  } else if (made_unix_s === null || element("notice").textContent.startsWith("This")) {
    notice("");
  }
  made_unix_s = stats.created_unix_s;
}

function showFill(stats) {
  const share = 100 * stats.sessions / stats.capacity_sessions;
  element("fill").replaceChildren(bar(share));
  element("fill").setAttribute("aria-label", `${share.toFixed(1)} % full`);
}

function showReturns(returns) {
  const all = sum(Object.values(returns));
  const most = Math.max(1, ...Object.values(returns));
  const rows = Object.entries(RETURNS).map(([name, label]) => {
    const chart = shape("svg", { "aria-hidden": "true" });
    chart.append(bar(100 * returns[name] / most));
    const row = tableRow([label, chart, grouped(returns[name]), percent(returns[name], all)]);
    row.className = name;
    row.children[1].className = "share";
    row.children[2].id = `returns-${name.replaceAll("_", "-")}`;
    return row;
  });
  element("returns").replaceChildren(...rows);
}

function duration(ms) {
  if (ms === null) return "–";
  if (ms < 1_000) return `${ms.toFixed(0)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms < 3_600_000 ? `${(ms / 60_000).toFixed(1)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}
