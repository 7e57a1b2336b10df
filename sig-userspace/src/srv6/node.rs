//! An SR node for embedding.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use sig_core::problem::Errors;

use super::{
    Function, SrNode,
    config::{self, Srv6},
    process::Functions,
};

/// An SR node that can be started: its configuration has been read and checked.
///
/// ```no_run
/// use sig::srv6::{InPlace, Node, Verdict};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// // Of a function with `in_process = true` in the file.
/// let mut bytes = 0;
/// let count = move |packet: &mut InPlace<'_>| {
///     bytes += packet.payload().len();
///     Verdict::Forward
/// };
/// let node = Node::load("/etc/sig/node.toml")?.function("counter", count);
/// node.run(std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Node {
    id: String,
    status_socket: PathBuf,
    srv6: Srv6,
    functions: Functions,
}

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Node {
    /// A node with the configuration of this file. Warnings about it are logged.
    ///
    /// # Errors
    /// All that is wrong with the file.
    pub fn load(file: impl AsRef<Path>) -> Result<Self, Errors> {
        let (config, warnings) = config::load(file.as_ref())?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(Self {
            id: config.id,
            status_socket: config.status_socket,
            srv6: config.srv6,
            functions: Functions::new(),
        })
    }

    /// What the function with this name does. In place of one that has been given for the name before.
    #[must_use]
    pub fn function(mut self, name: &str, function: impl Function + 'static) -> Self {
        self.functions.insert(name.to_owned(), Box::new(function));
        self
    }

    /// Runs it until `end` is there, and answers `sig srv6 status` meanwhile. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Missing privileges, a kernel that cannot do it, or another node with the same socket or functions in its process.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), Error> {
        let failed = |error: sig_linux::Error| Error(error.to_string());
        let (mut node, mut events) = SrNode::load(self.id, self.srv6, None).map_err(failed)?;
        node.start_functions(self.functions).await.map_err(failed)?;
        node.look().await.map_err(failed)?;
        let socket = self.status_socket;
        let _socket = node
            .listen(&socket)
            .map_err(|error| Error(format!("{}: {error}", socket.display())))?;
        tokio::select! {
            result = node.run(&mut events) => match result {
                Err(error) => Err(failed(error)),
            },
            () = end => Ok(()),
        }
    }
}
