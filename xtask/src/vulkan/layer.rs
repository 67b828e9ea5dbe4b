//! The validation layer, and the adapters that it checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::adapter::Adapter;
use super::build::Tools;
use super::messages::Message;
use super::run::{self, Outcome};
use crate::gpus::pretended::{GPUS, driver_command};
use crate::packages::Packages;

/// The name of the layer.
const LAYER: &str = "VK_LAYER_KHRONOS_validation";

/// The settings of the layer, without the file that it writes to.
///
/// Without `syncval_shader_accesses_heuristic`, the layer ignores what kernels read and write, and
/// checks no barrier between dispatches. A message is never left out because it was repeated.
const SETTINGS: &str = "\
khronos_validation.validate_sync = true
khronos_validation.syncval_shader_accesses_heuristic = true
khronos_validation.report_flags = error,warn,info
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.enable_message_limit = false
khronos_validation.check_shaders_caching = false
";

/// The unpacked layer and its settings.
pub struct Layer {
    packages: Packages,
    folder: PathBuf,
}

impl Layer {
    /// Writes the settings to `folder`, where the output of programs will be.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be written.
    pub fn install(packages: Packages, folder: PathBuf) -> Result<Self, String> {
        let layer = Self { packages, folder };
        let settings = format!("{SETTINGS}khronos_validation.log_filename = {}\n", layer.pipe());
        fs::create_dir_all(&layer.folder)
            .and_then(|()| fs::write(layer.settings(), settings))
            .map_err(|error| format!("cannot write {}: {error}", layer.settings().display()))?;
        Ok(layer)
    }

    /// Returns a command that runs a program on an adapter with the layer.
    ///
    /// # Errors
    ///
    /// Returns an error if the packages lack the driver or its stand-in.
    pub fn command(
        &self,
        adapter: Adapter,
        program: &Path,
        tools: &Tools,
    ) -> Result<Command, String> {
        let name = adapter.name();
        let mut command = match adapter {
            Adapter::Lavapipe => driver_command(&self.packages, name, "lvp", program, &[])?,
            Adapter::Pretended => {
                let gpu = GPUS.iter().find(|gpu| gpu.name == name).ok_or("the GPU is unknown")?;
                gpu.command_with(&self.packages, program, Some(&tools.patch))?
            }
        };
        let layers = self.packages.share_folder().join("vulkan/explicit_layer.d");
        command.env("VK_LAYER_PATH", layers);
        command.env("VK_INSTANCE_LAYERS", LAYER);
        command.env("VK_LAYER_SETTINGS_PATH", self.settings());
        // wgpu gives its objects names, which are then in the messages.
        command.env("WGPU_DEBUG", "1");
        Ok(command)
    }

    /// Runs a program to its end. `name` is the name of its output files.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started or its output cannot be read.
    pub fn run(&self, command: &mut Command, name: &str) -> Result<Outcome, String> {
        run::run(command, &self.folder.join(name.replace(' ', "-")), Path::new(&self.pipe()))
    }

    /// Returns whether the layer finds a missing barrier on an adapter.
    ///
    /// # Errors
    ///
    /// Returns an error if the adapter cannot be had.
    pub fn finds_missing_barrier(&self, adapter: Adapter, tools: &Tools) -> Result<bool, String> {
        let mut command = self.command(adapter, &tools.missing_barriers, tools)?;
        let outcome = self.run(&mut command, &format!("{adapter} missing-barriers"))?;
        match outcome.failure {
            None => Ok(outcome.messages.iter().any(Message::is_missing_barrier)),
            Some(reason) => Err(format!("{reason}; see {}", outcome.output.display())),
        }
    }

    fn settings(&self) -> PathBuf {
        self.folder.join("vk_layer_settings.txt")
    }

    /// Returns the path of the pipe that the layer writes to. A file would be emptied whenever a
    /// program or its child creates an instance.
    fn pipe(&self) -> String {
        self.folder.join("messages.pipe").display().to_string()
    }
}
