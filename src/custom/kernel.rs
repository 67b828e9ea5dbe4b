//! Kernels of a program.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use burn_backend::TensorData;
use parking_lot::Mutex;

use super::error::KernelError;
use super::limits::{check_expressions, check_memory};
use super::params::Params;
use super::signature::{Declared, Signature, type_name};
use super::tensors::{Inputs, Outputs};
use super::text::{Text, WgslFile};
use crate::backend::WgslTensor;
use crate::backend::custom::{computing, cpu_data, inspect, is_on_cpu, on_gpu, upload};
use crate::kernels::cast;
use crate::kernels::launch::BytesLaunch;
use crate::kernels::views;
use crate::runtime::{
    Compiler, Demand, Expansion, Kernel as RuntimeKernel, KernelKey, LAUNCH_ALIGN, ParamsBinding,
    RuntimeError, Source, Target, Variant, expand,
};
use crate::tensor::{self, DType, Tensor};

/// A function that computes what a kernel does, on the CPU: from the parameters and the inputs, the outputs.
pub type CpuFunction<P> = fn(&P, &[TensorData]) -> Vec<TensorData>;

/// The most workgroups of a launch: the first of each of its parts is a number of 32 bits.
const MAX_WORKGROUPS: usize = (u32::MAX - u16::MAX as u32) as usize;

/// Operations that a workgroup is taken to do, if the program does not say.
const WORK_PER_GROUP: u64 = 1 << 12;

/// A kernel of a program: a WGSL text with a signature. `P` are its parameters.
///
/// The [module](crate::custom) has an example. Kernels run with all checks: an index outside of its operand, a division
/// by zero does no harm. A loop that does not end makes the wait for its result fail after `BURN_WGSL_TIMEOUT` seconds.
#[derive(Debug)]
pub struct Kernel<P: Params = ()> {
    source: Source,
    signature: &'static str,
    text: Text,
    cpu: Option<CpuFunction<P>>,
    parsed: OnceLock<Result<Signature, String>>,
    specialised: Mutex<Vec<Specialised>>,
}

