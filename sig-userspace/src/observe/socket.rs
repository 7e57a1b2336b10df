//! The status socket: whoever connects gets the state of the gateway as one JSON document.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{io::AsyncWriteExt, net::UnixListener, task::JoinHandle};

use super::status::Status;

/// A client that does not read for this long is left alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket. Dropping it removes the socket's file.
pub struct StatusSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl StatusSocket {
    /// Listens at `path`, with access for the user and group of the process, and answers with what
    /// `status` tells. The socket's folder is created if it is not there; the file of a predecessor that was
    /// killed is replaced. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// If another gateway listens there, or the socket cannot be made.
    pub fn listen(
        path: &Path,
        status: impl Fn() -> Status + Send + Sync + 'static,
    ) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another gateway listens there; give this one an own `[gateway] id`",
            ));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        let task = tokio::spawn(serve(listener, status));
        Ok(StatusSocket {
            path: path.to_owned(),
            task,
        })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.task.abort();
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, status: impl Fn() -> Status) {
    loop {
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Such as too many open files: it passes, and must not spin.
                tracing::warn!("cannot answer on the status socket: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let document = match serde_json::to_vec(&status()) {
            Ok(document) => document,
            Err(error) => {
                tracing::warn!("cannot tell the status: {error}");
                continue;
            }
        };
        // A client that goes away is no concern of ours.
        let _ = tokio::time::timeout(PATIENCE, stream.write_all(&document)).await;
    }
}
