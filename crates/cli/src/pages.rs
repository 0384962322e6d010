//! `rejoin pages`: the manual pages and completions that packages install.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The files of the shells, as each looks for them.
const COMPLETIONS: [(Shell, &str); 3] =
    [(Shell::Bash, "rejoin.bash"), (Shell::Zsh, "_rejoin"), (Shell::Fish, "rejoin.fish")];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let mut command = crate::help::in_groups(crate::Arguments::command());
    for (shell, file) in COMPLETIONS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "rejoin", &mut script);
        write(folder, file, &script)?;
    }
    command.build();
    write_manuals(folder, &command, "rejoin")
}

/// Writes the page of a command and of all commands below it.
fn write_manuals(folder: &Path, command: &Command, name: &str) -> anyhow::Result<()> {
    let manual = manual(command, name).context("a manual page cannot be made")?;
    write(folder, &format!("{name}.1"), &manual)?;
    let listed = |of: &&Command| !of.is_hide_set() && of.get_name() != "help";
    let mut below = command.get_subcommands().filter(listed);
    below.try_for_each(|of| write_manuals(folder, of, &format!("{name}-{}", of.get_name())))
}

fn manual(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let closing = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, examples) = closing.split_once("Examples:").unwrap_or((&closing, ""));
    let page = command.clone().display_name(name.to_owned()).disable_help_subcommand(true);
    let page = Man::new(page).source(concat!("Rejoin ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    text.extend_from_slice(escaped(notes).as_bytes());
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if !examples.is_empty() {
        text.extend_from_slice(format!(".SH EXAMPLES\n.nf\n{}.fi\n", escaped(examples)).as_bytes());
    }
    Ok(text)
}

/// Returns lines for roff, none of which is taken for a command of it.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    text.lines().filter(|line| !line.is_empty()).map(|line| format!("\\&{line}\n")).collect()
}

fn write(folder: &Path, file: &str, text: &[u8]) -> anyhow::Result<()> {
    let path = folder.join(file);
    fs::write(&path, text).with_context(|| format!("{}: cannot be written", path.display()))
}
