//! Pickles with dictionaries of tensors. Nothing else is made of them, and no code is run: what asks for it is an
//! error.

use std::collections::BTreeMap;
use std::rc::Rc;

use burn::tensor::DType;
use thiserror::Error;

use super::dtype;

/// Why a pickle is no dictionary of tensors.
#[derive(Debug, Error)]
pub enum PickleError {
    /// It ends too early, or is damaged.
    #[error("at byte {position} of the pickle: {problem}")]
    Damaged { position: usize, problem: String },
    /// It asks for something of Python that is not a part of a state dictionary.
    #[error("it has a `{0}`: save `model.state_dict()`, which has tensors and nothing else")]
    Global(String),
}

/// Where the values of a tensor are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name of the storage.
    pub storage: Rc<str>,
    pub dtype: DType,
    /// The first element in the storage.
    pub start: u64,
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
}

/// A value.
#[derive(Debug, Clone)]
enum Value {
    /// Something that is no tensor, and does not matter.
    Other,
    Integer(i64),
    Text(Rc<str>),
    /// With how many tuples and dictionaries are in each other.
    Tuple(Rc<[Value]>, usize),
    List,
    Dictionary(Rc<BTreeMap<Rc<str>, Value>>, usize),
    /// A name of Python's: module and name.
    Global(Rc<str>),
    Storage(Rc<str>, DType),
    Tensor(Rc<TensorInfo>),
}

/// Calls of Python whose results are no tensors, in checkpoints beside weights.
const HARMLESS: [&str; 9] = [
    "__builtin__.set",
    "builtins.set",
    "__builtin__.bytearray",
    "builtins.bytearray",
    "_codecs.encode",
    "collections.Counter",
    "collections.defaultdict",
    "torch.Size",
    "torch.device",
];

/// The most tuples and dictionaries in each other.
const MAX_DEPTH: usize = 32;

/// The most values: a tensor has some twenty.
const MAX_VALUES: usize = 1 << 22;

/// The most bytes of a key.
const MAX_KEY: usize = 1 << 10;

/// The most axes of a tensor.
const MAX_AXES: usize = 64;

/// The most bytes of all names of tensors: a small file can name a tensor many times.
const MAX_NAMES: usize = 64 << 20;

/// Returns the tensors of a pickle. The names of dictionaries in others are joined by dots.
///
/// # Errors
///
/// Returns an error if the pickle is damaged, or has something that is no part of a state dictionary.
pub fn tensors(bytes: &[u8]) -> Result<Vec<(String, Rc<TensorInfo>)>, PickleError> {
    let mut machine = Machine { bytes, ..Machine::default() };
    let value = machine.run()?;
    let mut found = Vec::new();
    match collect("", &value, &mut found, &mut 0) {
        true => Ok(found),
        false => Err(machine.damaged("the names of the tensors are too long")),
    }
}

/// Adds the tensors in a value. Returns `false` if their names have too many bytes, of which `bytes` are there.
fn collect(
    name: &str,
    value: &Value,
    found: &mut Vec<(String, Rc<TensorInfo>)>,
    bytes: &mut usize,
) -> bool {
    match value {
        Value::Tensor(info) => {
            *bytes += name.len();
            found.push((name.to_owned(), info.clone()));
            *bytes <= MAX_NAMES
        }
        Value::Dictionary(entries, _) => entries.iter().all(|(key, value)| {
            let key = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
            collect(&key, value, found, bytes)
        }),
        _ => true,
    }
}

/// Reads the instructions of a pickle.
#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    position: usize,
    stack: Vec<Value>,
    /// Where the values after each mark begin.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Value>,
    values: usize,
}

