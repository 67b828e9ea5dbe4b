//! Kernels and elementwise ops of a program. The tests run one at a time, because some count launches.

use burn::tensor::{Bool, DType, FloatDType, Int, Tensor, TensorData, Tolerance};
use burn_wgsl::custom::{Binary, Kernel, KernelError, Unary, WgslFile, with_gradient};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, kernel_params};

use crate::common::{Launches, gpus, runtime_of, serial_guard, test_alone};

kernel_params! {
    struct Sizes {
        rows: u32,
        cols: u32,
        offset: [f32; 2],
    }
}

const SUMS: &str = "
//#include \"lib/grid\"
struct Params { rows: u32, cols: u32, offset: vec2<f32> } // as in the program
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read> order: array<i32>;
@group(0) @binding(auto) var<storage, read_write> sums: array<f32>;
@group(0) @binding(auto) var<storage, read_write> positive: array<u32>;
const SCALE: u32 = 1u;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = group_index(group, groups) * 64u + local_index;
    if (row >= p.rows) { return; }
    var sum = p.offset.x + p.offset.y;
    for (var col = 0u; col < p.cols; col++) {
        sum += x[row * p.cols + u32(order[col])];
    }
    sums[row] = sum * f32(SCALE);
    positive[row] = u32(sum > 0.0);
}
";

/// The sum of the chosen columns of each row, and whether it is positive.
static SUM: Kernel<Sizes> = Kernel::new(
    "sum_of_columns",
    "x: f32[rows, cols], order: i32[cols] -> sums: f32[rows], positive: bool[rows]",
    SUMS,
)
.on_cpu(|sizes, inputs| {
    let x = inputs[0].to_vec::<f32>().expect("f32");
    let order = inputs[1].to_vec::<i32>().expect("i32");
    let sum = |row: &[f32]| -> f32 {
        sizes.offset[0] + sizes.offset[1] + order.iter().map(|col| row[*col as usize]).sum::<f32>()
    };
    let sums: Vec<f32> = x.chunks(sizes.cols as usize).map(sum).collect();
    let positive: Vec<bool> = sums.iter().map(|sum| *sum > 0.0).collect();
    let rows = [sizes.rows as usize];
    vec![TensorData::new(sums, rows), TensorData::new(positive, rows)]
});

fn devices() -> impl Iterator<Item = WgslDevice> {
    gpus().into_iter().chain([WgslDevice::Cpu])
}

type Sums = (Tensor<Wgsl, 1>, Tensor<Wgsl, 1, Bool>);

#[test]
fn kernels_read_and_write_tensors_of_every_kind() {
    let _guard = serial_guard();
    for device in devices() {
        // Transposed, and of 16 bits: the kernel gets packed f32.
        let x = Tensor::<Wgsl, 2>::from_floats([[1.0, -4.0], [2.0, -5.0], [3.0, -6.0]], &device);
        let x = x.cast(FloatDType::F16).transpose();
        let order = Tensor::<Wgsl, 1, Int>::from_ints([0, 2, 2], &device);
        let sizes = || Sizes { rows: 2, cols: 3, offset: [0.25, 0.5] };
        let (sums, positive): Sums = SUM.call((&x, &order), sizes()).run(1).expect("it fits");
        assert_eq!(sums.into_data().to_vec::<f32>().unwrap(), [7.75, -15.25], "{device}");
        assert_eq!(positive.into_data().to_vec::<bool>().unwrap(), [true, false]);
        if device != WgslDevice::Cpu {
            let call = SUM.call((&x, &order), sizes()).constant("SCALE", 4).work(100);
            let (sums, _): Sums = call.run(1).expect("it fits");
            assert_eq!(sums.into_data().to_vec::<f32>().unwrap(), [31.0, -61.0], "{device}");
        }
    }
}

#[test]
fn empty_outputs_are_not_launched() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::zeros([0, 3], &device);
        let order = Tensor::<Wgsl, 1, Int>::from_ints([0, 1, 2], &device);
        let sizes = Sizes { rows: 0, cols: 3, offset: [0.0; 2] };
        let launches = Launches::containing("");
        let observation =
            (device != WgslDevice::Cpu).then(|| runtime_of(&device).observe(launches.clone()));
        let (sums, _): Sums = SUM.call((&x, &order), sizes).run(1).expect("it fits");
        drop(observation);
        assert_eq!((sums.dims(), launches.count()), ([0], 0));
    }
}

