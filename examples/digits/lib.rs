//! The parts of the digits example that do not depend on a terminal or a file system: network, data, training step and
//! saved weights. The example and the web pages share them.

pub mod data;
pub mod dice;
pub mod learner;
pub mod model;
pub mod set;
pub mod weights;
