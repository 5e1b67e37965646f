//! Text from files in messages.

/// A line or field, shortened to fit on one line of a message.
///
/// # Example
/// ```
/// assert_eq!(outercore_text::shown(b"a\tb\r\n"), "a\\tb");
/// ```
pub fn shown(text: &[u8]) -> String {
    const MOST: usize = 80;
    let text = text.trim_ascii();
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MOST + 4)]);
    let cut: String = text.chars().take(MOST).collect();
    let more = if text.chars().nth(MOST).is_some() { "…" } else { "" };
    let plain: String = cut
        .chars()
        .map(|letter| match letter {
            '\t' => "\\t".to_owned(),
            other if other.is_control() => other.escape_default().to_string(),
            other => other.to_string(),
        })
        .collect();
    format!("{plain}{more}")
}
