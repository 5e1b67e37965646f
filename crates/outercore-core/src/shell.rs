//! Quotes words of the commands that messages suggest.

use std::path::Path;

/// Quotes `word` for a shell if it has blanks or other special characters.
///
/// # Example
/// ```
/// use outercore_core::shell_word;
/// assert_eq!(shell_word("runs/first"), "runs/first");
/// assert_eq!(shell_word("my file.csv"), "'my file.csv'");
/// assert_eq!(shell_word("it's"), r"'it'\''s'");
/// ```
pub fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./,:+@%=".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Like [`shell_word`], for a path.
pub fn shell_path(path: &Path) -> String {
    shell_word(&path.display().to_string())
}
