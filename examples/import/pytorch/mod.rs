//! Files of `torch.save`: an archive with a pickle, which says what there is, and the values of each storage.
//!
//! burn-store reads such files, too, but ignores strides, and has zeros for values that are missing or damaged.

mod pickle;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::{DType, TensorData};
use burn_store::{TensorSnapshot, TensorSnapshotError};
use thiserror::Error;
use zip::{CompressionMethod, ZipArchive};

use pickle::{PickleError, TensorInfo};

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum PytorchError {
    /// The archive is damaged.
    #[error("the archive is damaged: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no archive of `torch.save`.
    #[error("it is no file of `torch.save`: {0}")]
    Format(String),
    /// What it describes is no dictionary of tensors.
    #[error("{0}")]
    Pickle(#[from] PickleError),
    /// A tensor does not fit its values.
    #[error("the tensor `{name}` does not fit its values: {problem}")]
    Tensor { name: String, problem: String },
}

/// The archive, and the storage that was read last: tensors may be parts of one.
struct Archive {
    zip: ZipArchive<BufReader<File>>,
    last: Option<(Rc<str>, Rc<[u8]>)>,
}

impl Archive {
    /// Returns the bytes of a storage.
    fn storage(&mut self, folder: &str, name: &Rc<str>) -> Result<Rc<[u8]>, PytorchError> {
        if let Some((_, bytes)) = self.last.as_ref().filter(|(last, _)| last == name) {
            return Ok(bytes.clone());
        }
        let mut bytes = Vec::new();
        // To the end, where the checksum is compared.
        self.zip.by_name(&format!("{folder}data/{name}"))?.read_to_end(&mut bytes)?;
        let bytes: Rc<[u8]> = bytes.into();
        self.last = Some((name.clone(), bytes.clone()));
        Ok(bytes)
    }
}

/// The most elements of a tensor, which may have the same value in many places.
const MAX_ELEMENTS: u64 = 1 << 36;

/// The most bytes of the pickle: it has no values.
const MAX_PICKLE: u64 = 64 << 20;

/// Returns the tensors of a file. Their values are read when they are needed.
///
/// # Errors
///
/// Returns an error if the file is no archive of `torch.save`, is damaged, or has anything but tensors, numbers and
/// texts in dictionaries.
pub fn read(file: File) -> Result<Vec<TensorSnapshot>, PytorchError> {
    let len = file.metadata()?.len();
    let mut file = BufReader::new(file);
    check_end(&mut file, len)?;
    let mut archive = ZipArchive::new(file)?;
    let folder = folder(&mut archive, len)?;
    if let Ok(mut order) = archive.by_name(&format!("{folder}byteorder")) {
        let mut text = String::new();
        order.by_ref().take(16).read_to_string(&mut text)?;
        if text != "little" {
            return Err(PytorchError::Format(format!("its byte order is {text:?}")));
        }
    }
    let mut pickle = Vec::new();
    archive.by_name(&format!("{folder}data.pkl"))?.take(MAX_PICKLE).read_to_end(&mut pickle)?;
    let tensors = pickle::tensors(&pickle)?;
    let archive = Rc::new(RefCell::new(Archive { zip: archive, last: None }));
    let mut found = Vec::new();
    for (name, info) in tensors {
        check(&name, &info, &folder, &archive)?;
        found.push(snapshot(&name, info, folder.clone(), archive.clone()));
    }
    Ok(found)
}

/// Checks that the file ends with the record that ends an archive, without a comment, as `torch.save` writes it: to
/// look for it elsewhere may take long.
fn check_end(file: &mut BufReader<File>, len: u64) -> Result<(), PytorchError> {
    const RECORD: u64 = 22;
    let mut record = [0; RECORD as usize];
    file.seek(SeekFrom::Start(len.saturating_sub(RECORD)))?;
    let is_whole = file.read_exact(&mut record).is_ok();
    if is_whole && record.starts_with(b"PK\x05\x06") && record.ends_with(&[0, 0]) {
        return Ok(());
    }
    Err(PytorchError::Format("its archive does not end: it may be cut".to_owned()))
}

/// Checks that nothing in the archive is larger than the file, and returns the folder that all of it is in.
fn folder(archive: &mut ZipArchive<BufReader<File>>, len: u64) -> Result<String, PytorchError> {
    let mut folder = None;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index)?;
        // `torch.save` compresses nothing.
        let is_stored = entry.compression() == CompressionMethod::Stored
            && entry.size() == entry.compressed_size();
        if !is_stored || entry.size() > len {
            let problem = format!("`{}` is compressed, or larger than the file", entry.name());
            return Err(PytorchError::Format(problem));
        }
        if let Some(start) = entry.name().strip_suffix("data.pkl") {
            folder = Some(start.to_owned());
        }
    }
    folder.ok_or_else(|| PytorchError::Format("it has no `data.pkl`".to_owned()))
}

