//! Checkpoints: resumed runs with the same bits, processes that are killed, damaged files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::cosine::{CosineAnnealingLrScheduler, CosineAnnealingLrSchedulerConfig};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig, ScaledOptimizer};
use burn_wgsl::train::{
    Checkpoint, CheckpointError, Checkpoints, Ema, Loader, LoaderConfig, Parts, Run, RunConfig,
    Saved, Shuffled, State, Stop,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{devices, is_alone, test_alone};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    dropout: Dropout,
    out: Linear<B>,
}

fn model(device: &WgslDevice, width: usize) -> Model<B> {
    Model {
        hidden: LinearConfig::new(6, width).init(device),
        dropout: DropoutConfig::new(0.3).init(),
        out: LinearConfig::new(width, 2).init(device),
    }
}

struct Rows;

impl Batcher<B, usize, Tensor<B, 2>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &WgslDevice) -> Tensor<B, 2> {
        let shape = [items.len(), 6];
        let values = items.iter().flat_map(|item| (0..6).map(move |i| (item * 7 + i * 13) % 11));
        let values: Vec<f32> = values.map(|value| value as f32 / 5.0 - 1.0).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("burn-wgsl-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A run of a model with all that a run can have.
struct Trainer {
    model: Model<B>,
    optimizer: ScaledOptimizer<OptimizerAdaptor<Adam, Model<B>, B>>,
    scaler: GradScaler,
    rate: CosineAnnealingLrScheduler,
    average: Ema<Model<Wgsl>>,
    loader: Arc<Loader<B, usize, Tensor<B, 2>>>,
    losses: Vec<f32>,
}

impl Trainer {
    fn new(device: &WgslDevice) -> Self {
        let scaler = GradScalerConfig { growth_interval: 3, ..Default::default() }.init(device);
        let dataset = InMemDataset::new((0..40).collect());
        let loader = Loader::new(dataset, Rows, device, LoaderConfig::new(8)).expect("it is valid");
        let loader =
            loader.with_sampler(Shuffled { seed: 5 }).expect("it takes any number of items");
        let model = model(device, 8);
        Self {
            average: Ema::new(&model, 0.9),
            model,
            optimizer: scaler.wrap(AdamConfig::new().init()),
            scaler,
            rate: CosineAnnealingLrSchedulerConfig::new(1e-2, 23).init().expect("it is valid"),
            loader: Arc::new(loader),
            losses: Vec::new(),
        }
    }

    fn step(&mut self, x: Tensor<B, 2>) {
        let model = &self.model;
        let hidden = model.dropout.forward(model.hidden.forward(x.clone()).tanh());
        let loss = (model.out.forward(hidden) - x.narrow(1, 0, 2)).powi_scalar(2).mean();
        let gradients = self.scaler.scale(loss.clone()).backward();
        let gradients = GradientsParams::from_grads(gradients, model);
        self.model = self.optimizer.step(self.rate.step(), model.clone(), gradients);
        self.average.update(&self.model);
        self.losses.push(loss.into_scalar());
    }
}

impl Saved for Trainer {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module("model", &mut self.model)?;
        parts.optimizer("optimizer", &mut self.optimizer)?;
        parts.scheduler("rate", &mut self.rate)?;
        parts.average("average", &mut self.average)?;
        parts.loader("position", &self.loader)?;
        parts.value("losses", &mut self.losses)
    }
}

/// Trains up to a step, from the latest checkpoint on, and saves after it. Returns what is to be equal.
fn train(folder: &Path, last: u64, device: &WgslDevice) -> Vec<TensorData> {
    let mut trainer = Trainer::new(device);
    let stop = Stop::new();
    let mut run = Run::open(folder, &[*device], RunConfig::default()).expect("it is writable");
    run = run.with_stop(stop.clone());
    run.resume(&mut trainer).expect("it is whole");
    let loader = trainer.loader.clone();
    'run: while run.step() < last {
        for batch in loader.batches() {
            trainer.step(batch.expect("it is loaded"));
            if run.step() + 1 == last {
                stop.request();
            }
            if !run.end_step(&mut trainer).expect("the folder is writable") {
                break 'run;
            }
        }
    }
    assert_eq!((run.step(), trainer.losses.len()), (last, last as usize));
    let weight = |layer: &Linear<B>| layer.weight.val().into_data();
    let average = trainer.average.model().out.weight.val().into_data();
    vec![weight(&trainer.model.hidden), weight(&trainer.model.out), average]
}

