//! The `rejoin` command: turns arguments into settings and makes one library call per subcommand.
//!
//! Exit codes: 0 for success, 1 for a failure, 2 for wrong arguments, 3 for a measurement with which the machine did not
//! keep up. An error is one line that names
//! the cause and the remedy.

#![forbid(unsafe_code)]

mod access_log;
mod arguments;
mod arrivals;
mod beside;
mod capture;
mod cluster;
mod connect;
mod doctor;
mod enable;
#[cfg(all(test, feature = "lab"))]
mod glossary;
mod help;
#[cfg(feature = "lab")]
mod instruments;
mod interpreter;
mod keys;
mod manager;
mod openssl_conf;
mod pages;
mod plan;
mod process;
mod run;
mod schedule;
mod serve;
mod share;
mod simulate;
mod sizes;
mod stats;
mod status;
mod stoppable;
mod store;
mod terminal;
mod ticket_keys;
mod trace_file;
mod units;
mod watch;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// TLS session resumption for servers and clients, with a cache that predicts when clients return
#[derive(Debug, Parser)]
#[command(name = "rejoin", version, max_term_width = 100, subcommand_required = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "lab")]
    /// Compare all ways of resuming on one recorded population, in a table and two charts
    Demo(instruments::demo::Arguments),
    #[cfg(feature = "lab")]
    /// Measure what resumption saves a server, as the paper did
    Bench(instruments::bench::Arguments),
    /// Run the reference HTTPS server, with a choice of TLS library and of resumption
    Serve(Box<serve::Arguments>),
    #[cfg(feature = "lab")]
    /// Connect thousands of simulated devices to a TLS server, again and again
    Fleet(Box<instruments::fleet::Arguments>),
    /// Compute hit rates by eviction policy and capacity, from a population or a trace
    Simulate(Box<simulate::Arguments>),
    /// Find the TLS handshakes in captures, and report which resumed and which could have
    Capture(Box<capture::Arguments>),
    /// Attach Rejoin to a service of systemd, or lead a user's programs through the TLS manager
    Enable(enable::Arguments),
    /// Take back what `rejoin enable` did
    Disable(enable::disable::Arguments),
    /// Run a server whose processes share their sessions in a cache
    Run(run::Arguments),
    /// Show the counters of a shared cache or of the TLS manager
    Stats(stats::Arguments),
    /// Show which processes have Rejoin, what is attached in them, and what is not and why
    Status(status::Arguments),
    /// Examine any TLS server from outside: what resumes, what is lost, and the mend
    Doctor(Box<doctor::Arguments>),
    /// List, rotate, retire and export the ticket keys that servers share
    Keys(keys::Arguments),
    /// Give ticket keys and a session cache to servers that do not load Rejoin
    Share(share::Arguments),
    /// List, check and remove shared caches
    Store(store::Arguments),
    /// Share sessions and ticket keys between machines
    Cluster(cluster::Arguments),
    /// Run the TLS manager, which connects for this machine's programs and shares their sessions
    Manager(manager::Arguments),
    #[cfg(feature = "lab")]
    /// Run one app of `demo --client`
    #[command(hide = true)]
    App,
    /// Connect standard input and output to a TLS server, through the manager
    Connect(Box<connect::Arguments>),
    #[cfg(feature = "lab")]
    /// Measure what TLS costs a server, where the time goes, and what resumption saves
    Cost(Box<instruments::cost::Arguments>),
    /// Write the manual pages and completions that packages install
    #[command(hide = true)]
    Pages(pages::Arguments),
    /// Recommend a size and a policy for a cache, and estimate what it saves
    Plan(Box<plan::Arguments>),
}

fn main() -> ExitCode {
    let command = help::in_groups(Arguments::command());
    let parsed = command.try_get_matches().and_then(|found| Arguments::from_arg_matches(&found));
    let arguments = match parsed {
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
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Enable(arguments) => enable::run(&arguments),
        Command::Disable(arguments) => enable::disable::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Share(arguments) => share::run(&arguments),
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
            terminal::complain(&terminal::chain(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    #[cfg(feature = "lab")]
    if error.is::<instruments::Doubted>() {
        return 3;
    }
    let ours = error.downcast_ref::<rejoin_serve::Error>();
    let misuse = ours.is_some_and(rejoin_serve::Error::is_misuse);
    if misuse || error.is::<arguments::Misuse>() { 2 } else { 1 }
}

/// Starts a runtime with this many threads.
fn runtime(threads: u16) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(threads))
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Prints help whole, and an error in the arguments as one line. Returns the exit code.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader may close the pipe early.
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
