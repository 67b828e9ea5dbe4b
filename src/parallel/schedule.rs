//! The order in which a stage of a pipeline computes its micro-batches.

/// The order in which a stage of a pipeline computes its micro-batches. The gradients are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// All forward, then all backward (Y. Huang et al., GPipe, 2019). A stage keeps the activations of all
    /// micro-batches.
    AllForward,
    /// One forward, one backward (D. Narayanan et al., PipeDream, 2019): a stage keeps the activations of at most as
    /// many micro-batches as there are stages from it to the last.
    #[default]
    OneForwardOneBackward,
}

/// What a stage computes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Forward,
    Backward,
}

impl Schedule {
    /// Returns the work of a stage: both directions go through the micro-batches in their order.
    pub(super) fn work(self, stage: usize, stages: usize, micro_batches: usize) -> Vec<Work> {
        let ahead = match self {
            Self::AllForward => micro_batches,
            Self::OneForwardOneBackward => micro_batches.min(stages - stage),
        };
        let mut work = vec![Work::Forward; ahead];
        for micro_batch in 0..micro_batches {
            work.push(Work::Backward);
            if ahead + micro_batch < micro_batches {
                work.push(Work::Forward);
            }
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::Work::{Backward as B, Forward as F};
    use super::*;

    #[test]
    fn stages_keep_few_micro_batches_and_compute_all() {
        let work = |stage| Schedule::OneForwardOneBackward.work(stage, 2, 4);
        assert_eq!(work(0), [F, F, B, F, B, F, B, B]);
        assert_eq!(work(1), [F, B, F, B, F, B, F, B]);
        assert_eq!(Schedule::AllForward.work(0, 2, 2), [F, F, B, B]);
        assert_eq!(Schedule::OneForwardOneBackward.work(0, 4, 1), [F, B]);
        assert!(Schedule::AllForward.work(0, 2, 0).is_empty());
    }
}