/// The values that a call gives to constants of the text.
type Constants = Vec<(&'static str, u32)>;

/// A text with constants whose declarations were checked.
#[derive(Debug, Clone)]
struct Specialised {
    source: &'static Source,
    constants: Arc<Constants>,
    number: u32,
    demand: Demand,
}

impl<P: Params> Kernel<P> {
    /// Creates a kernel. `name` is its name in profiles and errors, `wgsl` its text.
    ///
    /// The signature lists the inputs and the outputs, with the names that the text gives them:
    /// `x: f32[.., n], order: i32[n] -> y: f32[.., n]`. Axes of the same name have the same size. `..` stands for any
    /// number of axes. An axis can have a fixed size, such as `3`. The element types are `f32`, `i32`, `u32`, `bool`
    /// (stored as `u32`), and `f16` and `bf16` (two in a `u32`).
    pub const fn new(name: &'static str, signature: &'static str, wgsl: &'static str) -> Self {
        Self::of_file(name, signature, WgslFile { name, path: "", text: wgsl })
    }

    /// Creates a kernel whose text is in a file: see [`wgsl_file!`](crate::wgsl_file).
    pub const fn of_file(name: &'static str, signature: &'static str, file: WgslFile) -> Self {
        Self {
            source: Source::of_program(name, file.name, file.text),
            signature,
            text: Text::new(if file.path.is_empty() { None } else { Some(file.path) }),
            cpu: None,
            parsed: OnceLock::new(),
            specialised: Mutex::new(Vec::new()),
        }
    }

    /// Adds a function that computes the same on the CPU. Without one, calls on the CPU are an error.
    #[must_use]
    pub const fn on_cpu(mut self, function: CpuFunction<P>) -> Self {
        self.cpu = Some(function);
        self
    }

    /// Lets the kernel run without checks, which is faster.
    ///
    /// # Safety
    ///
    /// In every call, the kernel must keep each index within its operands, divide by no zero, and end all its loops.
    /// Workgroup memory is not zero at the start.
    #[must_use]
    pub const unsafe fn trusted(mut self) -> Self {
        // SAFETY: the caller ensures the same.
        unsafe { self.source.trust() };
        self
    }

    /// Begins a call of the kernel. [`Call::run`] launches it.
    pub fn call(&'static self, inputs: impl Inputs, params: P) -> Call<'static, P> {
        Call {
            kernel: self,
            inputs: inputs.to_primitives(),
            params,
            sizes: Vec::new(),
            constants: Vec::new(),
            work: None,
        }
    }

    fn name(&self) -> &'static str {
        self.source.name
    }

    fn signature(&self) -> Result<&Signature, KernelError> {
        let parsed = self.parsed.get_or_init(|| Signature::parse(self.signature));
        parsed.as_ref().map_err(|message| KernelError::Signature {
            kernel: self.name(),
            signature: self.signature,
            message: message.clone(),
        })
    }

    fn shape_error(&self, message: String) -> KernelError {
        KernelError::Shape { kernel: self.name(), message }
    }

    /// Returns a text with constants, after its declarations were compared with the signature and the parameters.
    fn specialised(
        &self,
        source: &'static Source,
        constants: &Constants,
    ) -> Result<Specialised, KernelError> {
        let mut specialised = self.specialised.lock();
        let is_wanted = |known: &&Specialised| {
            std::ptr::eq(known.source, source) && *known.constants == *constants
        };
        if let Some(known) = specialised.iter().find(is_wanted) {
            return Ok(known.clone());
        }
        let number = specialised.len() as u32;
        let constants = Arc::new(constants.clone());
        let mut new = Specialised { source, constants, number, demand: Demand::default() };
        let declaration = |message| KernelError::Declaration {
            kernel: self.name(),
            file: source.program_file().unwrap_or_default(),
            message,
        };
        new.demand = check_text::<P>(self.signature()?, &new.variant()).map_err(declaration)?;
        specialised.push(new.clone());
        Ok(new)
    }
}

impl Specialised {
    fn variant(&self) -> Variant {
        let variant = Variant::new(self.source);
        self.constants.iter().fold(variant, |variant, (name, value)| variant.int(name, *value))
    }
}

/// The key of a kernel of a program.
#[derive(Debug, Clone)]
struct Specialisation(Specialised);

impl Hash for Specialisation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0.source).hash(state);
        self.0.number.hash(state);
    }
}

impl RuntimeKernel for Specialisation {
    // The launch passes the bytes of the parameters of the program.
    type Params = u32;

    fn variant(&self) -> Variant {
        self.0.variant()
    }
}

/// A call of a kernel.
#[derive(Debug)]
#[must_use = "`run` launches the kernel"]
pub struct Call<'a, P: Params> {
    kernel: &'static Kernel<P>,
    inputs: Vec<WgslTensor>,
    params: P,
    sizes: Vec<(&'a str, usize)>,
    constants: Constants,
    work: Option<u64>,
}

impl<'a, P: Params> Call<'a, P> {
    /// Sets the size of a name in the signature that no input has.
    pub fn size(mut self, name: &'a str, size: usize) -> Self {
        self.sizes.push((name, size));
        self
    }

