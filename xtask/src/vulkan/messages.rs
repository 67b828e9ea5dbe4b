//! Parses the text that the layer writes.

/// A message of the layer.
#[derive(Debug)]
pub struct Message {
    severity: String,
    /// The layer's name of the rule.
    pub id: String,
    /// All lines, with the severity and the id in the first.
    pub text: String,
}

/// The beginning of a message, before its severity.
const PREFIX: &str = "Validation ";

/// The id of the message that lists the checks when a program creates an instance.
const CHECKS_ID: &str = "CURRENT-VALIDATION-ENABLED";

/// The checks that must be on, by the layer's names.
const CHECKS: [&str; 5] =
    ["Core Checks", "Synchronization", "Stateless Parameter", "Object lifetime", "Thread Safety"];

/// The id of the missing barrier that the program `missing-barriers` makes.
const MISSING_BARRIER_ID: &str = "SYNC-HAZARD-WRITE-AFTER-WRITE";

impl Message {
    /// Returns whether the message is an error or a warning.
    pub fn is_problem(&self) -> bool {
        self.severity != "Information"
    }

    /// Returns whether this is the list of checks, and all required checks are in it.
    pub fn says_that_checks_are_on(&self) -> bool {
        self.id == CHECKS_ID && CHECKS.iter().all(|check| self.text.contains(check))
    }

    /// Returns whether a barrier is missing between two dispatches.
    pub fn is_missing_barrier(&self) -> bool {
        self.id == MISSING_BARRIER_ID && self.text.contains("vkCmdDispatch")
    }
}

/// Returns the messages in a text. Lines before the first message belong to none.
pub fn parse(text: &str) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in text.lines() {
        if let Some((severity, id)) = parse_first_line(line) {
            let (severity, id) = (severity.to_owned(), id.to_owned());
            messages.push(Message { severity, id, text: String::new() });
        }
        if let Some(message) = messages.last_mut() {
            message.text.push_str(line);
            message.text.push('\n');
        }
    }
    messages
}

/// Returns the severity and the id in the first line of a message: `Validation Error: [ ID ] | `.
fn parse_first_line(line: &str) -> Option<(&str, &str)> {
    let (severity, rest) = line.strip_prefix(PREFIX)?.split_once(": [ ")?;
    let (id, _) = rest.split_once(" ] | MessageID")?;
    Some((severity, id))
}

/// Returns the first message of each id and its number, in order of appearance.
pub fn distinct<'a>(messages: &[&'a Message]) -> Vec<(&'a Message, usize)> {
    let mut found: Vec<(&Message, usize)> = Vec::new();
    for message in messages {
        match found.iter_mut().find(|(first, _)| first.id == message.id) {
            Some((_, count)) => *count += 1,
            None => found.push((message, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
noise
Validation Information: [ CURRENT-VALIDATION-ENABLED ] | MessageID = 0xfd7b2292
vkCreateInstance(): Current Validation Enabled:
  - Core Checks
  - Synchronization
  - Stateless Parameter
  - Object lifetime
  - Thread Safety

Validation Error: [ SYNC-HAZARD-WRITE-AFTER-WRITE ] | MessageID = 0x5c0ec5d6
vkCmdDispatch(): WRITE_AFTER_WRITE hazard detected.

Validation Performance Warning: [ Other ] | MessageID = 0x1
Validation Error: [ SYNC-HAZARD-WRITE-AFTER-WRITE ] | MessageID = 0x5c0ec5d6
vkCmdCopyBuffer(): WRITE_AFTER_WRITE hazard detected.
";

    #[test]
    fn messages_are_parsed() {
        let messages = parse(TEXT);
        let problems: Vec<bool> = messages.iter().map(Message::is_problem).collect();
        assert_eq!(problems, [false, true, true, true]);
        assert!(messages[0].says_that_checks_are_on());
        assert!(messages[1].is_missing_barrier());
        assert!(!messages[3].is_missing_barrier());
        assert!(messages[3].text.ends_with("detected.\n"));
    }

    #[test]
    fn a_missing_check_is_noticed() {
        assert!(!parse(&TEXT.replace("Synchron", ""))[0].says_that_checks_are_on());
    }

    #[test]
    fn messages_of_an_id_are_counted() {
        let messages = parse(TEXT);
        let counted = distinct(&messages.iter().skip(1).collect::<Vec<_>>());
        let counted: Vec<_> = counted.iter().map(|(first, count)| (&*first.id, *count)).collect();
        assert_eq!(counted, [("SYNC-HAZARD-WRITE-AFTER-WRITE", 2), ("Other", 1)]);
    }
}