/// Checks that the elements of a tensor are within its storage, and that the storage is there.
fn check(
    name: &str,
    info: &TensorInfo,
    folder: &str,
    archive: &RefCell<Archive>,
) -> Result<(), PytorchError> {
    let error = |problem: String| PytorchError::Tensor { name: name.to_owned(), problem };
    let mut archive = archive.borrow_mut();
    let entry = archive.zip.by_name(&format!("{folder}data/{}", info.storage));
    let bytes = entry.map_err(|_| error("they are missing".to_owned()))?.size();
    let elements = bytes / info.dtype.size() as u64;
    let beyond = || error(format!("there are {elements} values"));
    let last = info.shape.iter().zip(&info.strides).try_fold(info.start, |last, (size, stride)| {
        last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
    });
    let count = info.shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
    match (last, count) {
        (Some(last), Some(count)) if count == 0 || last < elements && count < MAX_ELEMENTS => {
            Ok(())
        }
        _ => Err(beyond()),
    }
}

fn snapshot(
    name: &str,
    info: Rc<TensorInfo>,
    folder: String,
    archive: Rc<RefCell<Archive>>,
) -> TensorSnapshot {
    let shape: Vec<usize> = info.shape.iter().map(|size| *size as usize).collect();
    let (dtype, of_data) = (info.dtype, shape.clone());
    let path = name.split('.').map(str::to_owned).collect();
    let values = move || {
        let mut archive = archive.borrow_mut();
        let bytes = values(&info, &folder, &mut archive)
            .map_err(|error| TensorSnapshotError::DataError(error.to_string()))?;
        Ok(TensorData::from_bytes_vec(bytes, of_data.clone(), dtype))
    };
    TensorSnapshot::from_closure(
        Rc::new(values),
        dtype,
        shape.into(),
        path,
        Vec::new(),
        ParamId::new(),
    )
}

/// Returns the bytes of a tensor, row by row.
fn values(info: &TensorInfo, folder: &str, archive: &mut Archive) -> Result<Vec<u8>, PytorchError> {
    let storage = archive.storage(folder, &info.storage)?;
    let size = info.dtype.size();
    let count: u64 = info.shape.iter().product();
    let mut bytes = Vec::with_capacity(count as usize * size);
    let mut index = vec![0u64; info.shape.len()];
    for _ in 0..count {
        let places = index.iter().zip(&info.strides).map(|(index, stride)| index * stride);
        let place = (info.start + places.sum::<u64>()) as usize * size;
        let value = storage.get(place..place + size);
        let value = value.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        bytes.extend_from_slice(value);
        // The last axis first.
        for (index, axis) in index.iter_mut().zip(&info.shape).rev() {
            *index += 1;
            if *index < *axis {
                break;
            }
            *index = 0;
        }
    }
    Ok(bytes)
}

/// Returns the type of a storage's elements.
fn dtype(storage: &str) -> Option<DType> {
    Some(match storage {
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "LongStorage" => DType::I64,
        "IntStorage" => DType::I32,
        "ShortStorage" => DType::I16,
        "CharStorage" => DType::I8,
        "ByteStorage" | "BoolStorage" => DType::U8,
        _ => return None,
    })
}