/// A kernel without parameters, whose index is out of range.
static FAR: Kernel = Kernel::new(
    "far",
    "x: u32[n] -> y: u32[n]",
    "
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    y[group.x + 100000000u] = 1u;
    y[group.x] = x[group.x] + 1u;
}
",
);

#[test]
fn indices_out_of_range_do_no_harm() {
    let _guard = serial_guard();
    for device in gpus() {
        let tensor = |value: u32| {
            let data = TensorData::new(vec![value; 8], [8]);
            Tensor::<Wgsl, 1, Int>::from_data(data, (&device, DType::U32))
        };
        let (x, other) = (tensor(4), tensor(9));
        let y: Tensor<Wgsl, 1, Int> = FAR.call(&x, ()).run(8).expect("it fits");
        let first = y.into_data().to_vec::<u32>().unwrap()[0];
        assert_eq!(first, 5, "{device}");
        assert_eq!(other.into_data().to_vec::<u32>().unwrap(), [9; 8], "{device}");
    }
}

/// A kernel whose result has a size that no input has, for any leading axes.
static REPEAT: Kernel<Count> = Kernel::new(
    "repeat",
    "x: f32[..] -> y: f32[.., times]",
    "
//#include \"lib/invocation\"
struct Params {
    count: u32,
    times: u32,
}
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
fn invocation(i: u32) {
    y[i] = x[i / p.times];
}
",
);

kernel_params! {
    struct Count {
        count: u32,
        times: u32,
    }
}

#[test]
fn shapes_follow_from_the_signature() {
    let _guard = serial_guard();
    for device in gpus() {
        let x = Tensor::<Wgsl, 3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device);
        let call = REPEAT.call(&x, Count { count: 12, times: 3 }).size("times", 3);
        let y: Tensor<Wgsl, 4> = call.run(1).expect("it fits");
        assert_eq!(y.dims(), [2, 1, 2, 3]);
        let expected = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0];
        assert_eq!(y.into_data().to_vec::<f32>().unwrap(), expected);
    }
}

fn message<T>(result: Result<T, KernelError>) -> String {
    result.err().expect("it is an error").to_string()
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::zeros([2, 3], &device);
        let order = Tensor::<Wgsl, 1, Int>::zeros([4], &device);
        let sizes = || Sizes { rows: 2, cols: 3, offset: [0.0; 2] };
        let run = |found: Result<Sums, KernelError>| message(found);
        let shape = run(SUM.call((&x, &order), sizes()).run(1));
        let expected = "the kernel sum_of_columns: `order` has the shape [4], which is not [cols]: cols is 3 in `x`";
        assert_eq!(shape, expected);
        let count = run(SUM.call(&x, sizes()).run(1));
        assert!(count.contains("has 2 inputs, but the call has 1"), "{count}");
        let order = Tensor::<Wgsl, 1, Int>::zeros([3], &device);
        let result: Result<Tensor<Wgsl, 1>, _> = SUM.call((&x, &order), sizes()).run(1);
        assert!(message(result).contains("has 2 outputs, but the call has 1"));
        let result: Result<(Tensor<Wgsl, 2>, Tensor<Wgsl, 1, Bool>), _> =
            SUM.call((&x, &order), sizes()).run(1);
        let rank = message(result);
        assert!(
            rank.contains("`sums` has 1 axes of F32") && rank.contains("2 axes of float"),
            "{rank}"
        );
        let wrong = Tensor::<Wgsl, 2, Int>::zeros([2, 3], &device);
        let kind = run(SUM.call((&wrong, &order), sizes()).run(1)).to_lowercase();
        assert!(kind.contains("`x` is i32, but the signature says f32"), "{kind}");
    }
    let x = Tensor::<Wgsl, 1, Int>::zeros([2], &WgslDevice::Cpu);
    let x = x.cast(burn::tensor::IntDType::U32);
    let result: Result<Tensor<Wgsl, 1, Int>, _> = FAR.call(&x, ()).run(2);
    assert!(message(result).contains("Kernel::on_cpu"));
}

