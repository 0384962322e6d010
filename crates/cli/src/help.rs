//! The list of commands in `rejoin --help`, in groups.

use clap::Command;

/// The groups, and the names of their commands in the order in which they are listed.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Servers",
        &[
            "enable", "disable", "doctor", "status", "run", "serve", "stats", "store", "keys",
            "share",
        ],
    ),
    ("Clients", &["manager", "connect"]),
    ("Cluster", &["cluster"]),
    ("Instruments", &["capture", "simulate", "plan", "demo", "bench", "cost", "fleet"]),
];

/// Lists the subcommands in groups, which clap does not do. The descriptions are the commands' own.
pub(crate) fn in_groups(command: Command) -> Command {
    let mut list = String::new();
    for (title, names) in GROUPS {
        list.push_str(&format!("{title}:\n"));
        let found = names.iter().filter_map(|name| command.find_subcommand(name));
        for (name, about) in found.filter_map(|found| Some((found.get_name(), found.get_about()?)))
        {
            list.push_str(&format!("  {name:8}  {about}\n"));
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n\
         rejoin COMMAND --help describes a command."
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_command_is_in_one_group() {
        let command = in_groups(Arguments::command());
        for name in command.get_subcommands().filter(|of| !of.is_hide_set()).map(Command::get_name)
        {
            let in_groups = GROUPS.iter().flat_map(|(_, names)| *names);
            assert_eq!(in_groups.filter(|listed| **listed == name).count(), 1, "{name}");
        }
    }

    /// A longer line is broken where clap's are, and a word or two stand alone in the next.
    #[test]
    fn no_line_of_a_help_is_too_wide() {
        fn check(command: &Command) {
            let helps = [command.get_before_help(), command.get_after_help()];
            let helps = helps.into_iter().flatten().map(|help| help.to_string());
            for help in helps {
                let widest = help.lines().max_by_key(|line| line.chars().count());
                let widest = widest.unwrap_or_default();
                assert!(widest.chars().count() <= 100, "{}: {widest}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn every_command_has_an_example() {
        fn without(command: &Command, name: &str) -> Vec<String> {
            let has_one = |help: String| {
                help.split_once("Examples:\n").is_some_and(|(_, rest)| rest.contains(name))
            };
            let help = command.get_after_help().map(ToString::to_string);
            let own = (!help.is_some_and(has_one)).then(|| name.to_owned());
            let below = command.get_subcommands().filter(|of| !of.is_hide_set());
            let below = below.flat_map(|of| without(of, &format!("{name} {}", of.get_name())));
            own.into_iter().chain(below).collect()
        }
        let mut missing = without(&Arguments::command(), "rejoin");
        // Its help is the list of commands.
        missing.retain(|name| name != "rejoin");
        assert_eq!(missing, [""; 0]);
    }

    #[cfg(feature = "lab")]
    #[test]
    fn the_help_lists_every_command_of_a_group_and_no_other() {
        let help = in_groups(Arguments::command()).render_help().to_string();
        for (title, names) in GROUPS {
            let (_, rest) = help.split_once(&format!("\n{title}:\n")).expect(title);
            let (section, _) = rest.split_once("\n\n").expect("an end");
            let listed: Vec<&str> =
                section.lines().filter_map(|line| line.split_whitespace().next()).collect();
            assert_eq!(listed, names, "{help}");
        }
    }
}