impl Machine<'_> {
    fn damaged(&self, problem: impl Into<String>) -> PickleError {
        PickleError::Damaged { position: self.position, problem: problem.into() }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        let end = self.position.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.damaged("it ends too early"))?;
        let bytes = &self.bytes[self.position..end];
        self.position = end;
        Ok(bytes)
    }

    fn integer(&mut self, bytes: usize) -> Result<u64, PickleError> {
        let little = self.take(bytes)?.iter().rev();
        Ok(little.fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Result<String, PickleError> {
        let rest = &self.bytes[self.position..];
        let len = rest.iter().position(|byte| *byte == b'\n');
        let len = len.ok_or_else(|| self.damaged("a line does not end"))?;
        let line = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.position += 1;
        Ok(line)
    }

    fn text(&mut self, len: u64) -> Result<Value, PickleError> {
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?.to_vec();
        let text = String::from_utf8(bytes).map_err(|_| self.damaged("a text is not UTF-8"))?;
        Ok(Value::Text(text.into()))
    }

    /// Reads a value that does not matter.
    fn skip(&mut self, len: u64) -> Result<(), PickleError> {
        self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.push(Value::Other)
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.damaged(format!("there are more than {MAX_VALUES} values")));
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > floor {
            true => Ok(self.stack.pop().expect("it is not empty")),
            false => Err(self.damaged("a value is missing")),
        }
    }

    /// Returns the values after the last mark.
    fn marked(&mut self) -> Result<Vec<Value>, PickleError> {
        let start = self.marks.pop().ok_or_else(|| self.damaged("a mark is missing"))?;
        Ok(self.stack.split_off(start))
    }

    fn tuple(&mut self, values: Vec<Value>) -> Result<(), PickleError> {
        let depth = self.depth(&values)?;
        self.push(Value::Tuple(values.into(), depth))
    }

    /// Returns how many tuples and dictionaries are in each other in one with these values.
    fn depth<'a>(&self, values: impl IntoIterator<Item = &'a Value>) -> Result<usize, PickleError> {
        let depth = |value: &Value| match value {
            Value::Tuple(_, depth) | Value::Dictionary(_, depth) => *depth,
            _ => 0,
        };
        let depth = values.into_iter().map(depth).max().unwrap_or(0) + 1;
        match depth <= MAX_DEPTH {
            true => Ok(depth),
            false => Err(self.damaged(format!("more than {MAX_DEPTH} values are in each other"))),
        }
    }

    fn run(&mut self) -> Result<Value, PickleError> {
        loop {
            let instruction = self.take(1)?[0];
            match instruction {
                b'.' => return self.pop(),
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                b'(' => self.marks.push(self.stack.len()),
                b'N' | 0x88 | 0x89 => self.push(Value::Other)?,
                b'K' | b'M' | b'J' | 0x8a => {
                    let value = self.number(instruction)?;
                    self.push(Value::Integer(value))?;
                }
                b'G' => self.skip(8)?,
                // Integers, texts and bytes that are no names or sizes.
                0x8b | b'B' => {
                    let len = self.integer(4)?;
                    self.skip(len)?;
                }
                b'C' => {
                    let len = self.integer(1)?;
                    self.skip(len)?;
                }
                0x8e | 0x96 => {
                    let len = self.integer(8)?;
                    self.skip(len)?;
                }
                0x8f => self.push(Value::List)?,
                0x91 => {
                    self.marked()?;
                    self.push(Value::Other)?;
                }
                0x90 => self.fill(b'e')?,
                0x81 | 0x92 => return self.object(instruction),
                b'X' | 0x8c | 0x8d => {
                    let len = match instruction {
                        b'X' => self.integer(4)?,
                        0x8c => self.integer(1)?,
                        _ => self.integer(8)?,
                    };
                    let text = self.text(len)?;
                    self.push(text)?;
                }
                b'}' => self.push(empty())?,
                b']' => self.push(Value::List)?,
                b')' => self.tuple(Vec::new())?,
                0x85..=0x87 => {
                    let count = usize::from(instruction - 0x84);
                    let mut values: Vec<Value> =
                        (0..count).map(|_| self.pop()).collect::<Result<_, _>>()?;
                    values.reverse();
                    self.tuple(values)?;
                }
                b't' => {
                    let values = self.marked()?;
                    self.tuple(values)?;
                }
                b'q' | b'r' | 0x94 => self.remember(instruction)?,
                b'h' | b'j' => self.recall(instruction)?,
                b'c' => {
                    let name = format!("{}.{}", self.line()?, self.line()?);
                    self.push(Value::Global(name.into()))?;
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Value::Text(module), Value::Text(name)) = (module, name) else {
                        return Err(self.damaged("a name is no text"));
                    };
                    self.push(Value::Global(format!("{module}.{name}").into()))?;
                }
                b'Q' => self.storage()?,
                b'R' => self.call()?,
                b'a' | b'e' | b's' | b'u' => self.fill(instruction)?,
                b'b' => drop(self.pop()?),
                other => return Err(self.damaged(format!("there is an instruction {other:#04x}"))),
            }
        }
    }

    fn number(&mut self, instruction: u8) -> Result<i64, PickleError> {
        Ok(match instruction {
            b'K' => self.integer(1)? as i64,
            b'M' => self.integer(2)? as i64,
            b'J' => i64::from(self.integer(4)? as u32 as i32),
            _ => {
                let bytes = self.integer(1)? as usize;
                if bytes > 8 {
                    // No size is as large.
                    self.take(bytes)?;
                    return Ok(-1);
                }
                let shift = 64 - 8 * bytes as u32;
                let value = self.integer(bytes)?;
                if bytes == 0 { 0 } else { ((value << shift) as i64) >> shift }
            }
        })
    }

    fn remember(&mut self, instruction: u8) -> Result<(), PickleError> {
        let place = match instruction {
            b'q' => self.integer(1)? as u32,
            b'r' => self.integer(4)? as u32,
            _ => self.memo.len() as u32,
        };
        let value = self.pop()?;
        // A dictionary is filled later: what is remembered is that there is one.
        let remembered =
            if matches!(value, Value::Dictionary(..)) { empty() } else { value.clone() };
        self.memo.insert(place, remembered);
        self.push(value)
    }

    fn recall(&mut self, instruction: u8) -> Result<(), PickleError> {
        let place = self.integer(if instruction == b'h' { 1 } else { 4 })? as u32;
        let value = self.memo.get(&place).cloned();
        let value = value.ok_or_else(|| self.damaged("a value is missing"))?;
        // A dictionary that is there twice has its tensors under the first name.
        self.push(if matches!(value, Value::Dictionary(..)) { Value::Other } else { value })
    }

    /// Returns the error for an object of a class.
    fn object(&mut self, instruction: u8) -> Result<Value, PickleError> {
        let arguments = if instruction == 0x81 { 1 } else { 2 };
        for _ in 0..arguments {
            self.pop()?;
        }
        match self.pop()? {
            Value::Global(class) => Err(PickleError::Global(class.to_string())),
            _ => Err(self.damaged("an object has no class")),
        }
    }

    /// Makes a storage of `("storage", type, name, device, length)`.
    fn storage(&mut self) -> Result<(), PickleError> {
        let value = self.pop()?;
        let Value::Tuple(parts, _) = &value else {
            return Err(self.damaged("a storage is no tuple"));
        };
        let [Value::Text(kind), Value::Global(of), Value::Text(name), ..] = &parts[..] else {
            return Err(self.damaged("a storage has other parts"));
        };
        let of_type = of.strip_prefix("torch.").and_then(dtype).filter(|_| &**kind == "storage");
        let Some(dtype) = of_type else { return Err(PickleError::Global(of.to_string())) };
        self.push(Value::Storage(name.clone(), dtype))
    }

    /// Makes what a call of Python would: a tensor, or an empty dictionary.
    fn call(&mut self) -> Result<(), PickleError> {
        let (parts, function) = (self.pop()?, self.pop()?);
        let (Value::Global(function), Value::Tuple(parts, _)) = (function, parts) else {
            return Err(self.damaged("what is called is no name"));
        };
        let value = match (&*function, &parts[..]) {
            ("collections.OrderedDict", []) => empty(),
            (
                "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
                [tensor @ Value::Tensor(_), ..],
            ) => tensor.clone(),
            (name, _) if HARMLESS.contains(&name) => Value::Other,
            (
                "torch._utils._rebuild_tensor_v2",
                [Value::Storage(storage, dtype), Value::Integer(start), shape, strides, rest @ ..],
            ) => {
                // Conjugated or negative views.
                if rest
                    .get(2)
                    .is_some_and(|of| !matches!(of, Value::Dictionary(d, _) if d.is_empty()))
                {
                    return Err(self.damaged("a tensor has other numbers than its storage"));
                }
                let sizes = (u64::try_from(*start).ok(), sizes(shape), sizes(strides));
                let (Some(start), Some(shape), Some(strides)) = sizes else {
                    return Err(self.damaged("the sizes of a tensor are no sizes"));
                };
                if shape.len() != strides.len() || shape.len() > MAX_AXES {
                    return Err(self.damaged("a tensor has other strides than axes, or too many"));
                }
                let storage = storage.clone();
                Value::Tensor(Rc::new(TensorInfo { storage, dtype: *dtype, start, shape, strides }))
            }
            _ => return Err(PickleError::Global(function.to_string())),
        };
        self.push(value)
    }

    /// Puts values into a list, which does not matter, or a dictionary.
    fn fill(&mut self, instruction: u8) -> Result<(), PickleError> {
        let values = match instruction {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.marked()?,
        };
        let container = self.pop()?;
        let Value::Dictionary(mut entries, depth) = container else {
            return match container {
                Value::List if matches!(instruction, b'a' | b'e') => self.push(container),
                _ => Err(self.damaged("values are put into something else")),
            };
        };
        let of_dictionary = matches!(instruction, b's' | b'u') && values.len().is_multiple_of(2);
        if !of_dictionary {
            return Err(self.damaged("a dictionary has a key without a value"));
        }
        let filled = Rc::make_mut(&mut entries);
        for pair in values.chunks(2) {
            let key: Rc<str> = match &pair[0] {
                Value::Text(key) if key.len() <= MAX_KEY => key.clone(),
                Value::Integer(key) => key.to_string().into(),
                Value::Text(_) => return Err(self.damaged("a key is too long")),
                // No name of a tensor.
                _ => continue,
            };
            if filled.insert(key.clone(), pair[1].clone()).is_some() {
                return Err(self.damaged(format!("the key `{key}` is there twice")));
            }
        }
        let depth = depth.max(self.depth(&values)?);
        self.push(Value::Dictionary(entries, depth))
    }
}