    /// Gives a constant of the text, `const NAME: u32 = ..;`, another value, and keeps the lines between `//#if NAME`
    /// and `//#endif`. Each set of values is compiled once.
    pub fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.constants.push((name, value));
        self
    }

    /// Sets the approximate number of multiplications, additions, loads and stores. A launch that is taken to run for
    /// more than a quarter of a second is split, because drivers reset a GPU that is busy for two.
    pub fn work(mut self, operations: u64) -> Self {
        self.work = Some(operations);
        self
    }

    /// Launches the kernel with a number of workgroups, and returns its outputs. The elements that it does not write
    /// are undefined.
    ///
    /// The inputs are passed in row-major order. Floats of 16 bits become f32 where the signature says so.
    ///
    /// # Errors
    ///
    /// Returns an error if the operands differ from the signature, the declarations of the text do, there are more than
    /// 2^32 - 2^16 workgroups, the text does not compile, or the memory is not available. On the CPU, if there is no
    /// function for it.
    pub fn run<O: Outputs>(self, workgroups: usize) -> Result<O, KernelError> {
        let kernel = self.kernel;
        let name = kernel.name();
        let signature = kernel.signature()?;
        let counts = [
            ("inputs", signature.inputs.len(), self.inputs.len()),
            ("outputs", signature.outputs.len(), O::COUNT),
        ];
        for (operands, expected, found) in counts {
            if expected != found {
                return Err(KernelError::Count { kernel: name, operands, expected, found });
            }
        }
        for (index, (name, _)) in self.sizes.iter().enumerate() {
            let is_twice = self.sizes[..index].iter().any(|(other, _)| other == name);
            if is_twice || !signature.has_axis(name) {
                let problem = if is_twice { "is given twice" } else { "is not in the signature" };
                return Err(kernel.shape_error(format!("the size `{name}` {problem}")));
            }
        }
        let shapes: Vec<Vec<usize>> = self.inputs.iter().map(WgslTensor::sizes).collect();
        let shapes = signature
            .output_shapes(&shapes, &self.sizes)
            .map_err(|message| kernel.shape_error(message))?;
        let outputs = if is_on_cpu(&self.inputs[0])? {
            self.run_on_cpu(signature, &shapes)?
        } else {
            self.run_on_gpu(signature, &shapes, workgroups)?
        };
        let outputs = outputs.into_iter().map(|output| inspect(name, output)).collect();
        O::from_primitives(outputs).map_err(|(index, message)| {
            kernel.shape_error(format!("`{}` {message}", signature.outputs[index].name))
        })
    }

    fn run_on_cpu(
        self,
        signature: &Signature,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<WgslTensor>, KernelError> {
        let kernel = self.kernel.name();
        let function = self.kernel.cpu.ok_or(KernelError::NoCpuFunction { kernel })?;
        let device = self.inputs[0].device();
        let computing = computing(kernel, &self.inputs);
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (declared, input) in signature.inputs.iter().zip(self.inputs) {
            let data = cpu_data(input, declared.dtype);
            inputs.push(data.map_err(|found| type_error(kernel, declared, found))?);
        }
        let outputs = function(&self.params, &inputs);
        let failed = |message| KernelError::CpuFunction { kernel, message };
        if outputs.len() != shapes.len() {
            let (found, expected) = (outputs.len(), shapes.len());
            return Err(failed(format!("returned {found} tensors instead of {expected}")));
        }
        let mut uploaded = Vec::with_capacity(outputs.len());
        for ((declared, shape), data) in signature.outputs.iter().zip(shapes).zip(outputs) {
            if *data.shape != **shape {
                return Err(failed(format!(
                    "returned `{}` with the shape {:?} instead of {shape:?}",
                    declared.name, data.shape
                )));
            }
            let tensor = upload(data, &device, declared.dtype, kernel);
            uploaded.push(tensor.map_err(|message| {
                failed(format!("returned `{}`, which {message}", declared.name))
            })?);
        }
        computing.end_with(&uploaded);
        Ok(uploaded)
    }

    fn run_on_gpu(
        self,
        signature: &Signature,
        shapes: &[Vec<usize>],
        workgroups: usize,
    ) -> Result<Vec<WgslTensor>, KernelError> {
        let kernel = self.kernel;
        let device = self.inputs[0].device();
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (declared, input) in signature.inputs.iter().zip(self.inputs) {
            if input.device() != device {
                let [lhs, rhs] = [device, input.device()].map(|device| device.to_string());
                return Err(tensor::Error::DeviceMismatch { lhs, rhs }.into());
            }
            let tensor = on_gpu(kernel.name(), input);
            let tensor = tensor.map_err(|found| type_error(kernel.name(), declared, found))?;
            inputs.push(views::packed(converted(kernel.name(), declared, tensor)?)?);
        }
        let runtime = inputs[0].runtime().clone();
        let outputs = signature.outputs.iter().zip(shapes);
        // The kernel can store any number in a word of a boolean.
        let stored = |dtype| if dtype == DType::Bool { DType::U32 } else { dtype };
        let outputs =
            outputs.map(|(declared, shape)| Tensor::empty(&runtime, shape, stored(declared.dtype)));
        let outputs: Vec<Tensor> = outputs.collect::<tensor::Result<_>>()?;
        let mut params = Vec::new();
        self.params.write(&mut params);
        let launch = |source| {
            let specialised = kernel.specialised(source, &self.constants)?;
            let size = specialised.demand.params;
            if size.is_some_and(|size| size != params.len().next_multiple_of(LAUNCH_ALIGN)) {
                return Err(kernel.shape_error(format!(
                    "the parameters wrote {} bytes, but WGSL lays out their fields in {}; use \
                     `kernel_params!`",
                    params.len(),
                    size.unwrap_or_default()
                )));
            }
            check_memory(specialised.demand, runtime.info().limits.workgroup_memory).map_err(
                |message| KernelError::Declaration {
                    kernel: kernel.name(),
                    file: source.program_file().unwrap_or_default(),
                    message,
                },
            )?;
            let specialisation = Specialisation(specialised);
            BytesLaunch {
                key: KernelKey::of(&specialisation),
                kernel: &|| specialisation.variant(),
                inputs: &inputs.iter().collect::<Vec<_>>(),
                outputs: &outputs.iter().collect::<Vec<_>>(),
                params: &params,
                workgroups: workgroups as u64,
                work: self.work.unwrap_or((workgroups as u64).saturating_mul(WORK_PER_GROUP)),
                indexed_axes: None,
            }
            .record()?;
            Ok(())
        };
        if workgroups > MAX_WORKGROUPS {
            return Err(kernel.shape_error(format!(
                "{workgroups} workgroups were asked for, but a launch has at most {MAX_WORKGROUPS}"
            )));
        }
        let (limit, found) = (
            runtime.info().limits.storage_buffers_per_stage as usize,
            inputs.len() + outputs.len(),
        );
        if found > limit {
            let name = kernel.name();
            return Err(KernelError::TooManyOperands { kernel: name, found, limit });
        }
        if workgroups > 0 && !outputs.iter().all(Tensor::is_empty) {
            launch_latest(kernel, launch)?;
        }
        let outputs = outputs.into_iter().zip(&signature.outputs).map(|(output, declared)| {
            let output = match declared.dtype {
                DType::Bool => cast::cast(output, DType::Bool)?,
                _ => output,
            };
            Ok(WgslTensor::on_gpu(device, output))
        });
        outputs.collect()
    }
}

