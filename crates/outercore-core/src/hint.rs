use std::fmt;

/// The next step after an error: text, and options as values.
///
/// Each front end writes options in its own form: Python as arguments, the command line as
/// `--NAME VALUE`. [`hint!`](crate::hint!) makes a hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(pub Vec<Part>);

/// A part of a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An option by the name of its field, such as `memory`.
    Option {
        /// The name of the field. With its group if it is set in a configuration only.
        name: &'static str,
        /// The value to pass; `true` and `false` for flags. `None` only names the option.
        value: Option<String>,
    },
}

impl Hint {
    /// A hint that is one option.
    pub fn option(name: &'static str, value: Option<String>) -> Self {
        Self(vec![Part::Option { name, value }])
    }
}

impl<T: Into<String>> From<T> for Hint {
    fn from(text: T) -> Self {
        Self(vec![Part::Text(text.into())])
    }
}

impl FromIterator<Hint> for Hint {
    fn from_iter<I: IntoIterator<Item = Hint>>(hints: I) -> Self {
        Self(hints.into_iter().flat_map(|hint| hint.0).collect())
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Option { name, value: None } => write!(f, "`{name}`"),
            Part::Option { name, value: Some(value) } => write!(f, "`{name}={value}`"),
        })
    }
}

/// A [`Hint`] from texts, `{option}`, `{option = value}` and `{(hint)}`.
///
/// # Example
/// ```
/// use outercore_core::hint;
/// let (name, size) = ("papers", "8GiB");
/// let hint = hint!("pass " {memory = size} ", or choose another name than `{name}`");
/// assert_eq!(hint.to_string(), "pass `memory=8GiB`, or choose another name than `papers`");
/// ```
#[macro_export]
macro_rules! hint {
    (@ {$name:ident}) => { $crate::Hint::option(stringify!($name), None) };
    (@ {$name:ident = $value:expr}) => {
        $crate::Hint::option(stringify!($name), Some($value.to_string()))
    };
    (@ {$name:literal = $value:expr}) => { $crate::Hint::option($name, Some($value.to_string())) };
    (@ $text:literal) => { $crate::Hint::from(format!($text)) };
    (@ {($hint:expr)}) => { $crate::Hint::from($hint) };
    ($($part:tt)+) => { [$($crate::hint!(@ $part)),+].into_iter().collect::<$crate::Hint>() };
}

/// A command with options and their values, quoted for a shell; flags have an empty value.
///
/// # Example
/// ```
/// let command = outercore_core::command("grid DATASET", &[("relation", "likes"), ("overwrite", "")]);
/// assert_eq!(command, "outercore grid DATASET --relation likes --overwrite");
/// ```
pub fn command(words: &str, options: &[(&str, &str)]) -> String {
    let mut text = format!("outercore {words}");
    for (name, value) in options {
        text += &format!(" --{}", name.replace('_', "-"));
        if !value.is_empty() {
            text += &format!(" {}", crate::shell_word(value));
        }
    }
    text
}
