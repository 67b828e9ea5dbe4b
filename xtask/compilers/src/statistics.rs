//! The statistics that Mesa's drivers report of a compiled kernel, under one set of names.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::assembly::Dialect;

/// The figures of a kernel on one GPU. Their units depend on the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Registers per invocation.
    pub registers: u64,
    /// Instructions that spill registers to memory, or fill them from memory.
    pub spills: u64,
    /// Registers that are kept in registers of another kind.
    pub moves: u64,
    /// Bytes of memory per invocation for spills and for arrays with dynamic indices.
    pub scratch: u64,
    /// How much of a compute unit the kernel can fill, as far as the driver says.
    pub occupancy: u64,
    /// Instructions in the program.
    pub instructions: u64,
}

/// How one of Mesa's drivers names its statistics.
#[derive(Debug)]
pub struct Driver {
    /// The name of the driver in `wgpu::AdapterInfo`.
    pub name: &'static str,
    registers: &'static str,
    spills: &'static [&'static str],
    moves: &'static [&'static str],
    scratch: Option<&'static str>,
    occupancy: &'static str,
    instructions: &'static str,
    /// The name and the dialect of the representation that lists the instructions.
    pub assembly: Option<(&'static str, Dialect)>,
}

const DRIVERS: [Driver; 4] = [
    Driver {
        name: "radv",
        registers: "VGPRs",
        spills: &["Spilled VGPRs"],
        moves: &["Spilled SGPRs"],
        scratch: Some("Scratch size"),
        occupancy: "Subgroups per SIMD",
        instructions: "Instructions",
        assembly: Some(("Assembly", Dialect::Aco)),
    },
    Driver {
        name: "NVK",
        registers: "Number of GPRs",
        spills: &["Spills to memory", "Fills from memory"],
        moves: &["Spills to reg"],
        scratch: Some("SLM size"),
        occupancy: "Max warps/SM",
        instructions: "Instruction count",
        assembly: Some(("NAK assembly", Dialect::Nak)),
    },
    Driver {
        name: "Honeykrisp",
        registers: "GPRs",
        spills: &["Spills", "Fills"],
        moves: &[],
        scratch: Some("Scratch"),
        occupancy: "Threads",
        instructions: "Instructions",
        assembly: None,
    },
    Driver {
        name: "turnip Mesa driver",
        registers: "Registers used",
        spills: &["STP Count", "LDP Count"],
        moves: &[],
        scratch: None,
        occupancy: "Max Waves Per Core",
        instructions: "Instruction Count",
        assembly: Some(("IR3 Assembly", Dialect::Ir3)),
    },
];

impl Driver {
    /// Returns the driver with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if its statistics are not known.
    pub fn named(name: &str) -> Result<&'static Self> {
        DRIVERS.iter().find(|driver| driver.name == name).with_context(|| {
            let known = DRIVERS.each_ref().map(|driver| driver.name).join(", ");
            format!("the statistics of the driver `{name}` are not known; known are {known}")
        })
    }

    /// Returns the figures in the statistics of a kernel.
    ///
    /// # Errors
    ///
    /// Returns an error if a statistic is missing, as in another version of the driver.
    pub fn figures(&self, statistics: &BTreeMap<String, u64>) -> Result<Figures> {
        let value = |name: &str| {
            statistics.get(name).copied().with_context(|| {
                let found: Vec<&str> = statistics.keys().map(String::as_str).collect();
                format!("{} reports no `{name}`, only {}", self.name, found.join(", "))
            })
        };
        let sum = |names: &[&str]| names.iter().map(|name| value(name)).sum::<Result<u64>>();
        Ok(Figures {
            registers: value(self.registers)?,
            spills: sum(self.spills)?,
            moves: sum(self.moves)?,
            scratch: self.scratch.map_or(Ok(0), value)?,
            occupancy: value(self.occupancy)?,
            instructions: value(self.instructions)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `name=value; name=value`, the form of the samples below.
    fn statistics(sample: &str) -> BTreeMap<String, u64> {
        let pairs = sample.split("; ").map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    fn figures(driver: &str, sample: &str) -> Figures {
        Driver::named(driver).unwrap().figures(&statistics(sample)).unwrap()
    }

    #[test]
    fn radv_spills_vector_registers_to_memory_and_scalar_ones_to_registers() {
        let sample = "Driver pipeline hash=12537781855734045425; SGPRs=108; VGPRs=96; \
                      Spilled SGPRs=7; Spilled VGPRs=2; Code size=9952; LDS size=9216; \
                      Scratch size=64; Subgroups per SIMD=16; Instructions=2260";
        let expected = Figures {
            registers: 96,
            spills: 2,
            moves: 7,
            scratch: 64,
            occupancy: 16,
            instructions: 2260,
        };
        assert_eq!(figures("radv", sample), expected);
    }

    #[test]
    fn nvk_counts_spills_and_fills() {
        let sample = "Instruction count=2673; Static cycle count=27640; Max warps/SM=16; \
                      Spills to memory=3; Fills from memory=4; Spills to reg=9; \
                      Fills from reg=7; Code size=42768; Number of GPRs=104; SLM size=32";
        let expected = Figures {
            registers: 104,
            spills: 7,
            moves: 9,
            scratch: 32,
            occupancy: 16,
            instructions: 2673,
        };
        assert_eq!(figures("NVK", sample), expected);
    }

    #[test]
    fn honeykrisp_reports_threads() {
        let sample = "Instructions=2400; ALU=1903; Code size=18246; GPRs=223; Uniforms=424; \
                      Scratch=0; Threads=448; Loops=2; Spills=0; Fills=0";
        let expected = Figures {
            registers: 223,
            spills: 0,
            moves: 0,
            scratch: 0,
            occupancy: 448,
            instructions: 2400,
        };
        assert_eq!(figures("Honeykrisp", sample), expected);
    }

    #[test]
    fn turnip_spills_with_stores_and_loads_of_private_memory() {
        let sample = "Max Waves Per Core=4; Instruction Count=2325; Registers used=48; \
                      Half-registers used=0; STP Count=5; LDP Count=6";
        let expected = Figures {
            registers: 48,
            spills: 11,
            moves: 0,
            scratch: 0,
            occupancy: 4,
            instructions: 2325,
        };
        assert_eq!(figures("turnip Mesa driver", sample), expected);
    }

    #[test]
    fn errors_name_the_driver_and_the_statistic() {
        let error = Driver::named("radv").unwrap().figures(&statistics("SGPRs=1")).unwrap_err();
        assert_eq!(error.to_string(), "radv reports no `VGPRs`, only SGPRs");
        assert!(Driver::named("swrast").unwrap_err().to_string().contains("Honeykrisp"));
    }
}
