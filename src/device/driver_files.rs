//! The environment variables that tell Vulkan where its drivers are, and hide all others.

use std::path::PathBuf;

/// The variables, in the order in which the Vulkan loader reads them.
const VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// Returns a sentence about a variable that hides drivers; an empty text if none is set.
pub(super) fn driver_note() -> String {
    let set = |name: &&'static str| {
        std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| (*name, value))
    };
    // Elsewhere, Vulkan is not what devices are found by.
    let Some((name, value)) = VARIABLES.iter().find_map(set).filter(|_| cfg!(target_os = "linux"))
    else {
        return String::new();
    };
    note(name, std::env::split_paths(&value).collect())
}

fn note(name: &str, files: Vec<PathBuf>) -> String {
    let missing = files.iter().filter(|file| !file.exists());
    let list = |files: Vec<&PathBuf>| {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        files.join(", ")
    };
    let missing = list(missing.collect());
    if missing.is_empty() {
        let files = list(files.iter().collect());
        return format!("{name}={files} hides all other Vulkan drivers: unset it to see them.");
    }
    format!(
        "{name} names a file that does not exist ({missing}), and hides all other Vulkan drivers: unset it, or \
         name the \
         manifest of a driver."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named() {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let missing = here.join("no-such-driver.json");
        let found = note("VK_DRIVER_FILES", vec![here.clone(), missing]);
        assert!(found.contains("VK_DRIVER_FILES names a file that does not exist"), "{found}");
        assert!(found.contains("no-such-driver.json"), "{found}");
        let found = note("VK_DRIVER_FILES", vec![here]);
        assert!(found.contains("hides all other Vulkan drivers"), "{found}");
    }
}
