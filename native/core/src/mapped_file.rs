//! One log file, mapped: bytes below `written` are final, the rest belongs to the one writer.
//!
//! That split is the whole safety argument of reading without a lock. The writer only touches bytes at or above `written`
//! and publishes them by raising it; readers only get bytes below. A mapping is dropped when its last reader lets go, so a
//! file may be deleted under a reader. Nobody may shorten a file that is mapped: the store directory is locked by its
//! owner, and recovery truncates only what it has unmapped.
//!
//! Files are allocated in full by fallocate. A sparse file would be shorter to make, but on a full disk the kernel
//! would answer a store into the map with SIGBUS, which ends the process; allocation fails as an error we can report.
//! Measured on ext4: 1.5 ms for 1 GiB, and msync of a new page costs the same for both (60 us); a file zeroed beforehand
//! was five times slower to sync. Where the file system can't allocate, sparse it is.

use std::{
    fs::{self, File, OpenOptions},
    io,
    num::NonZeroU64,
    path::{Path, PathBuf},
    slice,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::{
    fs::{fadvise, fallocate, FallocateFlags},
    io::retry_on_intr,
};

use crate::error::{At, Error, Result};

/// The unit in which the kernel keeps files in memory.
pub const PAGE: usize = 4096;

pub struct MappedFile {
    pub base: u64,
    pub path: PathBuf,
    map: MmapRaw,
    written: AtomicUsize,
    /// What the kernel was told last; it begins with true.
    read_ahead: AtomicBool,
    warm: AtomicBool,
    locked: AtomicBool,
}

impl MappedFile {
    /// Map the file at `base`, making it if it isn't there. Harmless when two threads do it for the same file: both get the
    /// same bytes. Name and length are forced, so that a power cut leaves neither a gap before a later file nor a file that
    /// is too short before one that is used.
    pub fn create(directory: &Path, base: u64, size: u64) -> Result<Self> {
        let path = path(directory, base);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).at("create", &path)?;
        allocate(&file, size).at("allocate", &path)?;
        file.sync_all().at("sync", &path).and_then(|()| sync_directory(directory)).map_err(Error::of_sync)?;
        Self::map(file, path, base, 0)
    }

    /// Map an existing file of which the first `written` bytes are final.
    pub fn open(path: PathBuf, base: u64, written: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
        Self::map(file, path, base, written)
    }

    fn map(file: File, path: PathBuf, base: u64, written: usize) -> Result<Self> {
        let map = MmapOptions::new().map_raw(&file).at("map", &path)?;
        debug_assert!(written <= map.len());
        let (read_ahead, written) = (AtomicBool::new(true), AtomicUsize::new(written));
        let (warm, locked) = Default::default();
        Ok(Self { base, path, map, written, read_ahead, warm, locked })
    }

    pub fn size(&self) -> usize {
        self.map.len()
    }

    pub fn written(&self) -> usize {
        self.written.load(Ordering::Acquire)
    }

    /// The final bytes from `from` on.
    pub fn read(&self, from: usize) -> &[u8] {
        let written = self.written();
        let from = from.min(written);
        // SAFETY: from..written lies in the map, because written never exceeds its length. No byte below `written` is
        // stored to as long as the map lives (`unwritten` starts above it), so a shared slice may show it. The map stays
        // for the lifetime of &self.
        unsafe { slice::from_raw_parts(self.map.as_ptr().add(from), written - from) }
    }

    /// Bring what is at `at` nearer to the processor, because it is read soon.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if at < self.map.len() {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            // SAFETY: the address lies in the map, and a prefetch reads nothing; it is a hint that never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.map.as_ptr().add(at).cast()) };
        }
    }

    /// The `size` bytes behind the final ones, to be written and then published by `publish`; None if there are fewer.
    ///
    /// # Safety
    /// At most one slice from this function may be alive at a time, and none while `publish` runs.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn unwritten(&self, size: usize) -> Option<&mut [u8]> {
        let written = self.written();
        if size > self.size() - written {
            return None;
        }
        // SAFETY: written..written+size lies in the map by the check above. Readers see only bytes below `written`, and
        // the caller promises to be the only writer, so nobody else refers to these bytes.
        Some(unsafe { slice::from_raw_parts_mut(self.map.as_mut_ptr().add(written), size) })
    }

    /// Make the next `size` bytes final.
    pub fn publish(&self, size: usize) {
        let written = self.written() + size;
        assert!(written <= self.size(), "published more than the file holds");
        self.written.store(written, Ordering::Release);
    }

    /// The file is about to be read from end to end. Only a hint, so a refusal doesn't matter.
    pub fn read_ahead(&self) {
        let _ = self.map.advise(Advice::Sequential);
    }

    /// Say how the file is brought into memory from now on: ahead, or only what is touched. A hint as well.
    pub fn advise(&self, read_ahead: bool) {
        if self.read_ahead.swap(read_ahead, Ordering::Relaxed) != read_ahead {
            let _ = self.map.advise(if read_ahead { Advice::Normal } else { Advice::Random });
        }
    }

    /// Have all pages in memory before they are written, once. Their bytes stay as they are, so writing may go on.
    pub fn warm(&self) {
        if !self.warm.swap(true, Ordering::Relaxed) {
            // A kernel before 5.14 refuses. Then pages come when they are touched, as without this.
            let _ = self.map.advise(Advice::PopulateRead);
        }
    }

    /// Keep the file's pages in memory until `unlock`.
    pub fn lock(&self) -> io::Result<()> {
        if !self.locked.load(Ordering::Relaxed) {
            self.map.lock()?;
            self.locked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn unlock(&self) -> io::Result<()> {
        if self.locked.swap(false, Ordering::Relaxed) {
            self.map.unlock()?;
        }
        Ok(())
    }

    /// Which of the pages that hold from..to are in memory; all of them when the kernel doesn't say.
    pub fn resident(&self, from: usize, to: usize) -> Vec<bool> {
        resident(&self.map, from, to)
    }

    /// Force from..to to disk.
    pub fn sync(&self, from: usize, to: usize) -> io::Result<()> {
        self.unmap_pages(from, to);
        self.map.flush_range(from, to - from)
    }

    /// Take the whole pages of from..to out of the map at once, which stay in memory. The kernel takes each page that it
    /// writes back out of the map by itself otherwise, and interrupts the processor of the writer for it.
    fn unmap_pages(&self, from: usize, to: usize) {
        let (start, end) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        if start < end {
            // SAFETY: the range lies in the map, since `to` does. The map is shared with the file, so a page that is touched
            // again comes back with the bytes it had, whether they were written back or not; references to them see no
            // change. Locked pages are refused, which does no harm.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

/// Which of the pages of a map that hold from..to are in memory; all of them when the kernel doesn't say.
pub fn resident(map: &MmapRaw, from: usize, to: usize) -> Vec<bool> {
    let to = to.min(map.len());
    let start = from.min(to) / PAGE * PAGE;
    let mut pages = vec![1u8; (to - start).div_ceil(PAGE)];
    // SAFETY: start is a multiple of the page size below the map's length, so the range lies in the map, which is borrowed.
    // `pages` has a byte for each of its pages. The call reads and changes no byte of the file.
    let result = unsafe { libc::mincore(map.as_mut_ptr().add(start).cast(), to - start, pages.as_mut_ptr()) };
    if result != 0 {
        pages.fill(1);
    }
    pages.into_iter().map(|page| page & 1 != 0).collect()
}

/// Have the kernel drop the pages from `at` on that weren't `resident`. Only advice: what it keeps does no harm.
pub fn let_go(file: &File, at: usize, resident: &[bool]) -> io::Result<()> {
    let start = at / PAGE * PAGE;
    let mut page = 0;
    while page < resident.len() {
        let run = resident[page..].iter().take_while(|&&other| other == resident[page]).count();
        if !resident[page] {
            let length = NonZeroU64::new((run * PAGE) as u64);
            fadvise(file, (start + page * PAGE) as u64, length, rustix::fs::Advice::DontNeed)?;
        }
        page += run;
    }
    Ok(())
}

/// Give the file its full length and all of its blocks.
pub fn allocate(file: &File, size: u64) -> io::Result<()> {
    let result = match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, size)) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        other => other.map_err(io::Error::from),
    };
    result.and_then(|()| if file.metadata()?.len() == size { Ok(()) } else { file.set_len(size) })
}

/// Files are named by the position of their first byte in 20 digits.
pub fn path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:020}"))
}

/// The first position a file name stands for.
pub fn base_of(name: &str) -> Option<u64> {
    if name.len() != 20 || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Positions are signed in the files.
    name.parse().ok().filter(|&base| base <= i64::MAX as u64 / 2)
}

/// Make a directory's entries as durable as the files they name.
pub fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory).and_then(|file| file.sync_all()).at("sync", directory)
}

/// Make a directory, with those above it, so that a power cut doesn't take it away with what is in it.
pub fn create_directory(directory: &Path) -> Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        create_directory(parent)?;
    }
    fs::create_dir_all(directory).at("create", directory)?;
    // Even if it was there: its maker may have been killed at this point.
    sync_directory(parent)
}
