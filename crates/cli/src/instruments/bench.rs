//! `rejoin bench`: measurements with real servers, one subcommand for each question.

mod client;
mod handshake;
mod insert;
mod interning;
mod throughput;

#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  rejoin bench throughput --quick
  rejoin bench handshake --html handshake.html"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// CPU time and bytes of full and resumed handshakes, by library, version and key type
    Handshake(Box<handshake::Arguments>),
    /// Transactions per second by the number of devices, beyond saturation: paper 000, Fig. 2
    Throughput(Box<throughput::Arguments>),
    /// Time, CPU time and bytes of unchanged programs, with the TLS manager and without
    Client(client::Arguments),
    /// Savings of a server that decodes each client certificate once: patch 002
    Interning(interning::Arguments),
    /// CPU time to store a session in a full cache: patch 003
    Insert(insert::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.what {
        What::Handshake(arguments) => handshake::run(arguments),
        What::Throughput(arguments) => throughput::run(arguments),
        What::Client(arguments) => client::run(arguments),
        What::Interning(arguments) => interning::run(arguments),
        What::Insert(arguments) => insert::run(arguments),
    }
}
