#!/usr/bin/env bash
# What a wheel's program and library need of a system: libraries of the C library and libgcc alone, and no symbol newer than
# glibc 2.34 (Ubuntu 22.04 has 2.35). Prints both. usage: symbols.sh WHEEL
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m zipfile -e "$1" "$dir"
files=("$dir"/*.data/scripts/mxfp4-pack "$dir"/mxfp4_pack/libmxfp4_pack.so)
libraries=$(readelf -d "${files[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
versions=$(readelf -W --dyn-syms "${files[@]}" | grep -oE '@(GLIBC|GCC|GLIBCXX|CXXABI|OPENSSL)_[0-9.]+' | tr -d @ | sort -uV)
echo "needs $libraries" $versions
bytes=$(stat -c %s "$1")
echo "$bytes bytes"
if other=$(grep -vxE 'lib(c|m|gcc_s|dl|rt|pthread)\.so\.[0-9]+|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)' <<<"$libraries"); then
  echo "needs other libraries: $other"
  exit 1
fi
newest=$(grep '^GLIBC_' <<<"$versions" | tail -1)
if [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" != GLIBC_2.34 ]; then
  echo "needs $newest:" $(readelf -W --dyn-syms "${files[@]}" | grep -F "@$newest" | awk '{print $8}')
  exit 1
fi
if grep -E '^(GLIBCXX|CXXABI|OPENSSL)' <<<"$versions" || [ "$bytes" -gt 30000000 ]; then exit 1; fi
