//! `rejoin bench`: what is measured with real servers, one command for each question.

mod handshake;
mod insert;
mod interning;
mod throughput;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// CPU time and bytes of a handshake, full and resumed, by library, version and key
    Handshake(Box<handshake::Arguments>),
    /// Transactions a second by the number of devices, past what the server can do: paper 000, Fig. 2
    Throughput(Box<throughput::Arguments>),
    /// What it saves a server to decode its clients' certificates once: patch 002
    Interning(interning::Arguments),
    /// What it takes to store a session in a full cache: patch 003's table
    Insert(insert::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.what {
        What::Handshake(arguments) => handshake::run(arguments),
        What::Throughput(arguments) => throughput::run(arguments),
        What::Interning(arguments) => interning::run(arguments),
        What::Insert(arguments) => insert::run(arguments),
    }
}
