//! burn-rl: an agent learns the way through a corridor from a buffer of transitions.

use burn::nn::LinearConfig;
use burn::nn::loss::{MseLoss, Reduction};
use burn::optim::*;
use burn::tensor::TensorData;

use crate::release::{Actions, Buffer, Device, States, Tracked, devices};

/// Cells of the corridor. The reward is in the last one.
const CELLS: usize = 5;
/// Actions: to the left, and to the right.
const ACTIONS: usize = 2;

/// Returns the cell as a row `[1, CELLS]`.
fn state(cell: usize, device: &Device) -> States {
    let row: Vec<f32> = (0..CELLS).map(|index| f32::from(u8::from(index == cell))).collect();
    States::from_data(TensorData::new(row, [1, CELLS]), device)
}

#[test]
fn an_agent_learns_the_way_to_the_reward() {
    let [device, training] = devices(5);
    let mut buffer = Buffer::new(64, &device);
    for step in 0..60 {
        let (cell, action) = (step / ACTIONS % (CELLS - 1), step % ACTIONS);
        let next = if action == 1 { cell + 1 } else { cell.saturating_sub(1) };
        let is_end = next == CELLS - 1;
        let taken = States::from_data(TensorData::new(vec![action as f32], [1, 1]), &device);
        let reward = f32::from(u8::from(is_end));
        buffer.push(state(cell, &device), state(next, &device), taken, reward, is_end);
    }
    assert_eq!(buffer.len(), 60);

    let mut values = LinearConfig::new(CELLS, ACTIONS).with_bias(false).init(&training);
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..500 {
        let batch = buffer.sample(32);
        let next = values.forward(Tracked::from_inner(batch.next_states)).inner();
        let goes_on = batch.dones.neg() + 1.0;
        let target = batch.rewards + next.max_dim(1) * goes_on * 0.9;
        let of_actions = values.forward(Tracked::from_inner(batch.states));
        let taken = Actions::from_inner(batch.actions.int());
        let value = of_actions.gather(1, taken);
        let loss = MseLoss::new().forward(value, Tracked::from_inner(target), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &values);
        values = optimizer.step(2e-2, values, gradients);
    }
    for cell in 0..CELLS - 1 {
        let found = values.forward(Tracked::from_inner(state(cell, &device))).inner();
        let found: Vec<f32> = found.into_data().iter::<f32>().collect();
        let expected = 0.9f32.powi((CELLS - 2 - cell) as i32);
        assert!(
            (found[1] - expected).abs() < 0.05,
            "{found:?} in cell {cell}, expected {expected}"
        );
        assert!(found[1] > found[0], "{found:?} in cell {cell}");
    }
}
