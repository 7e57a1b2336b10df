//! What systemd is told about this process (`Type=notify`): that it is ready, what it waits for, that it lives.
//!
//! The protocol of sd_notify(3): lines in a datagram to the socket that `NOTIFY_SOCKET` names. Crates for it wait for a service
//! manager that does not read; carrying packets does not depend on that one.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Arc,
    time::Duration,
};

/// Longest wait for a service manager that does not read.
const PATIENCE: Duration = Duration::from_millis(100);

/// The service manager that started this process, if there is one that wants to be told. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    #[must_use]
    pub fn of_this_process() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_ours);
        match Self::at(&name, watchdog.map(Duration::from_micros)) {
            Ok(manager) => manager,
            Err(error) => {
                tracing::warn!(
                    "cannot notify the service manager at {}: {error}",
                    name.display()
                );
                Self::default()
            }
        }
    }

    fn at(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(Some(Arc::new(Inner {
            socket,
            address,
            watchdog,
        }))))
    }

    /// How often [`Self::alive`] has to be called at least, or the process is killed; `None`: never.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.0.as_ref()?.watchdog
    }

    /// The start is over.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// What the process does, in one line that `systemctl status` shows.
    pub fn status(&self, text: &str) {
        self.tell(&format!("STATUS={}", text.replace(['\n', '\r'], " ")));
    }

    /// The configuration is read again, until the returned guard is dropped.
    #[must_use]
    pub fn reloading(&self) -> Reloading {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now()));
        Reloading(self.clone())
    }

    /// The process ends in order.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The process does its work.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, lines: &str) {
        let Some(manager) = &self.0 else {
            return;
        };
        let sent = manager
            .socket
            .send_to_addr(lines.as_bytes(), &manager.address);
        if let Err(error) = sent {
            tracing::debug!("cannot notify the service manager: {error}");
        }
    }
}

/// See [`ServiceManager::reloading`].
#[derive(Debug)]
pub struct Reloading(ServiceManager);

impl Drop for Reloading {
    fn drop(&mut self) {
        self.0.ready();
    }
}

/// The monotonic time in microseconds.
fn now() -> u128 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes a structure that lives here. It has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    (seconds + Duration::from_nanos(time.tv_nsec.unsigned_abs())).as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service manager in its place, with an abstract name.
    fn manager(name: &str) -> (UnixDatagram, ServiceManager) {
        let name = format!("sig-test-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let watchdog = Some(Duration::from_secs(30));
        let told = ServiceManager::at(format!("@{name}").as_ref(), watchdog).unwrap();
        (socket, told)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_service_manager_hears_what_happens() {
        let (socket, manager) = manager("hears");
        manager.status("waiting for\nthe interface eth1");
        assert_eq!(heard(&socket), "STATUS=waiting for the interface eth1");
        manager.ready();
        assert_eq!(heard(&socket), "READY=1");
        let before = now();
        let reloading = manager.reloading();
        let text = heard(&socket);
        let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!((before..=now()).contains(&time.parse().unwrap()), "{text}");
        drop(reloading);
        assert_eq!(heard(&socket), "READY=1");
        manager.alive();
        assert_eq!(heard(&socket), "WATCHDOG=1");
        manager.stopping();
        assert_eq!(heard(&socket), "STOPPING=1");
        assert_eq!(manager.watchdog(), Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_service_manager_that_does_not_read_holds_nobody_up() {
        let (socket, manager) = manager("deaf");
        for _ in 0..4096 {
            // Would never return if it waited for room.
            let begin = std::time::Instant::now();
            manager.alive();
            if begin.elapsed() >= PATIENCE {
                break;
            }
        }
        drop(socket);
        manager.alive();
        ServiceManager::default().ready();
    }
}
