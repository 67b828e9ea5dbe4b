//! Messages as the tokens of a prompt, in the format ChatML, with which SmolLM2 was trained.

use crate::tokenizer::{TokenizerError, Tokens};

/// A message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    pub content: String,
}

/// What SmolLM2 was told in its training, if a chat begins without a message of the system.
const SYSTEM: &str = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

/// Returns the prompt for an answer to messages. Text in them that looks like a control token is text.
///
/// # Errors
///
/// Returns an error if the model has no tokens for this, or none for a text.
pub fn prompt(messages: &[Message], tokens: &Tokens) -> Result<Vec<u32>, TokenizerError> {
    let control = |name: &str| {
        let missing = || {
            TokenizerError::Damaged(format!("there is no token {name}: it is no model for chats"))
        };
        tokens.control(name).ok_or_else(missing)
    };
    let (start, end) = (control("<|im_start|>")?, control("<|im_end|>")?);
    let mut ids = Vec::new();
    let mut add = |role: &str, content: &str| -> Result<(), TokenizerError> {
        ids.push(start);
        ids.extend(tokens.encode(&format!("{role}\n{content}"))?);
        ids.push(end);
        ids.extend(tokens.encode("\n")?);
        Ok(())
    };
    if messages.first().is_none_or(|message| message.role != "system") {
        add("system", SYSTEM)?;
    }
    for Message { role, content } in messages {
        add(role, content)?;
    }
    ids.push(start);
    ids.extend(tokens.encode("assistant\n")?);
    Ok(ids)
}
