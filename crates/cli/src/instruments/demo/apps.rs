//! `rejoin demo --client`, and the apps that it starts.

use std::io::Read;

use anyhow::Context;
use rejoin_lab::Step;
use rejoin_lab::apps::{self, App, Row, Settings};
use serde_json::json;

use crate::instruments::progress;
use crate::terminal;

pub(super) fn run(arguments: &super::Arguments) -> anyhow::Result<()> {
    terminal::raise_descriptor_limit();
    let settings = Settings {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        directory: arguments.folder.clone(),
        apps: arguments.apps,
        services: arguments.services,
        seed: arguments.seed,
    };
    let json = arguments.json;
    // The apps and the manager are processes of their own.
    let runtime = crate::runtime(1)?;
    let outcome = runtime.block_on(async move {
        let bar = terminal::bar(0, "{prefix:16} {bar:30} {pos} of {len} apps");
        let progress = |Step { done, of, what }: &Step| {
            bar.set_prefix(what.clone());
            bar.set_length(*of as u64);
            bar.set_position(*done as u64);
        };
        let ended = |row: &Row| {
            if json {
                bar.suspend(|| terminal::print(&json!(row).to_string()));
            }
        };
        let outcome = apps::run(&settings, progress, ended, terminal::interrupted()).await;
        bar.finish_and_clear();
        outcome
    })?;
    if !json {
        terminal::print(&format!("{}{}", table(&outcome.rows), progress::notes(&outcome.ended)));
    }
    progress::whole(&outcome.ended, "interrupted", "rows")
}

fn table(rows: &[Row]) -> String {
    let head = ["sessions shared", "full", "resumed", "full %", "paper 004 %", "bytes", "ms"];
    let rows = rows.iter().map(|row| {
        vec![
            row.sharing.to_owned(),
            row.full.to_string(),
            row.resumed.to_string(),
            format!("{:.1}", row.full_percent),
            format!("{:.1}", row.paper_full_percent),
            format!("{:.0}", row.bytes),
            format!("{:.2}", row.first_byte_us / 1_000.0),
        ]
    });
    rejoin_report::table(&[0], head, rows)
}

/// Runs one app of the demonstration, whose task is read from standard input as JSON.
pub(crate) fn run_app() -> anyhow::Result<()> {
    let mut told = String::new();
    std::io::stdin().read_to_string(&mut told).context("standard input cannot be read")?;
    let app: App = serde_json::from_str(&told).context("standard input: not the task of an app")?;
    terminal::print_result(&json!(app.run()?).to_string())
}
