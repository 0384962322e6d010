//! The `rejoin` command: arguments become settings, and each subcommand is one library call.
//!
//! Exit codes: 0 done, 1 failed, 2 misused. Errors are one line that names cause and remedy.

#![forbid(unsafe_code)]

mod arguments;
mod arrivals;
mod beside;
mod capture;
mod cluster;
mod connect;
#[cfg(feature = "lab")]
mod instruments;
mod keys;
mod manager;
mod plan;
mod process;
mod run;
mod serve;
mod simulate;
mod sizes;
mod stats;
mod store;
mod terminal;
mod trace_file;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// Rejoin saves TLS handshakes: a session cache that knows which clients come back, and when.
#[derive(Debug, Parser)]
#[command(name = "rejoin", version, max_term_width = 100, subcommand_required = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "lab")]
    /// Compare every way of resuming on one recorded population: a minute, a table, two charts
    Demo(instruments::demo::Arguments),
    #[cfg(feature = "lab")]
    /// Measure what resumption is worth to a server, as the paper did
    Bench(instruments::bench::Arguments),
    /// Serve HTTPS with a choice of TLS library and of resumption
    Serve(Box<serve::Arguments>),
    #[cfg(feature = "lab")]
    /// Let thousands of devices connect to a TLS server and come back
    Fleet(Box<instruments::fleet::Arguments>),
    /// Play populations or traces against caches in virtual time: hit rates by policy and capacity
    Simulate(Box<simulate::Arguments>),
    /// Find the TLS handshakes in captures: what is resumed, and what could be
    Capture(Box<capture::Arguments>),
    /// Run a server with its sessions in a cache that all its processes share
    Run(run::Arguments),
    /// Say what the servers that share a cache did with it
    Stats(stats::Arguments),
    /// Name, rotate and retire the ticket keys that servers share
    Keys(keys::Arguments),
    /// Name, check and remove the caches that servers share
    Store(store::Arguments),
    /// Share sessions and ticket keys with other machines
    Cluster(cluster::Arguments),
    /// Make TLS connections for this machine's programs, which share sessions
    Manager(manager::Arguments),
    #[cfg(feature = "lab")]
    /// One app of `demo --client`
    #[command(hide = true)]
    App,
    /// Connect to a TLS server through the manager: standard input and output, as plaintext
    Connect(Box<connect::Arguments>),
    #[cfg(feature = "lab")]
    /// Measure what TLS costs a server, where the time goes, and what resumption would save here
    Cost(Box<instruments::cost::Arguments>),
    /// Say how big a cache must be, with which policy, and what it saves
    Plan(Box<plan::Arguments>),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    let done = match arguments.command {
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => instruments::told(instruments::demo::run(&arguments)),
        #[cfg(feature = "lab")]
        Command::Bench(arguments) => instruments::told(instruments::bench::run(&arguments)),
        Command::Serve(arguments) => serve::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Fleet(arguments) => instruments::told(instruments::fleet::run(&arguments)),
        Command::Simulate(arguments) => simulate::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Cost(arguments) => instruments::told(instruments::cost::run(&arguments)),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments),
        #[cfg(feature = "lab")]
        Command::App => instruments::told(instruments::demo::apps::run_app()),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Manager(arguments) => manager::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let ours = error.downcast_ref::<rejoin_serve::Error>();
            terminal::complain(&terminal::chain(&error));
            let misuse = ours.is_some_and(rejoin_serve::Error::is_misuse);
            ExitCode::from(if misuse || error.is::<arguments::Misuse>() { 2 } else { 1 })
        }
    }
}

/// So many threads for what waits on sockets.
fn runtime(workers: u16) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(workers))
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Help goes out whole; a wrong argument becomes one line.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is the reader's choice.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    let told = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let line = told.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    terminal::complain(&format!("{}; see --help", line.trim_start_matches("error: ")));
    ExitCode::from(2)
}
