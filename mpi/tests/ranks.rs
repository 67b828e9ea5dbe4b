//! Jobs of several ranks: each test starts `mpirun` with this program, which runs one of the scenarios below.

#[path = "../../tests/training/cnn.rs"]
mod cnn;
#[path = "../../tests/training/networks.rs"]
mod networks;

use std::any::type_name;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_wgsl::parallel::{self, ParallelError, Worker, Workers};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use burn_wgsl_mpi::{Job, MpiError};

use cnn::Cnn;
use networks::{Exchanged, Gpt, Mlp, Network, train, worst};

type B = Autodiff<Wgsl>;

/// The deadline of scenarios that fail.
const DEADLINE: Duration = Duration::from_secs(3);
/// How much longer than it the end of a job may take, with the start of the job.
const SLACK: Duration = Duration::from_secs(30);

/// What a job printed, its exit code, and how long it took.
struct Ended {
    text: String,
    code: Option<i32>,
    took: Duration,
}

/// Returns the launcher with the options that this machine needs.
fn launcher() -> Command {
    let name = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let version = Command::new(&name).arg("--version").output();
    let version = version.unwrap_or_else(|error| {
        panic!("{name} cannot be started: {error}; install an MPI library, such as openmpi-bin")
    });
    let mut command = Command::new(name);
    if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        // More ranks than cores.
        command.args(["--oversubscribe", "--allow-run-as-root"]);
    }
    command
}

/// Returns the arguments with which this program runs a scenario.
fn scenario(name: &str) -> [&str; 5] {
    [name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]
}

/// Runs a scenario with some ranks.
fn job(ranks: usize, name: &str) -> Ended {
    let mut command = launcher();
    command.args(["-n", &ranks.to_string()]);
    command.arg(std::env::current_exe().expect("it has a path")).args(scenario(name));
    end(command)
}

/// Runs a command to its end, and kills it if it takes too long.
fn end(mut command: Command) -> Ended {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("RUST_BACKTRACE", "0");
    let mut child = command.spawn().expect("it starts");
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || read(out));
    let err = std::thread::spawn(move || read(err));
    let code = wait(&mut child, Duration::from_secs(180));
    let text = [out.join().expect("it reads"), err.join().expect("it reads")].concat();
    Ended { text, code, took: start.elapsed() }
}

fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).expect("the pipe can be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends").code()
}

/// Checks that a job failed in time, that all ranks but some printed a text, and that no process is left.
fn assert_failed(ended: &Ended, ranks: usize, text: &str) {
    let Ended { text: output, code, took } = ended;
    assert_ne!(*code, Some(0), "{output}");
    assert!(*took < DEADLINE + SLACK, "{took:?}: {output}");
    let found = output.matches(text).count();
    assert!(found >= ranks, "{found} of {ranks} printed `{text}`: {output}");
}

/// Runs a program in a scenario, on the CPU. Ends the process with the error, as a program would.
fn run<T: Send>(job: Job, program: impl Fn(&Worker) -> Result<T, ParallelError> + Sync) {
    log_errors();
    if let Err(error) = burn_wgsl_mpi::run(job, program) {
        fail(&error);
    }
}

/// Each rank logs its error before the first one ends: then the launcher ends the others.
fn log_errors() {
    env_logger::Builder::new().filter_level(log::LevelFilter::Error).init();
}

fn fail(error: &MpiError) -> ! {
    // Ranks write to the same pipe: a line is one write.
    let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
    std::process::exit(1)
}

fn cpus() -> Workers {
    Workers::threads([WgslDevice::Cpu]).oversubscribed(true)
}

fn failing() -> Job {
    Job::new(cpus().with_deadline(DEADLINE))
}

/// Checks the weights of a job beside those of one worker, and of as many in threads.
fn train_beside_one<N: Network>(worker: &Worker, tolerance: f32) -> Result<(), ParallelError> {
    let in_threads = |count| {
        let cpus = Workers::threads(vec![WgslDevice::Cpu; count]).oversubscribed(true);
        let trained = parallel::run(cpus, |worker| train::<N>(worker, Exchanged::After(1)));
        trained.expect("they train").remove(0)
    };
    let (one, threads) = (in_threads(1), in_threads(worker.world()));
    let mut before = None;
    for exchanged in [Exchanged::After(1), Exchanged::Watched] {
        let all = train::<N>(worker, exchanged)?;
        let worst = worst(&one, &all);
        assert!(worst <= tolerance, "{worst} in {}", type_name::<N>());
        assert!(worst > 0.0 || tolerance < 1e-3, "it is rounded");
        assert!(*before.get_or_insert_with(|| all.clone()) == all, "equal bits");
        assert!(all == threads || tolerance > 1e-3, "the bits of threads");
    }
    Ok(())
}

