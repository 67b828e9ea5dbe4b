use std::collections::HashMap;
use std::path::Path;

use burn_store::KeyRemapper;
use burn_wgsl::{Wgsl, WgslDevice};
use import::file;
use import::models::{Cnn, Imported, Mlp};
use import::torch::{self, LoadError};
use safetensors::tensor::{Dtype, TensorView};

use crate::{fixture, read};

/// Returns what is wrong with a file of weights.
fn problem(path: &Path) -> Option<String> {
    let tensors = match read(path) {
        Ok(tensors) => tensors,
        Err(error) => return Some(error.to_string()),
    };
    let mut model = Mlp::<Wgsl>::new(&WgslDevice::Cpu);
    torch::load(&mut model, &tensors).err().map(|error| error.to_string())
}

#[test]
fn all_differences_are_listed_together() {
    let folder = tempfile::tempdir().expect("it is created");
    let path = folder.path().join("other.safetensors");
    let bytes = vec![0; 4 * 16 * 6];
    let tensor = |shape: &[usize]| {
        let size = 4 * shape.iter().product::<usize>();
        TensorView::new(Dtype::F32, shape.to_vec(), &bytes[..size]).expect("the size is right")
    };
    let tensors = [
        ("module.fc1.weight", tensor(&[16, 6])),
        ("module.fc1.bias", tensor(&[16])),
        ("module.fc2.weight", tensor(&[8, 6])),
        ("module.fc2.bias", tensor(&[16])),
        ("module.fc3.bias", tensor(&[4])),
        ("module.fc4.bias", tensor(&[4])),
        ("module.bn.num_batches_tracked", tensor(&[1])),
    ];
    safetensors::serialize_to_file(tensors, None, &path).expect("it is written");
    let all = problem(&path).expect("no name fits");
    assert_eq!(all.lines().count(), 1 + 6 + 6, "{all}");

    let names = KeyRemapper::new().add_pattern("^module\\.", "").expect("it is a pattern");
    let tensors = file::read(&path, &names).expect("it is readable");
    let mut model = Mlp::<Wgsl>::new(&WgslDevice::Cpu);
    let error = torch::load(&mut model, &tensors).expect_err("it is another model");
    let LoadError::Mismatch(mismatch) = &error else { panic!("{error}") };
    assert_eq!(mismatch.missing, ["fc3.weight"]);
    assert_eq!(mismatch.unknown, ["fc4.bias"]);
    assert_eq!(mismatch.shapes, [("fc2.weight".to_owned(), vec![16, 16], vec![8, 6])]);
    let lines = "`fc3.weight` is missing\n`fc4.bias` is not of this model\n\
                 `fc2.weight` is [8, 6], not [16, 16]";
    assert!(error.to_string().ends_with(lines), "{error}");
}

#[test]
fn weights_of_16_bits_are_loaded_as_f32() {
    let original = read(&fixture("mlp.safetensors")).expect("it is readable");
    let halves: HashMap<String, (Vec<usize>, Vec<u8>)> = original
        .iter()
        .map(|(name, tensor)| {
            let data = tensor.to_data().expect("it is there");
            let data = data.convert_dtype(burn::tensor::DType::F16);
            (name.clone(), (tensor.shape.to_vec(), data.as_bytes().to_vec()))
        })
        .collect();
    let views = halves.iter().map(|(name, (shape, bytes))| {
        (name, TensorView::new(Dtype::F16, shape.clone(), bytes).expect("the size is right"))
    });
    let folder = tempfile::tempdir().expect("it is created");
    let path = folder.path().join("half.safetensors");
    safetensors::serialize_to_file(views, None, &path).expect("it is written");
    let mut model = Mlp::<Wgsl>::new(&WgslDevice::Cpu);
    torch::load(&mut model, &read(&path).expect("it is readable")).expect("it fits");
    let saved = torch::to_bytes(&model).expect("the weights are of f32");
    let saved = safetensors::SafeTensors::deserialize(&saved).expect("it is valid");
    let found = saved.tensor("fc1.weight").expect("it is there");
    let value = |i: usize| f32::from_le_bytes(found.data()[4 * i..][..4].try_into().expect("4"));
    let expected = original["fc1.weight"].to_data().expect("it is there");
    for (i, expected) in expected.iter::<f32>().enumerate() {
        assert!((value(i) - expected).abs() <= 1e-3 * expected.abs().max(0.1));
    }
}

/// A file that is cut anywhere is an error, and never a panic.
#[test]
fn cut_files_are_errors() {
    let folder = tempfile::tempdir().expect("it is created");
    for name in ["mlp.pt", "mlp.safetensors"] {
        let bytes = std::fs::read(fixture(name)).expect("it is there");
        let path = folder.path().join(name);
        for len in (0..bytes.len()).step_by(7) {
            std::fs::write(&path, &bytes[..len]).expect("it is written");
            assert!(problem(&path).is_some(), "{len} bytes of {name}");
        }
        std::fs::write(&path, &bytes).expect("it is written");
        assert_eq!(problem(&path), None);
    }
}

