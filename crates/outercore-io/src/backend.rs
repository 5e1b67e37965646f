//! Selects the back end for reads: named by the user, or chosen by the kernel's features.

mod mmap;
mod threads;
mod uring;

use std::fmt;
use std::str::FromStr;

use outercore_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::reader::Reader;

pub use mmap::MmapReader;
pub use threads::ThreadsReader;
pub use uring::UringReader;

/// How files are read. The choice changes only the speed, never the results.
///
/// # Example
/// ```
/// use outercore_io::Backend;
/// assert_eq!("uring".parse::<Backend>().unwrap(), Backend::Uring);
/// assert_eq!(Backend::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// `Uring` if the kernel offers it, otherwise `Threads`.
    #[default]
    Auto,
    /// Direct reads through io_uring (Linux 5.11 or later, unless forbidden).
    Uring,
    /// Direct reads by a pool of threads.
    Threads,
    /// Copies out of a memory mapping: the baseline for comparisons.
    Mmap,
}

impl Backend {
    /// All values that a user can choose.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Uring, Self::Threads, Self::Mmap];

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Threads => "threads",
            Self::Mmap => "mmap",
        }
    }

    /// Opens a reader with up to `depth` reads in flight. The caller leases the buffers from
    /// `arena`.
    ///
    /// # Errors
    /// The kernel does not offer this back end; `Auto` always finds an available one.
    pub fn open(self, depth: usize, arena: &Arena) -> Result<Box<dyn Reader>> {
        Ok(match self {
            Self::Uring => Box::new(UringReader::open(depth, arena)?),
            Self::Threads => Box::new(ThreadsReader::open(depth)?),
            Self::Mmap => Box::new(MmapReader::open(depth)),
            Self::Auto => match UringReader::open(depth, arena) {
                Ok(reader) => Box::new(reader),
                Err(_) => Box::new(ThreadsReader::open(depth)?),
            },
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            Error::invalid(format!("`{text}` is not a way to read"))
                .hint("choose auto, uring, threads or mmap")
        })
    }
}

/// Whether a back end works on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The back end.
    pub backend: Backend,
    /// Why the back end does not work; `None` if it works.
    pub missing: Option<String>,
}

/// All back ends, fastest first, each with the reason if it is not available.
pub fn available_backends() -> Vec<Availability> {
    let missing = uring::try_ring().err().map(|error| error.to_string());
    vec![
        Availability { backend: Backend::Uring, missing },
        Availability { backend: Backend::Threads, missing: None },
        Availability { backend: Backend::Mmap, missing: None },
    ]
}

/// The error for a back end that the kernel does not offer.
pub(crate) fn not_offered(backend: Backend, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("back end `{backend}` does not work here: {why}"))
        .hint("use `auto`, which takes what the kernel offers")
}
