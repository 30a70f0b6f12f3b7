//! Level-triggered epoll, and nothing more.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const EVENTS_MAX: usize = 256;

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

#[derive(Clone, Copy)]
pub struct Ready {
    pub token: usize,
    pub readable: bool,
    pub writable: bool,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed; the result is checked.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    pub fn add(&self, fd: &impl AsRawFd, token: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, false)
    }

    pub fn want_write(&self, fd: &impl AsRawFd, token: usize, wanted: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, wanted)
    }

    fn control(&self, operation: i32, fd: &impl AsRawFd, token: usize, writable: bool) -> io::Result<()> {
        let events = if writable { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        let mut event = libc::epoll_event { events: events as u32, u64: token as u64 };
        // SAFETY: `event` lives through the call; a bad descriptor is reported, not followed.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Wait at most `timeout_ms`; `ready` is filled anew.
    pub fn wait(&mut self, timeout_ms: i32, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let (pointer, room) = (self.events.as_mut_ptr(), self.events.len() as i32);
        // SAFETY: `pointer` leads to `room` events that nobody else uses during the call.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), pointer, room, timeout_ms) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        ready.extend(self.events[..count as usize].iter().map(|event| Ready {
            token: event.u64 as usize,
            readable: event.events & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0,
            writable: event.events & libc::EPOLLOUT as u32 != 0,
        }));
        Ok(())
    }
}
