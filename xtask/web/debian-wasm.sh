#!/usr/bin/env bash
# Sets up a Rust compiler for wasm32-unknown-unknown where rustup cannot install the target.
# Usage: debian-wasm.sh FOLDER   creates FOLDER/rustc
#
# Uses Debian's package rustc-web and its dependencies. They are unpacked into FOLDER instead of
# installed, because they conflict with rustup's toolchain. Builds the standard library once.
set -euo pipefail
folder=$1
mkdir -p "$folder/packages"
folder=$(cd "$folder" && pwd)
version=$(apt-cache policy rustc-web | sed -n 's/.*Candidate: \([0-9]*\.[0-9]*\).*/\1/p')
if [ -z "$version" ]; then
    echo "apt has no package rustc-web; run \`apt-get update\` or use a newer Debian release" >&2
    exit 1
fi
std=libstd-rust-web-$version
libraries=$(apt-cache depends "$std" |
    sed -n 's/^ *Depends: \(libllvm[0-9]*\|libz3[^ ]*\|libedit[^ ]*\)$/\1/p')
llvm=$(echo "$libraries" | grep '^libllvm')
llvm_libraries=$(apt-cache depends "$llvm" |
    sed -n 's/^ *Depends: \(libz3[^ ]*\|libedit[^ ]*\|libxml2[^ ]*\)$/\1/p')
libraries="$libraries $llvm_libraries"
cd "$folder/packages"
# shellcheck disable=SC2086  # $libraries is a list of packages
apt-get download rustc-web "$std" libstd-rust-web-dev rust-web-src $libraries
for package in *.deb; do dpkg-deb -x "$package" "$folder/prefix"; done
prefix=$folder/prefix/usr
multiarch=$(dpkg-architecture --query DEB_HOST_MULTIARCH 2>/dev/null || gcc -dumpmachine)
# The compiler looks for its libraries in the lib folder of its prefix.
libs=$prefix/lib/$multiarch
ln -sf "$libs"/libLLVM.so.* "$libs"/librustc_driver-*.so "$prefix/lib/"
# Use the linker of the default toolchain.
host=$(rustc -vV | sed -n 's/^host: //p')
host_bin=$(rustc --print sysroot)/lib/rustlib/$host/bin
mkdir -p "$prefix/lib/rustlib/$host/bin"
ln -sfn "$host_bin/rust-lld" "$host_bin/gcc-ld" "$prefix/lib/rustlib/$host/bin/"
export LD_LIBRARY_PATH=$prefix/lib:$prefix/lib/$multiarch
library=$(echo "$prefix"/src/rustc-*/library)
# The standard library needs unstable compiler flags. RUSTC_BOOTSTRAP enables them in a stable
# compiler.
RUSTC=$prefix/bin/rustc RUSTC_BOOTSTRAP=1 \
    CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_DEBUG=0 \
    __CARGO_DEFAULT_LIB_METADATA=wasm \
    RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
    CARGO_TARGET_DIR="$folder/std" \
    cargo build --release --target wasm32-unknown-unknown \
    --manifest-path "$library/sysroot/Cargo.toml" --features compiler-builtins-mem
wasm_lib=$prefix/lib/rustlib/wasm32-unknown-unknown/lib
mkdir -p "$wasm_lib"
cp "$folder"/std/wasm32-unknown-unknown/release/deps/*.rlib "$wasm_lib/"
cat > "$folder/rustc" <<SCRIPT
#!/bin/sh
export LD_LIBRARY_PATH="$LD_LIBRARY_PATH"
exec "$prefix/bin/rustc" "\$@"
SCRIPT
chmod +x "$folder/rustc"
