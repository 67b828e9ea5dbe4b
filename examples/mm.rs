use burn::tensor::backend::Backend;
use burn::tensor::ops::ModuleOps;
use burn::tensor::{Distribution, Tensor, TensorPrimitive, module::conv2d, ops::ConvOptions};
use burn_wgsl::{Wgsl, WgslDevice};
fn main() {
    let d = WgslDevice::Software;
    let time = |name: &str, fl: f64, f: &dyn Fn()| {
        f();
        Wgsl::sync(&d).unwrap();
        let mut best = f64::MAX;
        for _ in 0..5 {
            let t = std::time::Instant::now();
            f();
            Wgsl::sync(&d).unwrap();
            best = best.min(t.elapsed().as_secs_f64());
        }
        println!(
            "{name:28} {:8.3} ms {:6.1} GFLOP/s",
            best * 1e3,
            fl / best / 1e9
        );
    };
    let r = |s: [usize; 2]| Tensor::<Wgsl, 2>::random(s, Distribution::Default, &d);
    for n in [256usize, 512, 1024] {
        let (a, b) = (r([n, n]), r([n, n]));
        time(&format!("matmul {n}"), 2.0 * (n * n * n) as f64, &|| {
            let _ = a.clone().matmul(b.clone());
        });
        time(&format!("matmul {n} bT"), 2.0 * (n * n * n) as f64, &|| {
            let _ = a.clone().matmul(b.clone().transpose());
        });
        time(&format!("matmul {n} aT"), 2.0 * (n * n * n) as f64, &|| {
            let _ = a.clone().transpose().matmul(b.clone());
        });
    }
    let (a, b) = (r([64, 1024]), r([1024, 128]));
    time("fc1", 2.0 * 64. * 1024. * 128., &|| {
        let _ = a.clone().matmul(b.clone());
    });
    let g = r([64, 128]);
    time("fc1 dx", 2.0 * 64. * 1024. * 128., &|| {
        let _ = g.clone().matmul(b.clone().transpose());
    });
    time("fc1 dw", 2.0 * 64. * 1024. * 128., &|| {
        let _ = a.clone().transpose().matmul(g.clone());
    });
    let x = Tensor::<Wgsl, 4>::random([64, 32, 8, 8], Distribution::Default, &d);
    let w = Tensor::<Wgsl, 4>::random([64, 32, 3, 3], Distribution::Default, &d);
    let y = Tensor::<Wgsl, 4>::random([64, 64, 8, 8], Distribution::Default, &d);
    let o = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let fl = 2.0 * 4096. * 64. * 288.;
    let p = |t: &Tensor<Wgsl, 4>| match t.clone().into_primitive() {
        TensorPrimitive::Float(t) => t,
        _ => panic!(),
    };
    time("conv2d", fl, &|| {
        let _ = conv2d(
            x.clone(),
            w.clone(),
            None,
            burn::tensor::ops::PaddedConvOptions::from(o.clone()),
        );
    });
    time("conv2d dx", fl, &|| {
        let _ = Wgsl::conv2d_x_backward(p(&x), p(&w), p(&y), o.clone());
    });
    time("conv2d dw", fl, &|| {
        let _ = Wgsl::conv2d_weight_backward(p(&x), p(&w), p(&y), o.clone());
    });
    let big = Tensor::<Wgsl, 1>::random([1 << 22], Distribution::Default, &d);
    time("add 2^22", 0.0, &|| {
        let _ = big.clone() + big.clone();
    });
    time("exp 2^22", 0.0, &|| {
        let _ = big.clone().exp();
    });
    let s = r([2048, 2048]);
    time("sum rows", 0.0, &|| {
        let _ = s.clone().sum_dim(1);
    });
    time("sum cols", 0.0, &|| {
        let _ = s.clone().sum_dim(0);
    });
    time("softmax", 0.0, &|| {
        let _ = burn::tensor::activation::softmax(s.clone(), 1);
    });
    time("transpose copy", 0.0, &|| {
        let _ = s.clone().transpose().reshape([2048 * 2048]);
    });
}
