//! Files that the user writes: walking TOML and JSON, notations of values, and what several of them have in common.
//! Everything that is wrong with a file is found in one go and named with line and key.

pub mod common;
pub mod json;
pub mod prefix;
pub mod schema;
pub mod section;
pub mod toml;
pub mod values;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use std::path::PathBuf;

use crate::problem::{Errors, Problem};

/// The status socket that a configuration file names, also where the file holds mistakes: in this `section`, or by the
/// id in that of `id`.
pub fn status_socket(text: &str, section: &str, id: &str) -> Option<PathBuf> {
    let socket = toml::legible(text, section, "status_socket").map(PathBuf::from);
    socket.or_else(|| {
        let name = values::file_name_of(&toml::legible(text, id, "id")?);
        Some(PathBuf::from(format!("/run/sig/{name}.sock")))
    })
}

/// Longest file that is read; far more than any number of prefixes in use needs.
pub const LONGEST_FILE: usize = 64 << 20;

/// Reads a file, without the byte order mark that some editors put first.
///
/// # Errors
///
/// As [`std::fs::read`]; if it is too large: a device that never ends must not fill the memory; and of pipes and sockets that are not
/// somebody's open file in `/dev` or `/proc`: nobody might ever write to them, and who reads a file again and again would wait.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let kind = fs::metadata(path)?.file_type();
    let is_open = ["/dev", "/proc"].iter().any(|of| path.starts_with(of));
    if !is_open && (kind.is_fifo() || kind.is_socket()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a pipe or socket; write to a regular file",
        ));
    }
    let file = File::open(path)?;
    file.take(LONGEST_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST_FILE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {} MiB", LONGEST_FILE >> 20),
        ));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

/// Reads a text file.
///
/// # Errors
///
/// One problem, at line 1 or where the file is not UTF-8. `remedy` follows after the error of a file that cannot be read.
pub fn read_text(path: &Path, remedy: &str) -> Result<String, Errors> {
    let fail = |line, message| {
        Errors::new(vec![Problem {
            file: path.display().to_string(),
            line,
            key: String::new(),
            message,
        }])
    };
    let bytes = read(path).map_err(|error| fail(1, format!("cannot be read: {error}{remedy}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error
            .as_bytes()
            .iter()
            .take(error.utf8_error().valid_up_to());
        let line = 1 + valid.filter(|b| **b == b'\n').count();
        fail(line, "not UTF-8 text; save the file as UTF-8".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody writes to this pipe: who opened it would wait for ever.
    #[test]
    fn a_pipe_is_no_file() {
        let pipe = std::env::temp_dir().join(format!("sig-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let error = read_text(&pipe, "").expect_err("a pipe");
        fs::remove_file(&pipe).expect("it is there");
        assert!(error.to_string().contains("a pipe or socket"), "{error}");
    }
}
