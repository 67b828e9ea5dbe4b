//! Files in the format GGUF, versions 2 and 3: metadata, then tensors in blocks of quantised numbers.
//!
//! A file may come from anywhere. Every length is checked against the rest of the file before memory is taken for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::blocks::BlockType;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened or read.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// The file has another format.
    #[error("this is no GGUF file: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// The version is not supported.
    #[error("GGUF version {0} is not supported, but 2 and 3 are")]
    Version(u32),
    /// Something in the file is wrong, at a position in bytes.
    #[error("at byte {position} of the file: {problem}")]
    Damaged { position: u64, problem: String },
    /// The metadata lack a key.
    #[error("the file has no `{0}`")]
    MissingKey(String),
    /// The value of a key has another type.
    #[error("`{key}` is {found}, not {expected}")]
    KeyType { key: String, found: &'static str, expected: &'static str },
    /// The file lacks a tensor.
    #[error("the file has no tensor `{0}`")]
    MissingTensor(String),
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl Value {
    /// Returns what the value is, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Unsigned(_) | Self::Signed(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::String(_) => "a string",
            Self::Strings(_) => "a list of strings",
            Self::Integers(_) => "a list of integers",
            Self::Floats(_) => "a list of floats",
        }
    }
}

/// Where a tensor is in the file.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// Sizes of the axes. The last axis is contiguous.
    pub shape: Vec<usize>,
    /// How the numbers are stored.
    pub block_type: BlockType,
    /// The first byte of the tensor in the file.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Everything of a file but the numbers of its tensors.
#[derive(Debug)]
pub struct Header {
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// An open file.
#[derive(Debug)]
pub struct Gguf {
    file: File,
    header: Header,
}

/// The most axes of a tensor.
const MAX_AXES: u32 = 4;

impl Gguf {
    /// Opens a file, and reads everything but the numbers of its tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has another format or version, or lengths or positions in it
    /// do not fit the file.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let file = File::open(path)?;
        let header = Header::read(BufReader::new(&file), file.metadata()?.len())?;
        Ok(Self { file, header })
    }

    /// Returns everything but the numbers.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the shape of a tensor, and the bytes of its blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such tensor, or the file cannot be read.
    pub fn read(&mut self, name: &str) -> Result<(TensorInfo, Vec<u8>), GgufError> {
        let missing = || GgufError::MissingTensor(name.to_owned());
        let info = self.header.tensors.get(name).ok_or_else(missing)?.clone();
        let mut bytes = vec![0; info.bytes as usize];
        self.file.seek(SeekFrom::Start(info.start))?;
        self.file.read_exact(&mut bytes)?;
        Ok((info, bytes))
    }
}

impl Header {
    /// Reads the beginning of a file that has `len` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the input fails or ends, or has another format or version, or lengths or positions in it do
    /// not fit the file.
    pub fn read(input: impl Read, len: u64) -> Result<Self, GgufError> {
        let (metadata, tensors) = Reader { input, position: 0, len }.header()?;
        Ok(Self { metadata, tensors })
    }

