//! Whether ops are fused.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::variables;

static ENABLED: LazyLock<AtomicBool> =
    LazyLock::new(|| AtomicBool::new(!variables::FUSION.is_off()));

/// Returns whether ops are fused.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Enables or disables the fusion of elementwise ops, which is enabled at first unless
/// `BURN_WGSL_FUSION` is `0`. Ops that are pending already are still computed together.
///
/// ```no_run
/// burn_wgsl::set_fusion(false); // every elementwise op is a kernel of its own from now on
/// ```
pub fn set_fusion(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}
