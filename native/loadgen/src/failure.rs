//! Why a run ends without a result, and the exit code that says so.

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Failure {
    Usage(String),
    Io(String),
    /// The server answered something no server may answer.
    Protocol(String),
    /// Nothing came within the time allowed.
    Silence(String),
    /// The server refused what has to succeed before anything can be measured.
    Refused(String),
}

impl Failure {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 1,
            Self::Io(_) => 2,
            Self::Protocol(_) => 3,
            Self::Silence(_) => 4,
            Self::Refused(_) => 5,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(out, "{text} (see --help)"),
            Self::Io(text) | Self::Silence(text) => out.write_str(text),
            Self::Protocol(text) => write!(out, "protocol: {text}"),
            Self::Refused(text) => write!(out, "refused: {text}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Io(text)
    }
}