    /// Returns the tensors by their names.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Returns a value, if there is one for the key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Returns the value of a key that `convert` accepts.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, GgufError> {
        let value = self.get(key).ok_or_else(|| GgufError::MissingKey(key.to_owned()))?;
        let found = value.kind();
        convert(value).ok_or_else(|| GgufError::KeyType { key: key.to_owned(), found, expected })
    }

    /// Returns a size.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is missing, or its value has another type; so do the functions below.
    pub fn size(&self, key: &str) -> Result<usize, GgufError> {
        self.typed(key, "a size", |value| match *value {
            Value::Unsigned(size) => usize::try_from(size).ok(),
            Value::Signed(size) => usize::try_from(size).ok(),
            _ => None,
        })
    }

    /// Returns a float.
    pub fn float(&self, key: &str) -> Result<f64, GgufError> {
        self.typed(key, "a float", |value| match *value {
            Value::Float(value) => Some(value),
            _ => None,
        })
    }

    /// Returns a string.
    pub fn string(&self, key: &str) -> Result<&str, GgufError> {
        self.typed(key, "a string", |value| match value {
            Value::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    /// Returns a list of strings.
    pub fn strings(&self, key: &str) -> Result<&[String], GgufError> {
        self.typed(key, "a list of strings", |value| match value {
            Value::Strings(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Returns a list of integers.
    pub fn integers(&self, key: &str) -> Result<&[i64], GgufError> {
        self.typed(key, "a list of integers", |value| match value {
            Value::Integers(values) => Some(values.as_slice()),
            _ => None,
        })
    }
}

/// The types of values, by their numbers in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    Unsigned(u64),
    Signed(u64),
    Float(u64),
    Bool,
    String,
    List,
}

impl ValueType {
    fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Unsigned(1),
            1 => Self::Signed(1),
            2 => Self::Unsigned(2),
            3 => Self::Signed(2),
            4 => Self::Unsigned(4),
            5 => Self::Signed(4),
            6 => Self::Float(4),
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::List,
            10 => Self::Unsigned(8),
            11 => Self::Signed(8),
            12 => Self::Float(8),
            _ => return None,
        })
    }

    /// Returns the fewest bytes that a value takes.
    fn min_bytes(self) -> u64 {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) | Self::Float(bytes) => bytes,
            Self::Bool => 1,
            Self::String => 8,
            Self::List => 12,
        }
    }
}

type Contents = (BTreeMap<String, Value>, BTreeMap<String, TensorInfo>);

/// Reads numbers and strings, and knows how much is left.
struct Reader<R> {
    input: R,
    position: u64,
    len: u64,
}

impl<R: Read> Reader<R> {
    fn damaged(&self, problem: impl Into<String>) -> GgufError {
        GgufError::Damaged { position: self.position, problem: problem.into() }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.expect(N as u64, "the file ends too early")?;
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.position += N as u64;
        Ok(bytes)
    }

    /// Checks that so many bytes are left.
    fn expect(&self, bytes: u64, problem: &str) -> Result<(), GgufError> {
        match bytes <= self.len.saturating_sub(self.position) {
            true => Ok(()),
            false => Err(self.damaged(problem)),
        }
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Reads the number of things that take `min_bytes` each, at least.
    fn count(&mut self, min_bytes: u64, what: &str) -> Result<usize, GgufError> {
        let count = self.u64()?;
        let bytes = count.saturating_mul(min_bytes);
        self.expect(bytes, &format!("{count} {what} do not fit into the file"))?;
        usize::try_from(count).map_err(|_| self.damaged(format!("{count} {what} are too many")))
    }

    fn string(&mut self) -> Result<String, GgufError> {
        let len = self.count(1, "bytes of a string")?;
        // The file may be one that is still arriving: memory is taken for what is there.
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len as u64).read_to_end(&mut bytes)?;
        if read < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.position += len as u64;
        String::from_utf8(bytes).map_err(|_| self.damaged("a string is not UTF-8"))
    }

    fn unsigned(&mut self, bytes: u64) -> Result<u64, GgufError> {
        Ok(match bytes {
            1 => u64::from(self.bytes::<1>()?[0]),
            2 => u64::from(u16::from_le_bytes(self.bytes()?)),
            4 => u64::from(self.u32()?),
            _ => self.u64()?,
        })
    }

    fn signed(&mut self, bytes: u64) -> Result<i64, GgufError> {
        // The sign is that of the highest byte that is there.
        let shift = 64 - 8 * bytes;
        Ok((self.unsigned(bytes)? << shift) as i64 >> shift)
    }

