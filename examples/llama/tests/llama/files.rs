//! Files that are cut, damaged or hostile are errors.

use llama::config::{Config, ConfigError};
use llama::gguf::{Gguf, GgufError, Value};

use crate::fixture::{File, Small, string, written};

fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::open(written(bytes).path())
}

/// Asserts that a file is damaged, and that the message says so.
fn assert_damaged(bytes: &[u8], expected: &str) {
    let error = open(bytes).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
}

#[test]
fn values_and_tensors_are_read() {
    let mut file = File::default();
    file.value("signed", 3, &(-7i16).to_le_bytes());
    file.value("flag", 7, &[1]);
    file.value("double", 12, &0.25f64.to_le_bytes());
    file.list("bytes", 1, &[vec![0xff], vec![2]]);
    file.tensor("x", &[2, 3], 0, (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect());
    file.tensor("y", &[2], 1, vec![0, 0x3c, 0, 0xc0]);
    let mut file = open(&file.bytes()).expect("the file is right");
    assert_eq!(file.header().get("signed"), Some(&Value::Signed(-7)));
    assert_eq!(file.header().get("flag"), Some(&Value::Bool(true)));
    assert_eq!(file.header().float("double").ok(), Some(0.25));
    assert_eq!(file.header().integers("bytes").ok(), Some(&[-1, 2][..]));
    let (info, bytes) = file.read("x").expect("it is there");
    assert_eq!(info.shape, [2, 3]);
    assert_eq!(info.block_type.floats(&bytes), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let (info, bytes) = file.read("y").expect("it is there");
    assert_eq!(info.block_type.floats(&bytes), [1.0, -2.0]);
    assert!(matches!(file.read("z"), Err(GgufError::MissingTensor(name)) if name == "z"));
    assert!(matches!(file.header().size("z"), Err(GgufError::MissingKey(_))));
    assert!(matches!(
        file.header().string("flag"),
        Err(GgufError::KeyType { found: "a boolean", .. })
    ));
}

#[test]
fn a_file_that_ends_anywhere_is_an_error() {
    let bytes = Small::new().file.bytes();
    // All lengths near the beginning, and some beyond, to the last byte of a tensor.
    let lens = (0..600).chain((600..bytes.len() - 32).step_by(997));
    for len in lens {
        assert!(open(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    open(&bytes).expect("the whole file is right");
}

#[test]
fn lengths_beyond_the_file_take_no_memory() {
    let small = File::default().bytes();
    let with = |at: usize, number: u64| {
        let mut bytes = small.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    assert_damaged(&with(8, u64::MAX), "tensors do not fit");
    assert_damaged(&with(16, 1 << 60), "keys do not fit");
    let mut file = File::default();
    file.value("text", 8, &u64::MAX.to_le_bytes());
    assert_damaged(&file.bytes(), "bytes of a string do not fit");
    let mut file = File::default();
    file.value("list", 9, &[&10u32.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat());
    assert_damaged(&file.bytes(), "elements of a list do not fit");
    let mut file = File::default();
    file.tensor("x", &[1 << 40, 1 << 40], 0, Vec::new());
    assert_damaged(&file.bytes(), "impossible");
    let mut file = File::default();
    file.tensor("x", &[1 << 20], 0, Vec::new());
    assert_damaged(&file.bytes(), "beyond the file");
    let mut file = File::default();
    file.tensor("x", &[4], 0, vec![0; 16]);
    let bytes = file.bytes();
    let at = find(&bytes, &string("x")) + 9 + 4 + 8 + 4;
    for start in [64u64, u64::MAX] {
        let mut changed = bytes.clone();
        changed[at..at + 8].copy_from_slice(&start.to_le_bytes());
        assert_damaged(&changed, "beyond the file");
    }
}

#[test]
fn what_is_not_as_the_format_says_is_an_error() {
    let mut file = File::default();
    file.tensor("x", &[33], 3, vec![0; 40]);
    assert_damaged(&file.bytes(), "impossible");
    let mut file = File::default();
    file.tensor("x", &[32], 16, vec![0; 40]);
    assert_damaged(&file.bytes(), "not supported");
    let mut file = File::default();
    file.tensor("x", &[1, 1, 1, 1, 1], 0, vec![0; 4]);
    assert_damaged(&file.bytes(), "5 axes");
    for twice in [
        |file: &mut File| file.size("x", 1),
        |file: &mut File| file.tensor("x", &[1], 0, vec![0; 4]),
    ] {
        let mut file = File::default();
        twice(&mut file);
        twice(&mut file);
        assert_damaged(&file.bytes(), "twice");
    }
    for alignment in [0, 3] {
        let mut file = File::default();
        file.size("general.alignment", alignment);
        assert_damaged(&file.bytes(), "alignment");
    }
    let mut file = File::default();
    file.value("text", 8, &[&2u64.to_le_bytes()[..], &[0xff, 0xfe]].concat());
    assert_damaged(&file.bytes(), "UTF-8");
    let mut file = File::default();
    file.list("list", 9, &[[&8u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat()]);
    assert_damaged(&file.bytes(), "lists of lists");
    let mut file = File::default();
    file.value("x", 13, &[]);
    assert_damaged(&file.bytes(), "no type 13");
    let mut bytes = File::default().bytes();
    bytes[4] = 1;
    assert!(matches!(open(&bytes), Err(GgufError::Version(1))));
    assert!(matches!(open(b"PK\x03\x04 and more"), Err(GgufError::Magic(_))));
}

#[test]
fn models_that_are_not_supported_are_named() {
    let small = Small::new().file;
    let config = |change: &dyn Fn(&mut File)| {
        let mut file = File::default();
        change(&mut file);
        Config::read(open(&file.bytes()).expect("the file is right").header())
    };
    let error =
        config(&|file| file.text("general.architecture", "gpt-j")).expect_err("it is another");
    assert!(matches!(error, ConfigError::Architecture(name) if name == "gpt-j"));
    let error =
        config(&|file| file.text("general.architecture", "llama")).expect_err("sizes are missing");
    assert!(error.to_string().contains("no `"), "{error}");
    let bytes = small.bytes();
    let config =
        Config::read(open(&bytes).expect("the file is right").header()).expect("the sizes fit");
    assert_eq!((config.layers, config.head_width(), config.kv_heads), (2, 16, 2));
    // Four heads of queries do not share three of keys. Sizes that are not those of the tensors or tokens.
    let changes: [(&str, [u8; 4]); 5] = [
        ("attention.head_count_kv", 3u32.to_le_bytes()),
        ("block_count", (1u32 << 31).to_le_bytes()),
        ("rope.dimension_count", 8u32.to_le_bytes()),
        ("attention.layer_norm_rms_epsilon", 0.0f32.to_le_bytes()),
        ("rope.freq_base", f32::NAN.to_le_bytes()),
    ];
    for (key, value) in changes {
        let key = string(&format!("llama.{key}"));
        let at = find(&bytes, &key) + key.len() + 4;
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&value);
        let error = Config::read(open(&changed).expect("the file is right").header());
        let error = error.expect_err("sizes do not fit");
        assert!(matches!(error, ConfigError::Sizes(_)), "{error}");
    }
    let mut file = small.clone();
    file.size("llama.vocab_size", 1);
    let error = Config::read(open(&file.bytes()).expect("the file is right").header());
    assert!(matches!(error, Err(ConfigError::Sizes(_))));
    // Two tensors in the place of one.
    let second = string("blk.0.ffn_up.weight");
    let at = find(&bytes, &second) + second.len() + 4 + 2 * 8 + 4;
    let mut changed = bytes.clone();
    changed[at..at + 8].copy_from_slice(&0u64.to_le_bytes());
    assert_damaged(&changed, "overlap");
    let mut file = File::default();
    (0..9).for_each(|i| {
        file.tensor(&format!("x{i}"), &[64], 0, if i == 0 { vec![0; 256] } else { Vec::new() })
    });
    assert_damaged(&file.bytes(), "beyond the file");
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).expect("it is there")
}
