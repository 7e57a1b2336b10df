//! Keys of the terminal, one at a time.

use std::{
    mem::MaybeUninit,
    time::{Duration, Instant},
};

const INPUT: libc::c_int = libc::STDIN_FILENO;

/// What Ctrl-C comes as.
pub const INTERRUPT: u8 = 3;

/// The terminal at the standard input, which tells each key at once and shows none. Dropped, it is as it was before.
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// `None` if the standard input is no terminal, or that of a process in the background.
    #[must_use]
    pub fn open() -> Option<Self> {
        let mut before = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the pointer is that of a place for the structure.
        if unsafe { libc::tcgetattr(INPUT, before.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call has written it.
        let before = unsafe { before.assume_init() };
        // Changing the terminal would stop a process in the background.
        // SAFETY: neither call takes a pointer.
        if unsafe { libc::tcgetpgrp(INPUT) != libc::getpgrp() } {
            return None;
        }
        let mut raw = before;
        // Ctrl-C is a key too: a signal would end the process before the terminal is as it was.
        raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        raw.c_cc[libc::VMIN] = 0;
        raw.c_cc[libc::VTIME] = 0;
        set(&raw).then_some(Self { before })
    }

    /// The next key, if one comes before `until`. Of keys that send several bytes each byte counts.
    #[must_use]
    pub fn next(&self, until: Instant) -> Option<u8> {
        loop {
            let left = until.checked_duration_since(Instant::now())?;
            let mut wait = libc::pollfd {
                fd: INPUT,
                events: libc::POLLIN,
                revents: 0,
            };
            let milliseconds = left.min(Duration::from_secs(60)).as_millis() as libc::c_int;
            // SAFETY: the pointer is that of one structure.
            let ready = unsafe { libc::poll(&raw mut wait, 1, milliseconds + 1) };
            if ready <= 0 {
                continue;
            }
            let mut key = 0_u8;
            // SAFETY: the pointer is that of one byte.
            let read = unsafe { libc::read(INPUT, (&raw mut key).cast(), 1) };
            if read == 1 {
                return Some(key);
            }
            // The terminal is gone.
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        set(&self.before);
    }
}

fn set(state: &libc::termios) -> bool {
    // SAFETY: the pointer is that of the structure.
    unsafe { libc::tcsetattr(INPUT, libc::TCSANOW, state) == 0 }
}