fn empty() -> Value {
    Value::Dictionary(Rc::default(), 1)
}

/// Returns the sizes that a tuple holds.
fn sizes(value: &Value) -> Option<Vec<u64>> {
    let Value::Tuple(sizes, _) = value else { return None };
    let size = |value: &Value| match value {
        Value::Integer(size) => u64::try_from(*size).ok(),
        _ => None,
    };
    sizes.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"w": tensor}`, of which the bytes are those of a file of PyTorch 2.
    fn pickle() -> Vec<u8> {
        let mut bytes = b"\x80\x02}q\0(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
        bytes
            .extend(b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ");
        bytes.extend(b"K\x01K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRu.");
        bytes
    }

    fn problem(bytes: &[u8]) -> String {
        tensors(bytes).expect_err("it is no dictionary of tensors").to_string()
    }

    #[test]
    fn a_tensor_is_where_its_storage_says() {
        let found = tensors(&pickle()).expect("it is right");
        let info = TensorInfo {
            storage: "0".into(),
            dtype: DType::F32,
            start: 1,
            shape: vec![2, 2],
            strides: vec![2, 1],
        };
        assert_eq!(found, [("w".to_owned(), Rc::new(info))]);
    }

    /// No pickle that is cut or changed panics, and none takes long or much memory.
    #[test]
    fn changed_pickles_do_not_panic() {
        let whole = pickle();
        for len in 0..whole.len() {
            tensors(&whole[..len]).expect_err("it is cut");
        }
        for place in 0..whole.len() {
            for value in 0..=255 {
                let mut bytes = whole.clone();
                bytes[place] = value;
                let _ = tensors(&bytes);
            }
        }
    }

    #[test]
    fn what_is_no_tensor_is_left_out() {
        // {"a": 2**70, "b": b"x", "c": {1}, (1,): 2, "d": an empty dictionary, twice}
        let mut bytes = b"\x80\x04}(X\x01\0\0\0a\x8a\x09\0\0\0\0\0\0\0\0@".to_vec();
        bytes.extend(b"X\x01\0\0\0bC\x01xX\x01\0\0\0c\x8f(K\x01\x90K\x01\x85K\x02");
        bytes.extend(b"X\x01\0\0\0d}\x94X\x01\0\0\0eh\0u.");
        assert_eq!(tensors(&bytes).expect("it is right"), []);
    }

    #[test]
    fn hostile_pickles_are_errors() {
        let object = b"\x80\x02cmodels\nNet\n)\x81}b.";
        assert!(problem(object).contains("`models.Net`"), "{}", problem(object));
        let call = b"cposix\nsystem\nX\x02\0\0\0ls\x85R.";
        assert!(problem(call).contains("`posix.system`"));
        assert!(problem(b"}X\x01\0\0\0aNsX\x01\0\0\0aNs.").contains("there twice"));
        assert!(problem(b"t.").contains("mark"));
        assert!(problem(b"(0").contains("instruction"));
        assert!(problem(b"h\x05.").contains("missing"));
        // Tuples in tuples.
        let deep = [&b")"[..], &[0x85; 100][..], &b"."[..]].concat();
        assert!(problem(&deep).contains("in each other"));
        // A long key that is there many times.
        let mut long = b"X\0\x08\0\0".to_vec();
        long.extend([b'k'; 2048]);
        long.extend(b"q\0}h\0Ns.");
        assert!(problem(&long).contains("too long"));
        let many = [&b"]"[..], &[b'N'; 1 << 23][..]].concat();
        assert!(problem(&many).contains("values"));
    }
}