/// A damaged byte is an error, or changes nothing: PyTorch's archives have checksums. Safetensors have none.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().expect("it is created");
    let weights = |path: &Path| {
        let mut model = Mlp::<Wgsl>::new(&WgslDevice::Cpu);
        let tensors = read(path).map_err(|error| error.to_string())?;
        torch::load(&mut model, &tensors).map_err(|error| error.to_string())?;
        Ok::<_, String>(torch::to_bytes(&model).expect("it is saved"))
    };
    let expected = weights(&fixture("mlp.pt")).expect("it is readable");
    for name in ["mlp.pt", "mlp.safetensors"] {
        let original = std::fs::read(fixture(name)).expect("it is there");
        let path = folder.path().join(name);
        let mut errors = 0;
        for place in (0..original.len()).step_by(5) {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = original.clone();
                bytes[place] = value;
                std::fs::write(&path, &bytes).expect("it is written");
                match weights(&path) {
                    Err(_) => errors += 1,
                    Ok(found) if name == "mlp.pt" => assert!(found == expected, "byte {place}"),
                    Ok(_) => {}
                }
            }
        }
        assert!(errors > 100, "{errors} errors in {name}");
    }
}

/// Weights whose rows are not one after another in their storage, a file of the format before 1.6, and what is saved
/// beside weights in a checkpoint of a training.
#[test]
fn other_files_of_pytorch() {
    for name in ["views.pt", "checkpoint.pt"] {
        let names = KeyRemapper::new().add_pattern("^model\\.", "").expect("it is a pattern");
        let mut tensors = file::read(&fixture(name), &names).expect("it is readable");
        tensors.retain(|name, _| !name.starts_with("optimizer."));
        let mut model = Mlp::<Wgsl>::new(&WgslDevice::Cpu);
        torch::load(&mut model, &tensors).unwrap_or_else(|error| panic!("{name}: {error}"));
        let saved = torch::to_bytes(&model).expect("it is saved");
        let saved = safetensors::SafeTensors::deserialize(&saved).expect("it is valid");
        let bytes = std::fs::read(fixture("mlp.safetensors")).expect("it is there");
        let original = safetensors::SafeTensors::deserialize(&bytes).expect("it is valid");
        for (tensor, view) in original.iter() {
            assert_eq!(saved.tensor(tensor).expect("it is there").data(), view.data(), "{name}");
        }
    }
    let error = problem(&fixture("legacy.pt")).expect("it is not supported");
    assert!(error.contains("before 1.6"), "{error}");
}

#[test]
fn hostile_files_are_errors_and_run_no_code() {
    let error = problem(&fixture("hostile.pt")).expect("it asks for code to be run");
    assert!(error.contains("posix.system"), "{error}");
    assert!(!Path::new("PWNED").exists(), "{error}");

    let folder = tempfile::tempdir().expect("it is created");
    let path = folder.path().join("hostile.safetensors");
    let header = |json: &str| {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.bytes());
        bytes
    };
    let mut long = u64::MAX.to_le_bytes().to_vec();
    long.push(b'{');
    let beyond = r#"{"fc1.weight":{"dtype":"F32","shape":[16,6],"data_offsets":[0,384]}}"#;
    let huge =
        r#"{"fc1.weight":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#;
    for bytes in [long, header(beyond), header(huge), b"text".to_vec(), Vec::new()] {
        std::fs::write(&path, &bytes).expect("it is written");
        let error = problem(&path).expect("it is no file of weights");
        assert!(error.contains("hostile.safetensors"), "{error}");
    }
    let names = KeyRemapper::new().add_pattern("^fc[12]", "fc1").expect("it is a pattern");
    let both = file::read(&fixture("mlp.pt"), &names).expect_err("there are two").to_string();
    assert!(both.contains("`fc1.bias` and `fc2.bias` are both named `fc1.bias`"), "{both}");
    let missing = problem(&folder.path().join("none.pt")).expect("it is not there");
    assert!(missing.contains("none.pt"), "{missing}");
    let other = read(&fixture("cnn.onnx")).expect_err("it is of another kind").to_string();
    assert!(other.contains("neither"), "{other}");
}

#[test]
fn a_file_of_another_model_is_an_error() {
    let tensors = read(&fixture("mlp.pt")).expect("it is readable");
    let mut model = Cnn::<Wgsl>::new(&WgslDevice::Cpu);
    let error = torch::load(&mut model, &tensors).expect_err("it is another model").to_string();
    assert!(
        error.contains("`conv1.weight` is missing") && error.contains("`fc1.weight`"),
        "{error}"
    );
}