    fn float(&mut self, bytes: u64) -> Result<f64, GgufError> {
        match bytes {
            4 => Ok(f32::from_bits(self.u32()?).into()),
            _ => self.u64().map(f64::from_bits),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, GgufError> {
        let number = self.u32()?;
        ValueType::of(number).ok_or_else(|| self.damaged(format!("there is no type {number}")))
    }

    fn value(&mut self) -> Result<Value, GgufError> {
        Ok(match self.value_type()? {
            ValueType::Unsigned(bytes) => Value::Unsigned(self.unsigned(bytes)?),
            ValueType::Signed(bytes) => Value::Signed(self.signed(bytes)?),
            ValueType::Float(bytes) => Value::Float(self.float(bytes)?),
            ValueType::Bool => Value::Bool(self.unsigned(1)? != 0),
            ValueType::String => Value::String(self.string()?),
            ValueType::List => self.list()?,
        })
    }

    fn list(&mut self) -> Result<Value, GgufError> {
        let of = self.value_type()?;
        let count = self.count(of.min_bytes(), "elements of a list")?;
        Ok(match of {
            ValueType::Float(bytes) => Value::Floats(self.times(count, |r| r.float(bytes))?),
            ValueType::String => Value::Strings(self.times(count, Self::string)?),
            ValueType::Unsigned(bytes) => {
                Value::Integers(self.times(count, |r| Ok(r.unsigned(bytes)? as i64))?)
            }
            ValueType::Signed(bytes) => Value::Integers(self.times(count, |r| r.signed(bytes))?),
            ValueType::Bool => Value::Integers(self.times(count, |r| r.signed(1))?),
            ValueType::List => return Err(self.damaged("lists of lists are not supported")),
        })
    }

    fn times<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, GgufError>,
    ) -> Result<Vec<T>, GgufError> {
        (0..count).map(|_| read(self)).collect()
    }

    fn header(&mut self) -> Result<Contents, GgufError> {
        let magic = self.bytes::<4>()?;
        if magic != *b"GGUF" {
            return Err(GgufError::Magic(magic));
        }
        match self.u32()? {
            2 | 3 => {}
            other => return Err(GgufError::Version(other)),
        }
        // A tensor takes the length of a name, an axis, a type and an offset; a key those of a name, a type and a byte.
        let tensors = self.count(32, "tensors")?;
        let keys = self.count(13, "keys")?;
        let mut metadata = BTreeMap::new();
        for _ in 0..keys {
            let key = self.string()?;
            let value = self.value()?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(self.damaged(format!("the key `{key}` is there twice")));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(&Value::Unsigned(bytes)) if bytes.is_power_of_two() => bytes,
            Some(_) => return Err(self.damaged("the alignment is not a power of two")),
        };
        let mut found = BTreeMap::new();
        for _ in 0..tensors {
            let (name, info) = self.tensor()?;
            if found.insert(name.clone(), info).is_some() {
                return Err(self.damaged(format!("the tensor `{name}` is there twice")));
            }
        }
        let data = self.position.checked_next_multiple_of(alignment);
        for (name, info) in &mut found {
            let start = data.and_then(|data| data.checked_add(info.start));
            let end = start.and_then(|start| start.checked_add(info.bytes));
            match (start, end) {
                (Some(start), Some(end)) if end <= self.len => info.start = start,
                _ => return Err(self.damaged(format!("the tensor `{name}` is beyond the file"))),
            }
        }
        let mut places: Vec<(u64, u64)> =
            found.values().map(|info| (info.start, info.start + info.bytes)).collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[1].0 < pair[0].1) {
            return Err(self.damaged("tensors overlap"));
        }
        Ok((metadata, found))
    }

    /// Reads what describes a tensor. Its start is counted from the first tensor.
    fn tensor(&mut self) -> Result<(String, TensorInfo), GgufError> {
        let name = self.string()?;
        let axes = self.u32()?;
        if axes == 0 || axes > MAX_AXES {
            return Err(self.damaged(format!("the tensor `{name}` has {axes} axes")));
        }
        let mut shape = self.times(axes as usize, Self::u64)?;
        let number = self.u32()?;
        let start = self.u64()?;
        let block_type = BlockType::of(number).ok_or_else(|| {
            self.damaged(format!(
                "the tensor `{name}` has the type {number}, which is not supported"
            ))
        })?;
        let whole = shape[0].is_multiple_of(block_type.elements() as u64);
        let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let bytes = elements.filter(|_| whole).and_then(|elements| {
            (elements / block_type.elements() as u64).checked_mul(block_type.bytes() as u64)
        });
        let Some(bytes) = bytes else {
            return Err(
                self.damaged(format!("the shape of the tensor `{name}` is impossible: {shape:?}"))
            );
        };
        // The first size of the file is that of the contiguous axis.
        shape.reverse();
        let shape = shape.into_iter().map(|size| size as usize).collect();
        Ok((name, TensorInfo { shape, block_type, start, bytes }))
    }
}
