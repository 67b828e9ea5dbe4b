//! `cargo xtask scaling`: how long ranks on many machines take for the exchange of gradients, simulated with SimGrid,
//! which replays the collectives of `burn-wgsl-mpi`. In them, each rank sends to one other at a time.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use xtask::debian::{apt_get, can_install};
use xtask::process::{run_command, target_dir};

use crate::arguments;

/// Bytes of a bucket of gradients, as in src/parallel/buckets.rs.
const BUCKET: u64 = 4 << 20;
/// Bytes by which ranks agree on an exchange before it, as in mpi/src/link.rs.
const HEADER: u64 = 32;

/// The options of `cargo xtask scaling`.
#[derive(Debug, PartialEq)]
pub struct Options {
    ranks: Vec<usize>,
    /// Bandwidths of a machine, in Gbit/s.
    bandwidths: Vec<f64>,
    /// The gradients of a rank, in bytes.
    bytes: u64,
    /// The latency of a link in seconds. Two links lead from one machine to another.
    latency: f64,
    /// The time of a forward and a backward pass, in seconds.
    computing: f64,
}

impl Options {
    /// Parses the arguments of `cargo xtask scaling`.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown, or a value is missing or not above 0.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            ranks: vec![2, 4, 16, 64, 256, 1024],
            bandwidths: vec![10.0, 100.0],
            bytes: 100_000_000,
            latency: 5e-6,
            computing: 0.5,
        };
        let names =
            ["--ranks", "--gbit", "--megabytes", "--latency-microseconds", "--computing-ms"];
        for (name, text) in arguments::parse("cargo xtask scaling", args, &[], &names)? {
            let wrong = |expected| format!("`{name} {text}`: expected {expected}");
            let number = |text: &str| match text.parse::<f64>() {
                Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
                _ => Err(wrong("a number above 0")),
            };
            match name {
                "--ranks" => {
                    let ranks = text.split(',').map(|ranks| match ranks.parse() {
                        Ok(ranks) if (2..=4096).contains(&ranks) => Ok(ranks),
                        _ => Err(wrong("whole numbers from 2 to 4096")),
                    });
                    options.ranks = ranks.collect::<Result<_, _>>()?;
                }
                "--gbit" => {
                    options.bandwidths = text.split(',').map(number).collect::<Result<_, _>>()?;
                }
                "--megabytes" => options.bytes = (number(text)? * 1e6).ceil() as u64,
                "--latency-microseconds" => options.latency = number(text)? * 1e-6,
                _ => options.computing = number(text)? * 1e-3,
            }
        }
        Ok(options)
    }

    /// Returns the number of whole buckets, and the bytes of the last.
    fn buckets(&self) -> (u64, u64) {
        (self.bytes / BUCKET, self.bytes % BUCKET)
    }

    fn count(&self) -> f64 {
        self.bytes.div_ceil(BUCKET) as f64
    }

    /// Returns the time of an exchange by the formula of docs/mpi.md.
    fn formula(&self, ranks: usize, gbit: f64) -> f64 {
        let share = 2.0 * (ranks - 1) as f64 / ranks as f64;
        let sent = share * self.bytes as f64 / (gbit * 1.25e8);
        // A part from each rank to each other, twice for each bucket.
        let rounds = 2.0 * (ranks - 1) as f64 * self.count();
        sent + rounds * 2.0 * self.latency
    }
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if SimGrid is missing, or a simulation fails.
pub fn run(options: &Options) -> Result<(), String> {
    let is_there = || Command::new("smpirun").arg("-version").output().is_ok();
    if !is_there() {
        if !can_install() {
            return Err("found no `smpirun`; install SimGrid, on Debian libsimgrid-dev".to_owned());
        }
        run_command(&mut apt_get(&["update"]))?;
        run_command(&mut apt_get(&["install", "-y", "--no-install-recommends", "libsimgrid-dev"]))?;
    }
    let folder = target_dir().join("scaling");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let buckets = options.count();
    println!(
        "{} MB of gradients in {buckets} buckets; {} ms of computing, of which a third is the forward pass\n",
        options.bytes as f64 / 1e6,
        options.computing * 1e3
    );
    println!(
        "| ranks | Gbit/s | exchange, simulated | by the formula | step with `watch` | of ideal |"
    );
    println!("|---|---|---|---|---|---|");
    for &gbit in &options.bandwidths {
        for &ranks in &options.ranks {
            // Buckets follow each other.
            let (whole, rest) = options.buckets();
            let mut exchange = 0.0;
            for (count, bytes) in [(whole, BUCKET), (1, rest)] {
                if count * bytes > 0 {
                    exchange += count as f64 * simulated(options, bytes, ranks, gbit, &folder)?;
                }
            }
            let formula = options.formula(ranks, gbit);
            // The gradients come in the backward pass, and the last bucket after it.
            let overlapped = options.computing.max(options.computing / 3.0 + exchange);
            let step = overlapped + exchange / buckets;
            println!(
                "| {ranks} | {gbit} | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} % |",
                exchange * 1e3,
                formula * 1e3,
                step * 1e3,
                options.computing / step * 100.0
            );
        }
    }
    Ok(())
}