#[test]
fn ranks_take_the_steps_of_one_worker_with_the_whole_batch() {
    for (ranks, name) in
        [(2, "trains"), (4, "trains"), (2, "trains_in_bf16"), (3, "trains_in_bf16")]
    {
        let ended = job(ranks, name);
        assert_eq!(ended.code, Some(0), "{ranks}: {}", ended.text);
        assert_eq!(ended.text.matches("1 passed").count(), ranks, "{}", ended.text);
    }
}

#[test]
#[ignore = "a scenario"]
fn trains() {
    run(Job::new(cpus()), |worker| {
        train_beside_one::<Cnn<B>>(worker, 1e-6)?;
        train_beside_one::<Mlp<B>>(worker, 1e-6)?;
        train_beside_one::<Gpt<B>>(worker, 1e-6)
    });
}

#[test]
#[ignore = "a scenario"]
fn trains_in_bf16() {
    run(Job::new(cpus()).in_bf16(true), |worker| train_beside_one::<Cnn<B>>(worker, 2e-2));
}

#[test]
fn exchanges_are_those_of_threads() {
    for ranks in [1, 2, 3] {
        let ended = job(ranks, "exchanges");
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
}

#[test]
#[ignore = "a scenario"]
fn exchanges() {
    run(Job::new(cpus()), |worker| {
        let (rank, world) = (worker.rank() as f64, worker.world() as f64);
        let total = world * (world - 1.0) / 2.0;
        assert_eq!(worker.sum(&[1.0, rank])?, [world, total]);
        assert!(worker.sum(&[])?.is_empty());
        assert_eq!(worker.mean_of(rank, 2)?, total / world);
        worker.agree("the seed", 7)?;
        worker.balance(rank + 1.0)?;
        assert!(worker.batch_size(64)? >= 1);
        // More than a bucket, and more than a message of the eager protocol.
        let device = worker.device();
        let layer: Linear<B> = LinearConfig::new(1100, 1200).init(&device);
        let layer = worker.broadcast(layer)?;
        let x = Tensor::<B, 2>::ones([1, 1100], &device) * (rank + 1.0);
        let gradients = GradientsParams::from_grads(layer.forward(x).sum().backward(), &layer);
        let mut mean = worker.mean(gradients, &layer, 1)?;
        let mean: Tensor<Wgsl, 2> = mean.remove(layer.weight.id).expect("it has gradients");
        let [least, most] = [mean.clone().min(), mean.max()].map(Tensor::into_scalar);
        assert!(least == most && (f64::from(least) - (world + 1.0) / 2.0).abs() < 1e-6, "{least}");
        // A worker without samples, whose gradients are NaN.
        let layer: Linear<B> = worker.broadcast(LinearConfig::new(2, 1).init(&device))?;
        let x = if worker.is_first() { 1.0 } else { f32::NAN };
        let x = Tensor::<B, 2>::full([1, 2], x, &device);
        let gradients = GradientsParams::from_grads(layer.forward(x).sum().backward(), &layer);
        let samples = usize::from(worker.is_first());
        let mut mean = worker.mean(gradients, &layer, samples)?;
        let mean: Tensor<Wgsl, 2> = mean.remove(layer.weight.id).expect("it has gradients");
        assert_eq!(mean.into_data().to_vec::<f32>().expect("it is f32"), [1.0, 1.0]);
        Ok(())
    });
}

/// Takes steps, and does something else before one of them.
fn steps(
    worker: &Worker,
    wrong: impl Fn(usize) -> Result<bool, ParallelError>,
) -> Result<(), ParallelError> {
    let layer: Linear<B> = LinearConfig::new(2, 1).init(&worker.device());
    for step in 0..6 {
        if wrong(step)? {
            return Ok(());
        }
        let loss = layer.forward(Tensor::<B, 2>::ones([1, 2], &worker.device())).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &layer);
        worker.mean::<B, _>(gradients, &layer, 1)?;
    }
    Ok(())
}

#[test]
fn a_rank_that_fails_ends_all_with_its_error() {
    let ended = job(3, "fails");
    assert_failed(&ended, 3, "worker 1 failed in step 3: the disk is full");
    let ended = job(3, "panics");
    assert_failed(&ended, 3, "worker 1 panicked in step 3: on purpose");
    let ended = job(3, "ends_early");
    assert_failed(&ended, 3, "worker 1 has ended after 3 steps");
    let ended = job(3, "exchanges_something_else");
    assert_failed(&ended, 3, "the workers differ in what they exchange");
}

