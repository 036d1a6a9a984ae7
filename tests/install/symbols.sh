#!/usr/bin/env bash
# What a wheel's program needs of a system: libraries of the C library and libgcc alone, and no symbol newer than glibc 2.34
# (Ubuntu 22.04 has 2.35). Prints both. usage: symbols.sh WHEEL
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m zipfile -e "$1" "$dir"
program=$(find "$dir" -path '*.data/scripts/mxfp4-pack')
libraries=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
versions=$(readelf -W --dyn-syms "$program" | grep -oE '@(GLIBC|GCC|GLIBCXX|CXXABI|OPENSSL)_[0-9.]+' | tr -d @ | sort -uV)
echo "needs $libraries" $versions
bytes=$(stat -c %s "$1")
echo "$bytes bytes"
if other=$(grep -vxE 'lib(c|m|gcc_s|dl|rt|pthread)\.so\.[0-9]+|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)' <<<"$libraries"); then
  echo "needs other libraries: $other"
  exit 1
fi
newest=$(grep '^GLIBC_' <<<"$versions" | tail -1)
if [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" != GLIBC_2.34 ]; then
  echo "needs $newest:" $(readelf -W --dyn-syms "$program" | grep -F "@$newest" | awk '{print $8}')
  exit 1
fi
if grep -E '^(GLIBCXX|CXXABI|OPENSSL)' <<<"$versions" || [ "$bytes" -gt 30000000 ]; then exit 1; fi
