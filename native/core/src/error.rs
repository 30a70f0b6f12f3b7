//! What can go wrong: the world (a disk, a directory), or the caller.

use std::{fmt, io, path::Path};

#[derive(Debug, Clone)]
pub enum Error {
    /// Becomes a StoreError; the text names the file.
    Store(String),
    /// Becomes a StoreFull: a write found no room. What was there before is as it was.
    Full(String),
    /// Becomes a ValueError; the text names the argument.
    Value(String),
}

impl Error {
    /// What a failed sync is, whatever its cause: the kernel may have dropped pages, so this is no disk that is just full.
    pub fn of_sync(self) -> Self {
        match self {
            Self::Full(text) => Self::Store(text),
            other => other,
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(text) | Self::Full(text) | Self::Value(text) => formatter.write_str(text),
        }
    }
}

pub fn store<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Store(text.into()))
}

pub fn value<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Value(text.into()))
}

/// Say at which file an operation failed.
pub trait At<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| {
            let error = error.into();
            let text = format!("can't {doing} {}: {error}", path.display());
            match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => Error::Full(text),
                _ => Error::Store(text),
            }
        })
    }
}
