//! Installing packages on Debian, Ubuntu and what descends from them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Whether this is such a system.
pub fn is_debian() -> bool {
    let system = system();
    let names = ["ID", "ID_LIKE"]
        .iter()
        .filter_map(|key| system.get(*key))
        .flat_map(|value| value.split(' '));
    names.into_iter().any(|name| name == "debian" || name == "ubuntu")
}

/// Whether it is, and we are root.
pub fn can_install() -> bool {
    is_debian()
        && Command::new("id")
            .arg("-u")
            .output()
            .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// `apt-get` with these words, which nobody needs to answer.
pub fn apt(words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    // Another apt may hold the lock for a moment, as on a machine that has just started.
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(words);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The fields of /etc/os-release.
pub fn system() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}
