#!/usr/bin/env bash
# A compiler for browsers where rustup cannot fetch the target, from the packages of Debian's rustc-web: unpacked into a folder of
# their own, never installed, since they conflict with rustup's. Builds the standard library once.
# Usage: debian-wasm.sh FOLDER   leaves FOLDER/rustc
set -euo pipefail
home=$1
mkdir -p "$home/packages"
home=$(cd "$home" && pwd)
version=$(apt-cache policy rustc-web | sed -n 's/.*Candidate: \([0-9]*\.[0-9]*\).*/\1/p')
[ -n "$version" ] || { echo "apt knows no rustc-web: apt-get update, or a newer Debian" >&2; exit 1; }
std=libstd-rust-web-$version
libraries=$(apt-cache depends "$std" | sed -n 's/^ *Depends: \(libllvm[0-9]*\|libz3[^ ]*\|libedit[^ ]*\)$/\1/p')
llvm=$(echo "$libraries" | grep '^libllvm')
libraries="$libraries $(apt-cache depends "$llvm" | sed -n 's/^ *Depends: \(libz3[^ ]*\|libedit[^ ]*\|libxml2[^ ]*\)$/\1/p')"
cd "$home/packages"
# shellcheck disable=SC2086  # each word is a package
apt-get download rustc-web "$std" libstd-rust-web-dev rust-web-src $libraries
for package in *.deb; do dpkg-deb -x "$package" "$home/prefix"; done
prefix=$home/prefix/usr
machine=$(dpkg-architecture --query DEB_HOST_MULTIARCH 2>/dev/null || gcc -dumpmachine)
# The compiler looks for its libraries beside itself.
ln -sf "$prefix/lib/$machine"/libLLVM.so.* "$prefix/lib/$machine"/librustc_driver-*.so "$prefix/lib/"
# The linker is rustup's.
host=$(rustc -vV | sed -n 's/^host: //p')
own=$(rustc --print sysroot)/lib/rustlib/$host/bin
mkdir -p "$prefix/lib/rustlib/$host/bin"
ln -sfn "$own/rust-lld" "$own/gcc-ld" "$prefix/lib/rustlib/$host/bin/"
export LD_LIBRARY_PATH=$prefix/lib:$prefix/lib/$machine
library=$(echo "$prefix"/src/rustc-*/library)
# A compiler builds its own standard library with switches that are otherwise its makers'.
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