/// In a process of its own: other tests draw random numbers from the same stream of a device.
#[test]
fn a_resumed_run_has_the_same_bits() {
    if !is_alone(test_alone!("a_resumed_run_has_the_same_bits")) {
        return;
    }
    for device in devices() {
        let parts = |steps: &[u64]| {
            let folder = Folder::new("bits");
            Wgsl::seed(&device, 21);
            let mut result = Vec::new();
            for step in steps {
                result = train(&folder.0, *step, &device);
                // What comes between does not matter.
                Wgsl::seed(&device, 99);
            }
            result
        };
        let expected = parts(&[23]);
        for steps in [&[1, 23][..], &[5, 6, 23], &[10, 22, 23]] {
            assert_eq!(parts(steps), expected, "{steps:?} on {device}");
        }
        assert_ne!(parts(&[22]), expected);
    }
}

fn value(number: u64) -> State {
    let mut state = State::new();
    state.set_value("number", &number).expect("it is plain data");
    state.set_value("large", &vec![number; 20_000]).expect("it is plain data");
    state
}

#[test]
fn a_process_that_is_killed_leaves_whole_checkpoints() {
    let folder = Folder::new("killed");
    let mut last = 0;
    for round in 0..20 {
        let mut test = test_alone!("saves_for_ever");
        let mut child = test.env("CHECKPOINTS", &folder.0).spawn().expect("it starts");
        // Until it has saved, and then to another point of a save.
        let start = std::time::Instant::now();
        while newest(&folder.0).is_none_or(|step| step <= last) {
            let is_late = start.elapsed().as_secs() > 60;
            if is_late {
                child.kill().expect("it runs");
            }
            assert!(!is_late, "the child saves nothing");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 531));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let mut checkpoints = Checkpoints::open(&folder.0, 2).expect("the folder is writable");
        let found = checkpoints.latest().expect("it is whole").expect("there is one");
        assert!(found.damaged.is_empty(), "{:?}", found.damaged);
        assert!(found.step > last, "{} after {last}", found.step);
        assert_eq!(found.state, value(found.step));
        last = found.step;
        let left = names(&folder.0);
        // A process that is killed before it removes old ones leaves one more.
        assert!((1..=5).contains(&left.len()), "{left:?}");
    }
}

/// Returns the names in a folder, but for the lock's.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is readable").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().into_string().expect("it is ASCII")).collect();
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

/// Returns the newest step, by the names of folders.
fn newest(folder: &Path) -> Option<u64> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let step = |name: &str| name.split_once("-step-")?.1.parse().ok();
    let is_complete = |name: &String| !name.starts_with('.');
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(is_complete).filter_map(|name| step(&name)).max()
}

#[test]
#[ignore = "runs in a child process"]
fn saves_for_ever() {
    let Some(folder) = std::env::var_os("CHECKPOINTS") else { return };
    let mut checkpoints = Checkpoints::open(folder, 2).expect("the folder is writable");
    let latest = checkpoints.latest().expect("it is whole");
    for step in latest.map_or(0, |found| found.step) + 1.. {
        checkpoints.save(step, value(step), None).expect("the folder is writable");
    }
}

