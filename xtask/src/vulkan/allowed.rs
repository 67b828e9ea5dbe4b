//! The messages of the layer that are not failures.

use super::messages::Message;

/// Messages that are allowed.
pub struct Allowed {
    /// The layer's name of the rule.
    pub id: &'static str,
    /// A text that the message contains.
    text: &'static str,
}

/// Every allowed message, with its reason.
pub const ALLOWED: [Allowed; 2] = [
    // wgpu-hal asks for the status of a fence in one thread while another submits with it, on drivers without
    // timeline semaphores. The status of the submission before or after is right in both cases.
    Allowed {
        id: "UNASSIGNED-Threading-MultipleThreads-Read",
        text: "object of type VkFence is simultaneously used",
    },
    // naga states the strides of arrays and the offsets of fields for types in workgroup and
    // function memory, too, where they mean nothing. No driver reads them there. spirv-val stops at
    // the first, so `cargo xtask validate` checks the kernels without them.
    Allowed {
        id: "VUID-StandaloneSpirv-None-10684",
        text: "storage class has an explicit layout from the",
    },
];

/// Returns the entry that allows a message.
pub fn entry(message: &Message) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|entry| entry.id == message.id && message.text.contains(entry.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vulkan::messages::parse;

    #[test]
    fn messages_need_the_id_and_the_text_of_an_entry() {
        let is_allowed = |text: &str| entry(&parse(text)[0]).is_some();
        let head = "Validation Error: [ VUID-StandaloneSpirv-None-10684 ] | MessageID = 0x1\n";
        let layout = "the Workgroup storage class has an explicit layout from the ArrayStride";
        assert!(is_allowed(&format!("{head}{layout} decoration\n")));
        assert!(!is_allowed(&format!("{head}the Uniform storage class has no layout\n")));
        assert!(!is_allowed(&format!("Validation Error: [ Other ] | MessageID = 0x2\n{layout}\n")));
    }
}