/// Returns the simulated time of the exchange of a bucket.
fn simulated(
    options: &Options,
    bytes: u64,
    ranks: usize,
    gbit: f64,
    folder: &Path,
) -> Result<f64, String> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(path)
    };
    let bandwidth = gbit * 1.25e8;
    // Machines behind a switch that is as fast as all together.
    let platform = format!(
        "<?xml version='1.0'?>\n\
         <!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n\
         <platform version=\"4.1\">\n\
         <cluster id=\"machines\" prefix=\"m-\" suffix=\"\" radical=\"0-{}\" speed=\"1Gf\" bw=\"{bandwidth}Bps\" \
         lat=\"{}s\" bb_bw=\"{}Bps\" bb_lat=\"0s\"/>\n\
         </platform>\n",
        ranks - 1,
        options.latency,
        bandwidth * ranks as f64
    );
    let platform = write("platform.xml", &platform)?;
    let (mut hosts, mut traces) = (String::new(), String::new());
    for rank in 0..ranks {
        // A part for each rank, which adds them and sends the sums to all.
        let part = bytes.div_ceil(ranks as u64);
        let trace = format!(
            "{rank} init\n{rank} allgather {HEADER} {HEADER}\n{rank} alltoall {part} {part}\n\
             {rank} allgather {part} {part}\n{rank} finalize\n"
        );
        let path = write(&format!("rank-{rank}.txt"), &trace)?;
        // Writing to a string cannot fail.
        let _ = writeln!(traces, "{}", path.display());
        let _ = writeln!(hosts, "m-{rank}");
    }
    let (hosts, traces) = (write("hosts", &hosts)?, write("traces", &traces)?);
    let mut command = Command::new("smpirun");
    command.args(["-np", &ranks.to_string(), "-platform"]).arg(platform);
    command.arg("-hostfile").arg(hosts).arg("-replay").arg(traces);
    command.args(["--cfg=smpi/alltoall:pair", "--cfg=smpi/allgather:ompi"]);
    command.args(["--log=root.thresh:critical", "--log=smpi_replay.thresh:info"]);
    let output = command.output().map_err(|error| format!("smpirun: {error}"))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let time = text.split("Simulation time ").nth(1).and_then(|rest| rest.split('\n').next());
    let time = time.and_then(|time| time.trim().parse().ok());
    time.ok_or_else(|| format!("smpirun has no result:\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_numbers_above_0() {
        let options = parse("--ranks 2,8 --gbit=1 --megabytes 10 --computing-ms 20").unwrap();
        assert_eq!((&options.ranks[..], &options.bandwidths[..]), (&[2, 8][..], &[1.0][..]));
        assert_eq!(options.buckets(), (2, 10_000_000 - 2 * BUCKET));
        let wrong = [
            "--ranks",
            "--ranks 1",
            "--ranks 2.5",
            "--gbit 0",
            "--megabytes x",
            "--megabytes 1,2",
            "--seconds 1",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_formula_is_that_of_docs() {
        let options = parse("--megabytes 100").unwrap();
        let bytes = 100e6 / 1.25e9;
        assert!((options.formula(2, 10.0) - bytes - 48.0 * 1e-5).abs() < 1e-9);
        assert!(options.formula(16, 10.0) < 2.0 * bytes + 48.0 * 15.0 * 1e-5);
    }
}