#[test]
#[ignore = "a scenario"]
fn fails() {
    log_errors();
    let result = burn_wgsl_mpi::run(failing(), |worker| {
        steps(worker, |step| match (worker.rank(), step) {
            (1, 3) => {
                Err(ParallelError::Reported { rank: 9, message: "the disk is full".to_owned() })
            }
            _ => Ok(false),
        })
        .map_err(|error| match error {
            ParallelError::Reported { rank: 9, message } => message,
            other => other.to_string(),
        })
    });
    fail(&result.expect_err("a worker fails"));
}

/// MPI ends a process that goes on after the error.
#[test]
fn a_rank_that_goes_on_is_ended() {
    let ended = job(2, "goes_on");
    assert_ne!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.took < DEADLINE + SLACK, "{:?}", ended.took);
}

#[test]
#[ignore = "a scenario"]
fn goes_on() {
    let result = burn_wgsl_mpi::run(failing(), |_| Err::<(), _>("the disk is full"));
    result.expect_err("a worker fails");
    std::thread::sleep(DEADLINE + 2 * SLACK);
}

#[test]
#[ignore = "a scenario"]
fn panics() {
    run(failing(), |worker| {
        steps(worker, |step| {
            assert!((worker.rank(), step) != (1, 3), "on purpose");
            Ok(false)
        })
    });
}

#[test]
#[ignore = "a scenario"]
fn ends_early() {
    run(failing(), |worker| steps(worker, |step| Ok((worker.rank(), step) == (1, 3))));
}

#[test]
#[ignore = "a scenario"]
fn exchanges_something_else() {
    run(failing(), |worker| {
        steps(worker, |step| match (worker.rank(), step) {
            (1, 3) => worker.agree("x", 1).map(|()| false),
            _ => Ok(false),
        })
    });
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    for name in ["hangs", "stops"] {
        let ended = job(3, name);
        let what = "for worker 1 with the mean of gradients of 2 parameters";
        assert_failed(&ended, 2, what);
        assert!(ended.text.contains("in step 3"), "{}", ended.text);
    }
}

#[test]
#[ignore = "a scenario"]
fn hangs() {
    run(failing(), |worker| {
        steps(worker, |step| {
            while (worker.rank(), step) == (1, 3) {
                std::thread::sleep(Duration::from_secs(1));
            }
            Ok(false)
        })
    });
}

/// Sends a signal to this process.
fn signal(name: &str) {
    let process = std::process::id().to_string();
    Command::new("kill").args([name, &process]).status().expect("kill is there");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
#[ignore = "a scenario"]
fn stops() {
    run(failing(), |worker| {
        steps(worker, |step| {
            if (worker.rank(), step) == (1, 3) {
                signal("-STOP");
            }
            Ok(false)
        })
    });
}

/// The launcher ends the others: they have no time for an error of their own.
#[test]
fn a_rank_that_dies_ends_the_job() {
    let ended = job(3, "dies");
    assert_ne!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.took < DEADLINE + SLACK, "{:?}", ended.took);
}

#[test]
#[ignore = "a scenario"]
fn dies() {
    run(failing(), |worker| {
        steps(worker, |step| {
            if (worker.rank(), step) == (1, 3) {
                signal("-KILL");
            }
            Ok(false)
        })
    });
}

/// Two network namespaces with a link between them, as two machines. Needs root, and `ip`.
struct Machines;

impl Machines {
    const OTHER: &str = "ranks-other";

    fn new() -> Option<Self> {
        let ip = |arguments: &str| {
            let result = Command::new("ip").args(arguments.split(' ')).output();
            result.is_ok_and(|output| output.status.success())
        };
        ip("netns delete ranks-other");
        ip("netns delete ranks-own");
        let commands = [
            "netns add ranks-own",
            "netns add ranks-other",
            "link add ranks0 netns ranks-own type veth peer name ranks1 netns ranks-other",
            "-n ranks-own addr add 10.77.0.1/24 dev ranks0",
            "-n ranks-other addr add 10.77.0.2/24 dev ranks1",
            "-n ranks-own link set ranks0 up",
            "-n ranks-other link set ranks1 up",
            "-n ranks-own link set lo up",
            "-n ranks-other link set lo up",
        ];
        let machines = Self;
        commands.iter().all(|command| ip(command)).then_some(machines)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in ["ranks-own", Self::OTHER] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn a_cut_network_ends_the_job() {
    let Some(_machines) = Machines::new() else {
        println!("skipped: network namespaces need root and `ip`");
        return;
    };
    let own = std::env::current_exe().expect("it has a path");
    // What Open MPI starts the other machine's daemon with, in place of ssh.
    let agent = own.with_file_name("ranks-agent");
    std::fs::write(&agent, "#!/bin/sh\nshift\nexec ip netns exec ranks-other sh -c \"$*\"\n")
        .expect("it can be written");
    Command::new("chmod").arg("+x").arg(&agent).status().expect("it can be executable");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "ranks-own"]);
    let launcher = launcher();
    command.arg(launcher.get_program()).args(launcher.get_args());
    command.args(["--host", "10.77.0.1:1,10.77.0.2:1", "-n", "2"]);
    command.args(["--mca", "btl", "tcp,self", "--mca", "plm_rsh_agent"]).arg(&agent);
    // Otherwise Open MPI's daemons wait for each other for eight minutes.
    for (name, value) in [("time", "2"), ("intvl", "1"), ("probes", "3")] {
        command.args(["--mca", &format!("oob_tcp_keepalive_{name}"), value]);
    }
    command.arg(&own).args(scenario("cuts"));
    let ended = end(command);
    std::fs::remove_file(&agent).expect("it can be removed");
    assert_failed(&ended, 1, "has waited 3s for worker");
    assert!(ended.text.contains("in step 3"), "{}", ended.text);
}

