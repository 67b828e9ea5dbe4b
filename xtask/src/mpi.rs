//! `cargo xtask mpi`: checks and tests the package `mpi/`, which needs an MPI library.

use std::process::Command;

use xtask::debian::{apt_get, can_install};
use xtask::process::{root, run_command};

use crate::options::Options;
use crate::{adapter, workspace};

/// Debian's packages: the library, its launcher, what its bindings are made with, and the commands of network
/// namespaces, between which a test cuts the network.
const PACKAGES: [&str; 4] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev", "iproute2"];

/// Runs the command.
///
/// # Errors
///
/// Returns an error if there is no MPI library or no software adapter, or a check or a test fails.
pub fn run() -> Result<(), String> {
    if !is_there() {
        if !can_install() {
            return Err("found no MPI library (`mpicc` and `mpirun`); install one with its headers, and libclang: on \
                        Debian as root, libopenmpi-dev openmpi-bin libclang-dev iproute2"
                .to_owned());
        }
        run_command(&mut apt_get(&["update"]))?;
        let mut install = apt_get(&["install", "-y", "--no-install-recommends"]);
        run_command(install.args(PACKAGES))?;
    }
    let options = Options::default();
    adapter::ensure(&options)?;
    workspace::check(&root().join("mpi"), &options)
}

/// Returns whether an MPI library can be compiled with, and started.
fn is_there() -> bool {
    let starts = |name| Command::new(name).arg("--version").output();
    let works = |name| starts(name).is_ok_and(|output| output.status.success());
    works("mpicc") && works(&std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned()))
}
