//! What Java programs say.

/// Of all that one said before it failed: the innermost cause, or the exception that it ended by, or else its last word.
pub(crate) fn cause(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let cause = lines.clone().rev().find_map(|line| line.strip_prefix("Caused by: "));
    let thrown = lines.clone().rev().find_map(|line| line.strip_prefix("Exception in thread "));
    let why = cause.or(thrown).or_else(|| lines.next_back());
    why.unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told() {
        let text = "Exception: one\n\tat a.b(c)\nCaused by: other\n\tat d.e(f)\n\t... 14 more\n\n";
        assert_eq!((cause(text), cause("a\n b \n\n")), ("other".to_owned(), "b".to_owned()));
        let uncaught =
            "# JMH\nException in thread \"main\" a.B: no lock\n\tat a.b(c)\n\tat d.e(f)\n";
        assert_eq!(cause(uncaught), "\"main\" a.B: no lock");
        assert_eq!(cause(""), "it says nothing");
    }
}
