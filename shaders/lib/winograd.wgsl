// The parameters of the transforms of tensors in a Winograd convolution, and where tiles are.
// A tile is a block of 4 x 4 pixels of the output, and the 6 x 6 pixels of the input that they depend on.

struct Params {
    // Results: tiles of all channels.
    count: u32,
    // Columns of a product: tiles, and padding.
    cols: u32,
    // The tile of the first column, and the tiles of the convolution.
    first_tile: u32,
    tiles: u32,
    // Tiles along the sides of an image.
    tile_rows: u32,
    tile_cols: u32,
    // Channels of the tensor, and the size of its images.
    channels: u32,
    height: u32,
    width: u32,
    // Zeros around the input.
    padding_h: u32,
    padding_w: u32,
    has_bias: u32,
}

// The tile of a column of the product: its image, and the first of its 4 x 4 pixels.
struct Tile {
    is_tile: bool,
    image: u32,
    row: u32,
    col: u32,
}

fn tile_of(column: u32) -> Tile {
    let index = p.first_tile + column;
    let tile_row = index / p.tile_cols;
    return Tile(
        index < p.tiles,
        tile_row / p.tile_rows,
        tile_row % p.tile_rows * 4u,
        index % p.tile_cols * 4u,
    );
}