/// Creates a kernel for the rest of the program.
fn kernel<P: burn_wgsl::custom::Params>(signature: &'static str, text: &str) -> &'static Kernel<P> {
    let text: &'static str = text.to_owned().leak();
    Box::leak(Box::new(Kernel::new("test", signature, text)))
}

#[test]
fn texts_that_do_not_fit_are_errors() {
    let _guard = serial_guard();
    let signature = "x: f32[rows, cols], order: i32[cols] -> sums: f32[rows], positive: bool[rows]";
    for device in gpus() {
        let x = Tensor::<Wgsl, 2>::ones([2, 3], &device);
        let order = Tensor::<Wgsl, 1, Int>::zeros([3], &device);
        let run = |signature, from: &str, to: &str| {
            let kernel = kernel::<Sizes>(signature, &SUMS.replace(from, to));
            let sizes = Sizes { rows: 2, cols: 3, offset: [0.0; 2] };
            message(kernel.call((&x, &order), sizes).run::<Sums>(1))
        };
        let syntax = run(signature, "var sum = p.offset.x", "var sum == p.offset.x");
        assert!(syntax.starts_with("test:19: the kernel test does not compile"), "{syntax}");
        assert!(syntax.contains("first_order") && syntax.contains("var sum =="), "{syntax}");
        let unknown = run(signature, "sums[row] = sum *", "sums[row] = total *");
        assert!(unknown.starts_with("test:23:") && unknown.contains("total"), "{unknown}");
        let entry = run(signature, "fn main(", "fn start(");
        assert!(entry.starts_with("test:") && entry.contains("main"), "{entry}");
        let fragment = run(signature, "lib/grid", "lib/grib");
        assert!(fragment.contains("test.wgsl:2") && fragment.contains("lib/grib"), "{fragment}");
        let params = run(signature, "cols: u32,", "cols: i32,");
        assert!(params.contains("Params { rows: u32, cols: i32, offset: vec2<f32> }"), "{params}");
        let access = run(signature, "var<storage, read> x", "var<storage, read_write> x");
        assert!(access.contains("the input `x` as var<storage, read>"), "{access}");
        let element = run(signature, "x: array<f32>", "x: array<u32>");
        assert!(element.contains("declares `x` as an array of u32, but f32"), "{element}");
        let names = run(signature, "> order: array", "> indices: array");
        assert!(names.contains("buffers x, indices, sums, positive, but"), "{names}");
        let arrow = run("x: f32[n]", "", "");
        assert!(arrow.contains("the signature of the kernel test, `x: f32[n]`"), "{arrow}");
    }
}

static MISH: Unary =
    Unary::new("mish", "a * tanh(ln(1.0 + exp(a)))", |a| a * a.exp().ln_1p().tanh());
static BLEND: Binary = Binary::new("blend", "0.25 * a + 0.75 * b", |a, b| 0.25 * a + 0.75 * b);
static BROKEN: Unary = Unary::new("broken", "a +* 1.0", |a| a);

#[test]
fn expressions_join_the_ops_around_them() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([-1.5, 0.0, 2.0], &device);
        let compute = |x: Tensor<Wgsl, 1>| {
            let y = MISH.apply(x.clone() * 2.0).expect("it compiles");
            BLEND.apply(y + 1.0, x).expect("it compiles")
        };
        compute(x.clone()).into_data();
        let launches = Launches::containing("");
        let observation =
            (device != WgslDevice::Cpu).then(|| runtime_of(&device).observe(launches.clone()));
        let found = compute(x).into_data().to_vec::<f32>().unwrap();
        drop(observation);
        assert!(launches.count() <= 1, "{}", launches.count());
        for (found, x) in found.into_iter().zip([-1.5f64, 0.0, 2.0]) {
            let twice = 2.0 * x;
            let expected = 0.25 * (twice * twice.exp().ln_1p().tanh() + 1.0) + 0.75 * x;
            assert!((f64::from(found) - expected).abs() < 1e-5, "{found} {expected} {device}");
        }
    }
    static INDEX: Unary = Unary::new("index", "array<f32, 2>(0.0, 1.0)[u32(a)]", |a| a);
    static OTHER: Unary = Unary::new("other", "a * b", |a| a);
    static DIVISION: Unary =
        Unary::new("division", "f32(select(1, 0, a > 0.0) / select(0, 1, a > 2.0))", |a| a);
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0], &device);
        assert!(message(DIVISION.apply(x.clone())).contains("with `1`"));
        assert!(message(INDEX.apply(x.clone())).contains("with `array`"));
        assert!(message(OTHER.apply(x)).contains("with `b`"));
    }
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0], &device);
        for _ in 0..2 {
            let found = message(BROKEN.apply(x.clone()));
            assert!(found.contains("the kernel broken does not compile"), "{found}");
            assert!(found.contains("a +* 1.0"), "{found}");
        }
    }
}

