//! What launchers use on software adapters only.

pub(crate) mod composed_attention;
