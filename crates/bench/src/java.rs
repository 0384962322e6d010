//! What Java programs say.

/// Of all that one said before it failed: the innermost cause, or else its last word.
pub(crate) fn cause(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let cause = lines.clone().rev().find_map(|line| line.strip_prefix("Caused by: "));
    cause.or_else(|| lines.next_back()).unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told() {
        let text = "Exception: one\n\tat a.b(c)\nCaused by: other\n\tat d.e(f)\n\t... 14 more\n\n";
        assert_eq!((cause(text), cause("a\n b \n\n")), ("other".to_owned(), "b".to_owned()));
        assert_eq!(cause(""), "it says nothing");
    }
}