#[test]
fn damaged_checkpoints_are_passed_over_and_named() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("has 3 bytes", |folder| {
            fs::write(folder.join("part-number"), "999").expect("it is writable")
        }),
        ("checksum mismatch", |folder| {
            fs::write(folder.join("part-number"), "9").expect("it is writable")
        }),
        ("it is missing", |folder| {
            fs::remove_file(folder.join("part-large")).expect("it is there")
        }),
        ("damaged", |folder| fs::write(folder.join("manifest.json"), "{").expect("it is writable")),
        ("it is that of step 77", |folder| {
            let text = fs::read_to_string(folder.join("manifest.json")).expect("it is there");
            let step =
                text.lines().find(|line| line.contains("\"step\"")).expect("there is a step");
            let text = text.replace(step, "\"step\": 77,");
            fs::write(folder.join("manifest.json"), text).expect("it is writable");
        }),
        ("is no name of a part", |folder| {
            let text = fs::read_to_string(folder.join("manifest.json")).expect("it is there");
            let text = text.replace("\"number\"", "\"../../number\"");
            fs::write(folder.join("manifest.json"), text).expect("it is writable");
        }),
    ];
    for (reason, damage) in damages {
        let folder = Folder::new("damaged");
        let mut checkpoints = Checkpoints::open(&folder.0, 3).expect("the folder is writable");
        assert_eq!(checkpoints.latest(), Ok(None));
        for step in [1, 2, 3] {
            checkpoints.save(step, value(step), None).expect("the folder is writable");
        }
        checkpoints.finish().expect("the folder is writable");
        damage(&folder.0.join("000002-step-00000003"));
        let found = checkpoints.latest().expect("one is whole").expect("there are some");
        assert_eq!((found.step, found.damaged.len()), (2, 1));
        assert!(found.damaged[0].to_string().contains(reason), "{}", found.damaged[0]);
        for name in ["000000-step-00000001", "000001-step-00000002"] {
            damage(&folder.0.join(name));
        }
        // A run must not begin again in silence where there were checkpoints.
        assert!(checkpoints.latest().is_err_and(|error| error.to_string().contains(reason)));
    }
}

#[test]
fn the_newest_and_the_best_stay() {
    let folder = Folder::new("best");
    let mut checkpoints = Checkpoints::open(&folder.0, 2).expect("the folder is writable");
    for (step, score) in [(1, 0.2), (2, 0.9), (3, f64::NEG_INFINITY), (4, 0.5), (5, 0.1), (5, 0.3)]
    {
        checkpoints.save(step, value(step), Some(score)).expect("the folder is writable");
    }
    let best = checkpoints.best().expect("it is whole").expect("there is one");
    assert_eq!((best.step, best.score), (2, Some(0.9)));
    assert_eq!(
        names(&folder.0),
        ["000001-step-00000002", "000004-step-00000005", "000005-step-00000005"]
    );
    let latest = checkpoints.latest().expect("it is whole").expect("there is one");
    assert_eq!((latest.step, latest.score), (5, Some(0.3)));
    // A run that goes back to the best: what it saves is the newest.
    checkpoints.save(3, value(3), None).expect("the folder is writable");
    let latest = checkpoints.latest().expect("it is whole").expect("there is one");
    assert_eq!((latest.step, latest.state), (3, value(3)));
}

#[test]
fn another_format_is_an_error_and_readers_change_nothing() {
    let folder = Folder::new("format");
    let mut checkpoints = Checkpoints::open(&folder.0, 3).expect("the folder is writable");
    for step in [1, 2] {
        checkpoints.save(step, value(step), None).expect("the folder is writable");
    }
    checkpoints.finish().expect("the folder is writable");
    let incomplete = folder.0.join(".incomplete-000002-step-00000003");
    fs::create_dir(&incomplete).expect("the folder is writable");
    let found = Checkpoint::latest(&folder.0).expect("it is whole").expect("it is there");
    assert_eq!((found.step, Checkpoint::best(&folder.0)), (2, Ok(None)));
    let error = Checkpoints::open(&folder.0, 3).expect_err("it is locked");
    assert!(matches!(error, CheckpointError::InUse { .. }) && incomplete.exists(), "{error}");
    drop(checkpoints);
    let mut checkpoints = Checkpoints::open(&folder.0, 3).expect("the folder is writable");
    assert!(!incomplete.exists());
    // Older checkpoints must not be used in silence.
    let manifest = folder.0.join("000001-step-00000002/manifest.json");
    let text = fs::read_to_string(&manifest).expect("it is there");
    fs::write(
        &manifest,
        text.replace("\"version\": 1", "\"version\": 7").replace("parts", "files"),
    )
    .expect("as above");
    let error = checkpoints.latest().expect_err("the format is another");
    assert!(error.to_string().contains("has the format 7"), "{error}");
}

