//! Blocks of every type: elements as the package `gguf` 0.19.0 of the format's authors computes them.

use llama::blocks::BlockType;

/// The number of a type, the bytes of a block, some elements, and the sum of all squares.
type Block = (u32, &'static str, &'static [(usize, f32)], f64);

const BLOCKS: [Block; 5] = [
    (
        2,
        "00282d3c2ecdde950a18556e9f7a4328b1bc",
        &[(0, 0.15625), (1, 0.125), (15, 0.125), (16, -0.1875), (17, -0.15625), (31, 0.09375)],
        0.66015625,
    ),
    (
        3,
        "002c00b8e3846b6eaa962cbcc1f4c94851a6a6b2",
        &[(0, -0.3125), (1, -0.25), (15, -0.375), (16, 0.375), (17, 0.0), (31, 0.1875)],
        1.9609375,
    ),
    (
        8,
        "0028f00013f9f14c23500be4a9953e7830c5790741b4855f40179ba985eeed359ba1",
        &[(0, -0.5), (1, 0.0), (15, -1.84375), (16, 3.78125), (17, 0.21875), (31, -2.96875)],
        163.4111328125,
    ),
    (
        12,
        "19181f214ab8a73763d4d7a801ae39d1e96df4c253e0621a97d9a864e67a622536b2cc4aa0df2546868f6566219cee32\
         cc2e0bbf2ec05491f0eb793440d9962be2f6f89ff99b80f89ac956caf90d895e0d154431b736a0db7e20114b697e4ed9\
         91f7efb50736bf8bf1b4d10d4baea25e289616abcdab10854d8eae32097e9e20ec7bf789bac67f64aa059e87263408bd",
        &[
            (0, -0.170002),
            (1, -0.0899696),
            (15, -0.2500343),
            (16, -0.2300262),
            (17, -0.3100586),
            (31, -0.3100586),
            (32, 1.3685913),
            (63, 0.1360931),
            (100, -0.1799965),
            (127, 0.1501369),
            (128, 0.2821445),
            (160, -0.5801239),
            (200, 0.5563221),
            (255, -0.4280872),
        ],
        72.40205999902537,
    ),
    (
        14,
        "af63f4614ee815640659b9597e7b0f174c8b12ebda90bbbe02f20cd7d5be22d0f5d1b1408d7bde5768437d9275518c9e\
         2a95b41a9e71ee6350b4de161b2b57839167e1aa2a553232d8ee6e3ed52523475d564739a089a8efef20ca6ad1ab0ee2\
         edff0f24a18918e13c0ddc96062ce1c4ddf04c895e023c101e6aead8a43c20abbc672243fcb4904edc5f72c36a7e07c8\
         48848c283d7119df589025f6780058573cc4fbaf2f8f76a9d6e0ceae748c2d8f83aa775282ab319d59c9977a09063d89\
         79db20a364a41764235b31b8ad134cdd1910",
        &[
            (0, -1.0289159),
            (1, 1.1499648),
            (15, -1.5131116),
            (16, 0.3701496),
            (17, 0.3886571),
            (31, -0.2961197),
            (32, 0.3361359),
            (63, 0.6047444),
            (100, 0.2761116),
            (127, -0.4001617),
            (128, -0.5427194),
            (160, 0.7107873),
            (200, 0.1245503),
            (255, -0.1750708),
        ],
        123.60240362295826,
    ),
];

#[test]
fn blocks_are_the_elements_of_the_format() {
    for (number, hex, elements, squares) in BLOCKS {
        let block_type = BlockType::of(number).expect("it is supported");
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("it is hexadecimal");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(bytes.len(), block_type.bytes(), "{block_type:?}");
        // Two blocks, of which the second is the same.
        let floats = block_type.floats(&[&bytes[..], &bytes].concat());
        let (first, second) = floats.split_at(block_type.elements());
        assert_eq!(first, second, "{block_type:?}");
        for &(at, expected) in elements {
            let found = first[at];
            assert!(
                (found - expected).abs() <= 1e-6 * expected.abs().max(0.1),
                "{block_type:?}, {at}: {found}"
            );
        }
        let found: f64 = first.iter().map(|&x| f64::from(x).powi(2)).sum();
        assert!((found - squares).abs() <= 1e-6 * squares, "{block_type:?}: {found}");
    }
}
