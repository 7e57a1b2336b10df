//! Cargo, started by programs that cargo started.

use std::{env, process::Command};

/// The cargo that runs us, or the one of the search path, for another build of the same workspace.
///
/// Without what it told us about our own package: build scripts of dependencies look at the same variables, and what was
/// built from a shell, with other values or none, would be built again, and the next time from the shell once more.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Whether a variable tells about the package of a program.
fn is_of_package(name: &str) -> bool {
    const OF_PACKAGE: [&str; 4] = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
    ];
    name == "OUT_DIR" || OF_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_about_this_package() {
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo();
        let removed = cargo
            .get_envs()
            .any(|(name, value)| name == "CARGO_MANIFEST_DIR" && value.is_none());
        assert!(removed);
        assert!(!is_of_package("CARGO_TARGET_DIR") && !is_of_package("CARGO_HOME"));
    }
}