#[test]
fn results_have_the_gradients_of_the_program() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Autodiff<Wgsl>, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
        let (x, w) = (x.require_grad(), Tensor::from_floats([10.0, 20.0], &device).require_grad());
        let product = with_gradient(
            (x.clone(), w.clone()),
            |(x, w): (Tensor<Wgsl, 2>, Tensor<Wgsl, 1>)| {
                (x.clone() * w.clone().unsqueeze(), (x, w))
            },
            |(x, w), gradient| {
                // Not the gradient of the product, to see that it is used.
                let for_w = (gradient.clone() * x).sum_dim(0).squeeze::<1>();
                (gradient * w.unsqueeze() * 100.0, for_w)
            },
        );
        let gradients = (product * 2.0).sum().backward();
        let of_x = x.grad(&gradients).expect("x has one").into_data();
        assert_eq!(of_x.to_vec::<f32>().unwrap(), [2000.0, 4000.0, 2000.0, 4000.0]);
        let of_w = w.grad(&gradients).expect("w has one").into_data();
        assert_eq!(of_w.to_vec::<f32>().unwrap(), [8.0, 12.0]);
    }
}

/// The types of products in a scope would differ from those of the kept tensors.
#[test]
fn gradients_of_the_program_ignore_scopes() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Autodiff<Wgsl>, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
        let x = x.require_grad();
        let w = Tensor::from_floats([[0.1, 0.2], [0.3, 0.4]], &device).require_grad();
        let gradients = {
            let _scope = autocast(&device, Precision::F16);
            // One input is a 16-bit result of the scope.
            let doubled = x.clone().matmul(Tensor::eye(2, &device) * 2.0);
            assert_eq!(doubled.dtype(), DType::F16, "{device}");
            let product = with_gradient(
                (doubled, w.clone()),
                |(x, w): (Tensor<Wgsl, 2>, Tensor<Wgsl, 2>)| {
                    let x = x.cast(FloatDType::F32);
                    (x.clone().matmul(w.clone()), (x, w))
                },
                |(x, w), gradient| {
                    (gradient.clone().matmul(w.transpose()), x.transpose().matmul(gradient))
                },
            );
            assert_eq!(product.dtype(), DType::F32, "{device}");
            product.sum().backward()
        };
        let of_x = x.grad(&gradients).expect("x has one").into_data();
        of_x.assert_approx_eq::<f32>(
            &TensorData::from([[0.6, 1.4], [0.6, 1.4]]),
            Tolerance::absolute(1e-3),
        );
        let of_w = w.grad(&gradients).expect("w has one").into_data();
        assert_eq!(of_w.to_vec::<f32>().unwrap(), [8.0, 8.0, 12.0, 12.0], "{device}");
    }
}

#[test]
#[should_panic(expected = "the gradient of input 0 has the shape")]
fn gradients_of_another_shape_panic() {
    let _guard = serial_guard();
    let x = Tensor::<Autodiff<Wgsl>, 1>::from_floats([1.0, 2.0], &WgslDevice::Cpu).require_grad();
    let sum = with_gradient((x,), |(x,)| (x.sum(), ()), |(), gradient| (gradient,));
    sum.backward();
}

const CONSTANT: &str = "
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main() {
    y[0] = x[0] + 1.0;
}
";