#[test]
fn what_cannot_be_saved_or_used_is_an_error() {
    let device = WgslDevice::Cpu;
    let folder = Folder::new("errors");
    let mut checkpoints = Checkpoints::open(&folder.0, 1).expect("the folder is writable");
    let mut state = State::new();
    state.set_module("model", &model(&device, 8)).expect("it is recorded");
    for name in ["", "../model", "a b", "a/b", "Model", "manifest.json"] {
        let error = state.set_value(name, &1).expect_err("it is no name");
        assert!(matches!(error, CheckpointError::Name { .. }), "{error}");
    }
    checkpoints.save(1, state, None).expect("there was none before");
    let state = checkpoints.latest().expect("it is whole").expect("it is there").state;
    // Burn creates the parameters of a model at their first use: it must be that of the save.
    let fresh = model(&device, 8);
    let mut saved = State::new();
    saved.set_module("model", &fresh).expect("it is recorded");
    let loaded = saved.module("model", model(&device, 8), &device).expect("it is the same model");
    let weight = |model: &Model<B>| model.out.weight.val().into_data();
    assert_eq!(weight(&loaded), weight(&fresh));
    assert!(state.module("model", model(&device, 8), &device).is_ok());
    let error = state.module("model", model(&device, 9), &device).expect_err("it is wider");
    let text = error.to_string();
    assert!(text.contains("hidden.weight") && text.contains("[6, 8]"), "{text}");
    assert!(state.module("model", LinearConfig::new(6, 8).init::<B>(&device), &device).is_err());
    assert!(state.value::<u64>("model").is_err());
    // Burn panics at another number of layers.
    let layers = |count| {
        (0..count).map(|_| LinearConfig::new(2, 2).init(&device)).collect::<Vec<Linear<B>>>()
    };
    let mut list = State::new();
    list.set_module("layers", &layers(2)).expect("it is recorded");
    assert!(list.module("layers", layers(2), &device).is_ok());
    assert!(list.module("layers", layers(3), &device).is_err());
    let error = state.value::<u64>("position").expect_err("there is none");
    assert!(error.to_string().contains("its parts are [\"model\"]"), "{error}");

    // The folder vanishes: the next call says so.
    fs::remove_dir_all(&folder.0).expect("it is there");
    fs::write(&folder.0, "a file").expect("it is writable");
    checkpoints.save(2, value(2), None).expect("the error comes later");
    let error = checkpoints.finish().expect_err("there is a file in the place of the folder");
    assert!(error.to_string().contains("cannot read"), "{error}");
    drop(checkpoints);
    assert!(Checkpoints::open(&folder.0, 1).is_err());
    fs::remove_file(&folder.0).expect("it is there");
}

