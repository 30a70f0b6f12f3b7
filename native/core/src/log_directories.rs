//! Where log files lie: in one directory, or in several, each file in one of them (MultiPathMappedFileQueue.java).
//!
//! No document says which file is where: a file is found by its name, and no two directories may have the same.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    error::{store, value, At, Result},
    mapped_file::{base_of, create_directory, path, sync_directory},
};

#[derive(Clone)]
pub struct LogDirectories {
    /// New files are made in these.
    pub writable: Vec<PathBuf>,
    /// Files in these are used as any others, until they are deleted.
    pub read_only: Vec<PathBuf>,
}

impl LogDirectories {
    pub fn new(writable: Vec<PathBuf>, read_only: Vec<PathBuf>) -> Result<Self> {
        if writable.is_empty() {
            return value("there is no directory that log files may be made in");
        }
        Ok(Self { writable, read_only })
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.writable.iter().chain(&self.read_only)
    }

    /// The file that begins at `base`; where it would be in the first directory if it is in none.
    pub fn path(&self, base: u64) -> PathBuf {
        let first = path(&self.writable[0], base);
        if self.writable.len() + self.read_only.len() == 1 {
            return first;
        }
        self.all().map(|directory| path(directory, base)).find(|path| path.exists()).unwrap_or(first)
    }

    /// Make the directories that files may be made in. Others have to be there, and each only once.
    pub fn create(&self) -> Result<()> {
        // The log begins in all of them at once. One that isn't there later is a disk that isn't mounted: made anew it would hide
        // what it holds, and that what comes next takes the place of.
        let mut used = self.all().filter(|directory| has_files(directory));
        if let (Some(used), Some(missing)) = (used.next(), self.writable.iter().find(|directory| !directory.is_dir())) {
            return store(format!(
                "{} isn't there, and {} holds a part of the log: mount it, or make it by hand if it is new",
                missing.display(),
                used.display()
            ));
        }
        for directory in &self.writable {
            create_directory(directory)?;
        }
        let mut known = HashMap::new();
        for directory in self.all() {
            if !directory.is_dir() {
                return store(format!(
                    "{} isn't there, and readOnlyCommitLogStorePaths says that it holds a part of the log: mount it, or \
                     take it off that list if no file of the log is in it",
                    directory.display()
                ));
            }
            let found = fs::metadata(directory).at("look at", directory)?;
            if let Some(other) = known.insert((found.dev(), found.ino()), directory) {
                return store(format!(
                    "{} and {} are the same directory: name it once",
                    other.display(),
                    directory.display()
                ));
            }
        }
        Ok(())
    }

    /// The log files by first position; they are all `file_size` long and follow each other.
    pub fn list(&self, file_size: u64) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for directory in self.all() {
            for entry in fs::read_dir(directory).at("list", directory)? {
                let entry = entry.at("list", directory)?;
                let metadata = entry.metadata().at("look at", &entry.path())?;
                if let Some(base) = entry.file_name().to_str().and_then(base_of).filter(|_| metadata.is_file()) {
                    found.push((base, metadata.len(), entry.path()));
                }
            }
        }
        found.sort();
        // A crash between creating a file and giving it its size; Apache drops it as well.
        let last = found.last().map_or(0, |(base, ..)| *base);
        let (empty, found): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(base, length, _)| *base == last && *length == 0);
        for (_, _, path) in empty {
            fs::remove_file(&path).at("delete", &path)?;
        }
        for pair in found.windows(2) {
            let [(base, _, one), (other_base, _, other)] = pair else { continue };
            if base == other_base {
                return twice(one, other);
            }
        }
        let mut expected = None;
        for (base, length, path) in &found {
            if *length != file_size {
                return store(format!(
                    "{} has {length} bytes, and log files have {file_size}: set mappedFileSizeCommitLog to the size the \
                     store was made with, or put the file back from a copy",
                    path.display()
                ));
            }
            if base % file_size != 0 || expected.is_some_and(|expected| expected != *base) {
                let expected = expected.map_or(format!("a multiple of {file_size}"), |expected| format!("{expected}"));
                return store(format!(
                    "{} starts at {base}, not at {expected}: put the file that is missing before it back from a copy{}",
                    path.display(),
                    if self.writable.len() + self.read_only.len() > 1 {
                        ", or name the directory it is in"
                    } else {
                        ""
                    }
                ));
            }
            expected = base.checked_add(file_size);
        }
        Ok(found.into_iter().map(|(base, ..)| base).collect())
    }

    /// Make what was deleted, and what was made, as durable as the files.
    pub fn sync(&self) -> Result<()> {
        self.all().try_for_each(|directory| sync_directory(directory))
    }
}

impl fmt::Display for LogDirectories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, directory) in self.all().enumerate() {
            write!(f, "{}{}", if number > 0 { " and " } else { "" }, directory.display())?;
        }
        Ok(())
    }
}

/// Which of them is the log's nobody can tell. Apache leaves two behind if it is killed after a disk became full between
/// making a file ahead and using it, and the one made ahead is empty.
fn twice(one: &Path, other: &Path) -> Result<Vec<u64>> {
    let hint = match (begins_empty(one)?, begins_empty(other)?) {
        (true, false) => format!("; {} begins with zeros", one.display()),
        (false, true) => format!("; {} begins with zeros", other.display()),
        _ => String::new(),
    };
    store(format!(
        "{} and {} are the same part of the log: keep the one that has its messages and move the other out of these \
         directories{hint}",
        one.display(),
        other.display()
    ))
}

fn has_files(directory: &Path) -> bool {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str().and_then(base_of)).next().is_some()
}

fn begins_empty(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut head)).at("read", path)?;
    Ok(head.iter().all(|&byte| byte == 0))
}
