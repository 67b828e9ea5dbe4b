//! The threads of the models.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use burn_wgsl::serve::{JoinConfig, PaddedSizes, Requests, requests};
use llama::config::Config;
use llama::gguf::Gguf;
use llama::linear::Form;
use llama::tokenizer::Tokens;

use crate::classifier::{self, Classifier, Classify};
use crate::device::{Reopened, SharedDevice, attempt};
use crate::http::{Status, TextModel};
use crate::writer::{self, Writer};

/// The sizes of the models' batches, and the form of weights.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub pictures: PaddedSizes,
    pub texts: writer::Sizes,
    pub form: Form,
}

/// Runs the thread of a model. If it ends with an error, the server has failed.
fn spawn(
    name: &str,
    status: &Arc<Status>,
    work: impl FnOnce(&Status) -> Result<()> + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    let status = status.clone();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // A panic would leave a server that seems to work.
        let result = attempt(|| work(&status));
        if let Err(error) = &result {
            log::error!("{error:#}");
            status.set_failed();
        }
        result
    });
    thread.context("no thread can be started")
}

/// Loads the model of digits on a thread of its own, which answers requests.
///
/// # Errors
///
/// Returns an error if no thread can be started. The thread ends with one if the model cannot be loaded, or the device
/// fails.
pub fn start_classifier(
    path: &Path,
    device: &SharedDevice,
    sizes: Sizes,
    join: JoinConfig,
    status: &Arc<Status>,
) -> Result<(Requests<Classify>, JoinHandle<Result<()>>)> {
    let (sender, joined) = requests(join);
    let (path, device) = (path.to_owned(), device.clone());
    let thread = spawn("digits", status, move |status| {
        let of_model = device.selector();
        let open = || Classifier::open(&path, of_model, sizes.pictures);
        let model = Reopened::new(device, open)?;
        status.set_ready();
        classifier::run(model, &joined, &status.metrics)
    })?;
    Ok((sender, thread))
}

/// Opens the file of a model of text, and reads its tokens and sizes.
///
/// # Errors
///
/// Returns an error if the file is not such a model.
pub fn open_text(path: &Path) -> Result<(Gguf, Tokens, Config)> {
    let open = || -> Result<_> {
        let file = Gguf::open(path)?;
        let (tokens, config) = (Tokens::read(file.header())?, Config::read(file.header())?);
        Ok((file, tokens, config))
    };
    open().with_context(|| format!("cannot load {}", path.display()))
}

/// Reads the tokens of a model of text, and loads it on a thread of its own, which answers requests.
///
/// # Errors
///
/// Returns an error if the file is not such a model, or no thread can be started. The thread ends with one if the model
/// cannot be loaded, or the device fails.
pub fn start_text(
    path: &Path,
    device: &SharedDevice,
    sizes: Sizes,
    join: JoinConfig,
    status: &Arc<Status>,
) -> Result<(TextModel, JoinHandle<Result<()>>)> {
    let (mut file, tokens, config) = open_text(path)?;
    let tokens = Arc::new(tokens);
    let capacity = sizes.texts.capacity.min(config.context);
    ensure!(capacity > 1, "{} reads {} tokens at most", path.display(), config.context);
    let texts = writer::Sizes { capacity, ..sizes.texts };
    let (sender, joined) = requests(join);
    let name = path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created = now.as_secs();
    let model = TextModel { name, created, requests: sender, tokens: tokens.clone(), capacity };
    let device = device.clone();
    let thread = spawn("text", status, move |status| {
        let of_model = device.selector();
        let open = || Writer::open(&mut file, texts, sizes.form, &of_model);
        let model = Reopened::new(device, open)?;
        status.set_ready();
        writer::run(model, texts, &tokens, &joined, &status.metrics)
    })?;
    Ok((model, thread))
}