#[test]
#[ignore = "a scenario"]
fn cuts() {
    run(failing(), |worker| {
        steps(worker, |step| {
            if (worker.rank(), step) == (1, 3) {
                let down = ["-n", Machines::OTHER, "link", "set", "ranks1", "down"];
                let cut = Command::new("ip").args(down).status().expect("ip is there");
                assert!(cut.success());
            }
            Ok(false)
        })
    });
}

/// The others have ended, and wait for as long as the last one needs.
#[test]
fn a_rank_may_end_long_after_the_others() {
    let ended = job(3, "ends_late");
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.took > DEADLINE * 2);
}

#[test]
#[ignore = "a scenario"]
fn ends_late() {
    run(failing(), |worker| {
        steps(worker, |_| Ok(false))?;
        if worker.is_first() {
            std::thread::sleep(DEADLINE * 2);
        }
        Ok(())
    });
}

#[test]
fn ranks_that_differ_are_named() {
    let ended = job(3, "differs");
    assert_failed(
        &ended,
        3,
        "differ in the length of the data: the workers 0, 1 with 100, worker 2 with 90",
    );
    let ended = job(2, "has_other_shapes");
    assert_failed(&ended, 2, "2 tensors with 8 numbers");
    // Another executable.
    let own = std::env::current_exe().expect("it has a path");
    let other = own.with_file_name("ranks-of-another-version");
    std::fs::copy(&own, &other).expect("it can be copied");
    let mut bytes = std::fs::read(&other).expect("it can be read");
    bytes.push(0);
    std::fs::write(&other, bytes).expect("it can be written");
    let mut command = launcher();
    command.args(["-n", "1"]).arg(&own).args(scenario("exchanges"));
    command.args([":", "-n", "1"]).arg(&other).args(scenario("exchanges"));
    let ended = end(command);
    std::fs::remove_file(&other).expect("it can be removed");
    assert_failed(&ended, 2, "differ in the program");
}

#[test]
#[ignore = "a scenario"]
fn differs() {
    run(failing(), |worker| {
        worker.agree("the length of the data", if worker.rank() == 2 { 90 } else { 100 })
    });
}

#[test]
#[ignore = "a scenario"]
fn has_other_shapes() {
    run(failing(), |worker| {
        let layer: Linear<B> = LinearConfig::new(3 + worker.rank(), 2).init(&worker.device());
        worker.broadcast(layer).map(drop)
    });
}

#[test]
fn wrong_jobs_are_errors() {
    let ended = job(2, "expects_three");
    // The launcher ends a job when its first rank ends with an error.
    assert_failed(&ended, 1, "3 workers are expected, and there are 2");
    let ended = job(2, "has_one_device");
    assert_failed(&ended, 2, "has 2 ranks for these devices: cpu; start fewer ranks");
    let ended = job(2, "has_no_device");
    assert_failed(&ended, 2, "gpu:99");
    let ended = job(2, "has_no_deadline");
    assert_failed(&ended, 1, "deadline of 0");
    // Without the launcher of this MPI library.
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(scenario("exchanges")).env("PMI_SIZE", "4");
    let ended = end(command);
    assert_failed(&ended, 1, "PMI_SIZE says that there are 4 ranks, and the MPI library finds 1");
}

#[test]
#[ignore = "a scenario"]
fn expects_three() {
    run(failing().expects(3), |_| Ok(()));
}

#[test]
#[ignore = "a scenario"]
fn has_one_device() {
    run(Job::new(Workers::threads([WgslDevice::Cpu])), |_| Ok(()));
}

#[test]
#[ignore = "a scenario"]
fn has_no_device() {
    let devices = [WgslDevice::Cpu, WgslDevice::Gpu(99)];
    run(Job::new(Workers::threads(devices).with_deadline(DEADLINE)), |_| Ok(()));
}

#[test]
#[ignore = "a scenario"]
fn has_no_deadline() {
    run(Job::new(cpus().with_deadline(Duration::ZERO)), |_| Ok(()));
}
