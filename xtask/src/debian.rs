//! Installs packages on Debian, Ubuntu and their derivatives.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Returns whether this system is Debian, Ubuntu or a derivative.
pub fn is_debian() -> bool {
    let release = os_release();
    ["ID", "ID_LIKE"]
        .iter()
        .filter_map(|key| release.get(*key))
        .flat_map(|value| value.split(' '))
        .any(|name| name == "debian" || name == "ubuntu")
}

/// Returns whether `apt-get install` can be run: on a Debian-based system, as root.
pub fn can_install() -> bool {
    is_debian()
        && Command::new("id")
            .arg("-u")
            .output()
            .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Returns a non-interactive `apt-get` command.
pub fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    // Wait up to 120 s for the lock: another apt-get often runs on a machine that has just started.
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(args);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Returns the fields of `/etc/os-release`.
pub fn os_release() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}
