#!/usr/bin/env bash
# A compiler for browsers where rustup cannot fetch the target, from the packages of Debian's rustc-web: unpacked into a folder of
# their own, never installed, since they conflict with rustup's. Builds the standard library once.
# Usage: debian-wasm.sh FOLDER   leaves FOLDER/rustc
set -euo pipefail
home=$1
mkdir -p "$home/packages"
home=$(cd "$home" && pwd)
cd "$home/packages"
apt-get download rustc-web libstd-rust-web-1.96 libstd-rust-web-dev rust-web-src libllvm22 libz3-4 libedit2 libxml2
for package in *.deb; do dpkg-deb -x "$package" "$home/prefix"; done
prefix=$home/prefix/usr
# The compiler looks for its libraries beside itself.
ln -sf "$prefix"/lib/x86_64-linux-gnu/libLLVM.so.22.1 "$prefix"/lib/x86_64-linux-gnu/librustc_driver-*.so "$prefix/lib/"
# The linker is rustup's.
own=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin
mkdir -p "$prefix/lib/rustlib/x86_64-unknown-linux-gnu/bin"
ln -sfn "$own/rust-lld" "$own/gcc-ld" "$prefix/lib/rustlib/x86_64-unknown-linux-gnu/bin/"
export LD_LIBRARY_PATH=$prefix/lib:$prefix/lib/x86_64-linux-gnu
library=$(echo "$prefix"/src/rustc-*/library)
RUSTC=$prefix/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_DEBUG=0 \
    __CARGO_DEFAULT_LIB_METADATA=wasm RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
    CARGO_TARGET_DIR="$home/std" \
    cargo build --release --target wasm32-unknown-unknown --manifest-path "$library/sysroot/Cargo.toml" --features compiler-builtins-mem
mkdir -p "$prefix/lib/rustlib/wasm32-unknown-unknown/lib"
cp "$home"/std/wasm32-unknown-unknown/release/deps/*.rlib "$prefix/lib/rustlib/wasm32-unknown-unknown/lib/"
cat > "$home/rustc" <<SCRIPT
#!/bin/sh
export LD_LIBRARY_PATH="$LD_LIBRARY_PATH"
exec "$prefix/bin/rustc" "\$@"
SCRIPT
chmod +x "$home/rustc"