/// A part of [`changed_files_are_read_again`], in a process of its own. Prints what a kernel computes from zero, with
/// each text that the file gets.
#[test]
#[ignore = "another test runs it with the variable"]
fn prints_results_of_changing_texts() {
    let Some(device) = gpus().into_iter().next() else { return };
    let path = std::env::var("KERNEL_FILE").expect("the other test sets it");
    let file = WgslFile { name: "changing.wgsl", path: path.clone().leak(), text: CONSTANT };
    let kernel: &'static Kernel =
        Box::leak(Box::new(Kernel::of_file("changing", "x: f32[1] -> y: f32[1]", file)));
    let texts = [CONSTANT.to_owned(), CONSTANT.replace("1.0", "2.0"), "y[0] = 3".to_owned()];
    let broken = CONSTANT.replace("+ 1.0", "+ four");
    for (text, second) in texts.into_iter().chain([broken, CONSTANT.replace("1.0", "5.0")]).zip(0..)
    {
        let file = std::fs::File::create(&path).expect("the file can be written");
        std::io::Write::write_all(&mut &file, text.as_bytes()).expect("the file can be written");
        // Files that are written in quick succession may have the same time.
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
        file.set_modified(time).expect("the file is ours");
        for _ in 0..2 {
            let x = Tensor::<Wgsl, 1>::zeros([1], &device);
            let y: Tensor<Wgsl, 1> = kernel.call(&x, ()).run(1).expect("a text compiles");
            println!("computed: {}", y.into_scalar());
        }
    }
}

#[test]
fn changed_files_are_read_again() {
    let _guard = serial_guard();
    if gpus().is_empty() {
        return;
    }
    let path = std::env::temp_dir().join(format!("changing-{}.wgsl", std::process::id()));
    for (reload, expected) in [("1", [1, 1, 2, 2, 2, 2, 2, 2, 5, 5]), ("0", [1; 10])] {
        let output = test_alone!("prints_results_of_changing_texts")
            .env("BURN_WGSL_RELOAD", reload)
            .env("KERNEL_FILE", &path)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let results: Vec<&str> =
            text.lines().filter_map(|line| line.split_once("computed: ").map(|(_, x)| x)).collect();
        assert_eq!(results, expected.map(|x| x.to_string()), "{text}");
    }
    std::fs::remove_file(&path).expect("the file was written");
}

#[test]
fn booleans_of_a_kernel_are_zero_or_one() {
    let _guard = serial_guard();
    static NUMBERS: Kernel = Kernel::new(
        "numbers",
        "x: f32[n] -> y: bool[n]",
        "@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = u32(x[id.x]); }
}
",
    );
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats([0.0, 7.0, 4294967040.0, 0.0, 1.0], &device);
        let y: Tensor<Wgsl, 1, Bool> = NUMBERS.call(&x, ()).run(1).expect("it runs");
        assert_eq!(y.clone().int().sum().into_scalar(), 3, "{device}");
        let inverse = y.clone().bool_not().into_data().to_vec::<bool>().expect("bool");
        assert_eq!(inverse, [true, false, false, true, false], "{device}");
        let found = y.argwhere().into_data().convert::<i32>().to_vec::<i32>().expect("i32");
        assert_eq!(found, [1, 2, 4], "{device}");
    }
}

#[test]
fn aliases_of_themselves_are_errors() {
    let _guard = serial_guard();
    const TEXTS: [&str; 3] = [
        "alias E = E;",
        "alias E = A;\nalias A = E;",
        "alias E = vec4<vec4<vec4<vec4<vec4<vec4<vec4<vec4<vec4<vec4<vec4<vec4<f32>>>>>>>>>>>>;",
    ];
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::ones([4], &device);
        for aliases in TEXTS {
            let text = format!(
                "{aliases}
@group(0) @binding(auto) var<storage, read> x: array<E>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main() {{}}
"
            );
            let signature = "x: f32[n] -> y: f32[n]";
            let kernel: &Kernel = Box::leak(Box::new(Kernel::new("loop", signature, text.leak())));
            let error = kernel.call(&x, ()).run::<Tensor<Wgsl, 1>>(1).expect_err("it has no size");
            assert!(error.to_string().contains("unsupported operand"), "{error}");
        }
    }
}

#[test]
fn more_workgroups_than_a_launch_has_are_an_error() {
    let _guard = serial_guard();
    static IDLE: Kernel = Kernel::new(
        "idle",
        "x: f32[n] -> y: f32[n]",
        "@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main() { y[0] = x[0]; }
",
    );
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::ones([1], &device);
        for workgroups in [u32::MAX as usize, usize::MAX] {
            let error = IDLE.call(&x, ()).run::<Tensor<Wgsl, 1>>(workgroups).expect_err("too many");
            assert!(error.to_string().contains("a launch has at most"), "{error}");
        }
        let y: Tensor<Wgsl, 1> = IDLE.call(&x, ()).run(1).expect("it runs");
        assert_eq!(y.into_scalar(), 1.0);
    }
}