/// Launches the latest version of a text, or the one before if it does not compile.
fn launch_latest<P: Params>(
    kernel: &'static Kernel<P>,
    launch: impl Fn(&'static Source) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let source = kernel.text.latest(&kernel.source);
    let error = match launch(source) {
        Ok(()) => {
            kernel.text.accept(source);
            return Ok(());
        }
        Err(error) => error,
    };
    let is_of_text = matches!(
        error,
        KernelError::Declaration { .. }
            | KernelError::Launch(tensor::Error::Runtime(RuntimeError::Wgsl { .. }))
    );
    if !is_of_text {
        return Err(error);
    }
    match kernel.text.reject(source) {
        Some(before) => {
            log::error!("{error}\nthe last text that compiled is used");
            launch(before)
        }
        None => Err(error),
    }
}

fn type_error(kernel: &'static str, declared: &Declared, found: String) -> KernelError {
    let expected = type_name(declared.dtype);
    KernelError::Type { kernel, operand: declared.name.clone(), expected, found }
}

/// Converts floats of 16 bits to f32, and small integers to i32, if the signature says so.
fn converted(
    kernel: &'static str,
    declared: &Declared,
    tensor: Tensor,
) -> Result<Tensor, KernelError> {
    let found = tensor.dtype();
    if found == declared.dtype {
        return Ok(tensor);
    }
    if found.compute_type() == declared.dtype {
        return Ok(cast::to_compute_type(tensor)?);
    }
    Err(type_error(kernel, declared, type_name(found)))
}

/// Compares the declarations of a text with the signature and the parameters, and returns what it declares.
///
/// # Errors
///
/// Returns what differs, to follow the name of the kernel.
fn check_text<P: Params>(signature: &Signature, variant: &Variant) -> Result<Demand, String> {
    let target =
        Target { compiler: Compiler::CURRENT, params: ParamsBinding::Uniform, loads_u64: false };
    let source = variant.source.text;
    if source.contains("/*") {
        return Err("has a comment in /* */, of which directives know nothing; use //".to_owned());
    }
    if source.replace("@binding(auto)", "").contains("@binding(") {
        return Err("must number all its bindings as @binding(auto)".to_owned());
    }
    if source.contains("struct Params") && !source.contains("struct Params {") {
        return Err("must declare its parameters as `struct Params {`, with one space".to_owned());
    }
    check_expressions(source)?;
    for &(name, _) in &variant.defs {
        let is_constant = |line: &str| {
            let line = line.trim();
            line.strip_prefix("const ").and_then(|rest| rest.split(':').next()).map(str::trim)
                == Some(name)
                || line.starts_with("//#")
                    && line.split_whitespace().any(|word| word.trim_start_matches('!') == name)
        };
        if !source.lines().any(is_constant) {
            return Err(format!("has no constant `{name}`, which the call sets"));
        }
    }
    let Expansion { text, operands, .. } = expand(variant, target)?;
    // Also what was repeated.
    check_expressions(&text)?;
    check_params(&text, &P::fields())?;
    let list = |names: Vec<&str>| names.join(", ");
    let expected: Vec<&str> = signature.operands().map(|operand| &*operand.name).collect();
    let found: Vec<&str> = operands.iter().map(|operand| &*operand.name).collect();
    if expected != found {
        return Err(format!(
            "declares the buffers {}, but its signature has {}",
            list(found),
            list(expected)
        ));
    }
    for (index, (declared, operand)) in signature.operands().zip(&operands).enumerate() {
        let (name, is_output) = (&declared.name, index >= signature.inputs.len());
        if operand.is_written != is_output {
            let (kind, access) =
                if is_output { ("output", "read_write") } else { ("input", "read") };
            return Err(format!("must declare the {kind} `{name}` as var<storage, {access}>"));
        }
        let stored = declared.dtype.wgsl();
        if operand.scalar != stored {
            return Err(format!(
                "declares `{name}` as an array of {}, but {} is stored as {stored}",
                operand.element,
                type_name(declared.dtype)
            ));
        }
    }
    Ok(Demand::of(&text))
}

/// Compares the fields of `Params` with those of the Rust struct.
fn check_params(text: &str, expected: &[(&'static str, String)]) -> Result<(), String> {
    if !text.contains("@group(0) @binding(0) var<uniform> p:") {
        return Err(
            "must declare its parameters as `@group(0) @binding(auto) var<uniform> p: Params;`"
                .to_owned(),
        );
    }
    let fields = text.split_once("struct Params {").map_or("", |(_, rest)| rest);
    let fields = fields.split_once('}').map_or("", |(fields, _)| fields);
    let fields = fields.split("@align(16) launch").next().unwrap_or_default();
    let mut found = Vec::new();
    for field in split_fields(fields) {
        let (name, ty) = field.split_once(':').unwrap_or((field, ""));
        found.push(format!("{}: {}", name.trim(), ty.split_whitespace().collect::<String>()));
    }
    let expected: Vec<String> = expected
        .iter()
        .map(|(name, ty)| format!("{name}: {}", ty.split_whitespace().collect::<String>()))
        .collect();
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "declares Params {{ {} }}, but the program passes {{ {} }}",
        found.join(", "),
        expected.join(", ")
    ))
}

/// Splits the fields of a struct at the commas outside of angle brackets.
fn split_fields(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let fields = text.split(move |c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        c == ',' && depth == 0
    });
    fields.map(str::trim).filter(|field| !field.is_empty())
}
