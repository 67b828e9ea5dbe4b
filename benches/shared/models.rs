//! Small models and their training steps, as Burn code: for `burn-wgsl bench`, the tests of launches, and the
//! comparison with other backends. Beside this module is a module `burn_api`, with the types of a version of Burn and
//! of a backend.

use super::burn_api::*;

/// The classes of the models that classify.
pub const CLASSES: usize = 10;

/// A training step, which returns the loss.
pub type Step = Box<dyn FnMut() -> Tracked<1>>;

/// Returns steps with Adam.
pub fn training<M: Model + 'static>(model: M, loss: impl Fn(&M) -> Tracked<1> + 'static) -> Step {
    let mut optimizer = AdamConfig::new().init();
    // An `Option`, because `step` takes the model by value.
    let mut next = Some(model);
    Box::new(move || {
        let model = next.take().expect("the previous step returned a model");
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        next = Some(optimizer.step(1e-3, model, gradients));
        loss
    })
}

/// Returns the class labels 0 to 9 in rotation, `[count]`.
fn labels(count: usize, device: &Device) -> Labels {
    let labels: Vec<i32> = (0..count as i32).map(|index| index % CLASSES as i32).collect();
    Labels::from_data(TensorData::new(labels, [count]), device)
}

/// Returns training steps of a model that classifies a batch.
pub fn classification<M: Model + 'static, const D: usize>(
    model: M,
    x: Tracked<D>,
    device: &Device,
    logits: impl Fn(&M, Tracked<D>) -> Tracked<2> + 'static,
) -> Step {
    let (labels, loss) = (labels(x.dims()[0], device), CrossEntropyLoss::new(None, device));
    training(model, move |model| loss.forward(logits(model, x.clone()), labels.clone()))
}

/// A multilayer perceptron 784-512-10 on `[batch, 784]`.
pub fn mlp(x: Tracked<2>, device: &Device) -> Step {
    let model: (Linear, Linear) =
        (LinearConfig::new(784, 512).init(device), LinearConfig::new(512, CLASSES).init(device));
    classification(model, x, device, |(hidden, out), x| {
        out.forward(activation::relu(hidden.forward(x)))
    })
}

/// A network of two convolutions with pooling and two linear layers on images `[batch, 1, 28, 28]`.
pub fn cnn(x: Tracked<4>, device: &Device) -> Step {
    let conv = |from, to| {
        Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
    };
    let model: (Conv2d, Conv2d, Linear, Linear) = (
        conv(1, 32).init(device),
        conv(32, 64).init(device),
        LinearConfig::new(64 * 7 * 7, 128).init(device),
        LinearConfig::new(128, CLASSES).init(device),
    );
    let pool = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init();
    classification(model, x, device, move |(conv1, conv2, hidden, out), x| {
        let x = pool.forward(activation::relu(conv1.forward(x)));
        let x = pool.forward(activation::relu(conv2.forward(x)));
        out.forward(activation::relu(hidden.forward(x.flatten::<2>(1, 3))))
    })
}

/// A transformer encoder without dropout and a linear layer, on sequences `[batch, length, width]`. The target has the
/// same shape.
pub fn transformer(
    x: Tracked<3>,
    target: Tracked<3>,
    [layers, heads, feed_forward]: [usize; 3],
    device: &Device,
) -> Step {
    let width = x.dims()[2];
    let encoder = TransformerEncoderConfig::new(width, feed_forward, heads, layers);
    let model: (TransformerEncoder, Linear) =
        (encoder.with_dropout(0.0).init(device), LinearConfig::new(width, width).init(device));
    training(model, move |(encoder, out)| {
        let y = out.forward(encoder.forward(TransformerEncoderInput::new(x.clone())));
        let error = y - target.clone();
        (error.clone() * error).mean()
    })
}

/// An LSTM and a linear layer on its last output, on sequences `[batch, length, width]`.
pub fn lstm(x: Tracked<3>, device: &Device) -> Step {
    let [_, length, width] = x.dims();
    let model: (Lstm, Linear) = (
        LstmConfig::new(width, width, true).init(device),
        LinearConfig::new(width, CLASSES).init(device),
    );
    classification(model, x, device, move |(lstm, out), x| {
        let last = lstm.forward(x, None).0.narrow(1, length - 1, 1);
        out.forward(last.flatten::<2>(1, 2))
    })
}