/// A text that copies, with more declarations.
fn copying(more: &str, statements: &str) -> String {
    format!(
        "{more}
struct Params {{ none: u32 }}
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {{
    if (i >= arrayLength(&y)) {{ return; }}
    var sum = x[i];
    {statements}
    y[i] = sum;
}}
"
    )
}

#[test]
fn what_would_end_the_process_is_an_error() {
    let _guard = serial_guard();
    let sum = format!("sum = {};", vec!["x[i]"; 20_000].join(" + "));
    let minus = format!("sum = {}x[i];", "- ".repeat(20_000));
    let texts = [
        (
            copying("var<workgroup> w: array<f32, 100000000>;", "w[i] = sum;"),
            "bytes of workgroup memory, but the device has",
        ),
        (copying("", "var w: array<f32, 10000000>; w[i] = sum;"), "bytes in each invocation"),
        (copying("", &sum), "an expression of more than 1000 operators"),
        (copying("", &minus), "an expression of more than 1000 operators"),
    ];
    static LONG: std::sync::LazyLock<&'static str> =
        std::sync::LazyLock::new(|| vec!["a"; 20_000].join(" + ").leak());
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device);
        for (text, part) in &texts {
            let kernel: &Kernel = kernel("x: f32[n] -> y: f32[n]", text);
            let result = kernel.call(&x, ()).run::<Tensor<Wgsl, 1>>(1);
            let message = message(result);
            assert!(message.contains(part), "{message}");
        }
        let long: &'static Unary = Box::leak(Box::new(Unary::new("long", &LONG, |a| a)));
        let message = message(long.apply(x.clone()));
        assert!(message.contains("more than 1000 operators"), "{message}");
        let copy: &Kernel = kernel("x: f32[n] -> y: f32[n]", &copying("", ""));
        let y: Tensor<Wgsl, 1> = copy.call(&x, ()).run(1).expect("it compiles");
        assert_eq!(y.into_data(), x.into_data());
    }
}

/// Parameters that write another number of bytes than their fields have.
struct Wrong(usize);

impl burn_wgsl::custom::Params for Wrong {
    fn fields() -> Vec<(&'static str, String)> {
        vec![("a", "u32".to_owned()), ("b", "vec2<f32>".to_owned())]
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(self.0, 0);
    }
}

#[test]
fn parameters_of_another_size_are_errors() {
    let _guard = serial_guard();
    let text = copying("", "sum += p.b.x;").replace("{ none: u32 }", "{ a: u32, b: vec2<f32> }");
    let kernel: &Kernel<Wrong> = kernel("x: f32[n] -> y: f32[n]", &text);
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device);
        let pending = x.clone() + 1.0;
        for bytes in [0, 17, 20, 300, 1 << 20] {
            let result = kernel.call(&x, Wrong(bytes)).run::<Tensor<Wgsl, 1>>(1);
            let message = message(result);
            assert!(message.contains(&format!("wrote {bytes} bytes")), "{message}");
        }
        let y: Tensor<Wgsl, 1> = kernel.call(&x, Wrong(16)).run(1).expect("they fit");
        assert_eq!(y.into_data(), x.into_data());
        assert_eq!(pending.into_data().to_vec::<f32>().expect("f32"), [2.0, 3.0]);
    }
}

#[test]
fn names_that_a_kernel_lacks_are_errors() {
    let _guard = serial_guard();
    let kernel: &Kernel = kernel("x: f32[n] -> y: f32[m]", &copying("", ""));
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device);
        let call = || kernel.call(&x, ()).size("m", 2);
        call().run::<Tensor<Wgsl, 1>>(1).expect("it has the size");
        for (call, part) in [
            (call().size("k", 2), "the size `k` is not in the signature"),
            (call().size("m", 3), "the size `m` is given twice"),
            (call().constant("TILE", 2), "has no constant `TILE`"),
        ] {
            let message = message(call.run::<Tensor<Wgsl, 1>>(1));
            assert!(message.contains(part), "{message}");
        }
    }
}