#[test]
fn runs_with_other_parts_are_errors() {
    let device = WgslDevice::Cpu;
    let folder = Folder::new("parts");
    let open = |devices: &[WgslDevice]| Run::open(&folder.0, devices, RunConfig::default());
    assert!(open(&[]).is_err());
    let mut rate = 0.5f64;
    let mut run = open(&[device]).expect("the folder is writable");
    let mut parts = |parts: &mut Parts<'_>| parts.value("rate", &mut rate);
    assert!(run.resume(&mut parts).expect("there is none").is_none());
    run.save(&mut parts, Some(0.1)).expect("the folder is writable");
    // What is saved already is not saved again, but a new score is.
    for (score, count) in [(None, 1), (Some(0.1), 1), (Some(0.2), 2)] {
        run.save(&mut parts, score).expect("the folder is writable");
        run.finish().expect("the folder is writable");
        assert_eq!(names(&folder.0).len(), count);
    }
    assert_eq!(run.best().expect("it is whole").expect("there is one").score, Some(0.2));
    let error = open(&[device]).expect_err("it is locked");
    assert!(matches!(error, CheckpointError::InUse { .. }), "{error}");
    drop(run);
    let mut run = open(&[device; 2]).expect("the folder is writable");
    let error = run.resume(&mut parts).expect_err("it has another number of devices");
    assert!(error.to_string().contains("a state for 1, and the run has 2"), "{error}");
    let mut other = |parts: &mut Parts<'_>| parts.value("epoch", &mut 1);
    let error = run.resume(&mut other).expect_err("there is no such part");
    assert!(matches!(error, CheckpointError::NoPart { .. }), "{error}");
    let set = |seed: u64| move |parts: &mut Parts<'_>| parts.setting("rate", &(seed as f64 / 2.0));
    drop(run);
    let mut run = open(&[device]).expect("the folder is writable");
    assert!(run.begin(true, &mut set(1)).expect("it is the same setting").is_some());
    let error = run.begin(true, &mut set(2)).expect_err("it is another setting").to_string();
    assert!(error.contains("`rate` = 0.5") && error.contains("with 1.0"), "{error}");
    let error = run.begin(false, &mut set(1)).expect_err("there are checkpoints");
    assert!(matches!(error, CheckpointError::NotEmpty { .. }), "{error}");
    let nothing = Folder::new("nothing");
    let mut none = Run::open(&nothing.0, &[device], RunConfig::default()).expect("it is writable");
    let error = none.begin(true, &mut set(1)).expect_err("there are no checkpoints");
    assert!(matches!(error, CheckpointError::NothingToResume { .. }), "{error}");
    assert!(none.begin(false, &mut set(1)).expect("there are no checkpoints").is_none());
    // Exactly the same numbers come back, and a name is that of one part.
    let numbers = [0.985_690_694_632_869_5, f64::INFINITY, f64::NAN, -0.0, f64::MIN_POSITIVE / 3.0];
    let mut state = State::new();
    state.set_value("numbers", &numbers).expect("it is plain data");
    let found: [f64; 5] = state.value("numbers").expect("it is there");
    assert_eq!(found.map(f64::to_bits), numbers.map(f64::to_bits));
    let error = state.set_value("numbers", &1).expect_err("it is there already");
    assert!(matches!(error, CheckpointError::Repeated { .. }), "{error}");
    let mut taken = |parts: &mut Parts<'_>| parts.value("random", &mut 1);
    let error = none.save(&mut taken, None).expect_err("it is the name of another part");
    assert!(matches!(error, CheckpointError::Repeated { .. }), "{error}");
    // A signal saves after the step that is under way.
    drop(run);
    let stop = Stop::new();
    let mut run = open(&[device]).expect("the folder is writable").with_stop(stop.clone());
    run.resume(&mut parts).expect("it is whole").expect("it is there");
    assert!(run.end_step(&mut parts).expect("the folder is writable"));
    assert_eq!(names(&folder.0).len(), 2);
    stop.request();
    assert!(!run.end_step(&mut parts).expect("the folder is writable"));
    let newest = Checkpoint::latest(&folder.0).expect("it is whole").expect("it is there");
    assert_eq!((run.step(), newest.step), (2, 2));
}

/// A file that may not grow is what a full disk is: the write of some bytes succeeds, and then there is an error.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_the_checkpoint_before_stays() {
    let folder = Folder::new("full");
    let child = "trap '' XFSZ; ulimit -f 40; exec \"$0\" --exact --ignored --nocapture checkpoints::fills_the_disk";
    let output = std::process::Command::new("sh")
        .args(["-c", child])
        .arg(std::env::current_exe().expect("this test has a path"))
        .env("CHECKPOINTS", &folder.0)
        .output()
        .expect("a shell runs");
    crate::common::assert_success(&output);
    let newest = Checkpoint::latest(&folder.0).expect("it is whole").expect("it is there");
    assert_eq!((newest.step, names(&folder.0)), (1, vec!["000000-step-00000001".to_owned()]));
}

#[test]
#[ignore = "runs in a child process"]
fn fills_the_disk() {
    let Some(folder) = std::env::var_os("CHECKPOINTS") else { return };
    let mut checkpoints = Checkpoints::open(&folder, 2).expect("the folder is writable");
    let state = |bytes: usize| {
        let mut state = State::new();
        state.set_value("text", &"x".repeat(bytes)).expect("it is plain data");
        state
    };
    checkpoints.save(1, state(1000), None).expect("there was none before");
    checkpoints.save(2, state(100_000), None).expect("the one before was written");
    let error = checkpoints.finish().expect_err("the disk is full");
    assert!(error.to_string().contains("cannot write"), "{error}");
    // The run goes on: what fits is saved.
    checkpoints.save(3, state(100), None).expect("the error was returned");
    checkpoints.finish().expect("it fits");
    fs::remove_dir_all(std::path::Path::new(&folder).join("000001-step-00000003"))
        .expect("it is there");
}
