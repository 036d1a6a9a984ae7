#!/usr/bin/env bash
# The installed tree: its files, the library's symbols, and consumers built by gcc and clang against it alone.
# usage: run.sh BUILD-DIR SOURCE-DIR [PREFIX]; PREFIX: installed already
set -euo pipefail
build=$1 root=$2
dir=$(mktemp -d)
export XDG_CACHE_HOME=$dir/cache
trap 'rm -rf "$dir"' EXIT
prefix=${3:-$dir/prefix}
[ $# -gt 2 ] || cmake --install "$build" --prefix "$prefix" >/dev/null
cp -r "$root/tests/library" "$dir/consumers"

library=$(find "$prefix" -name 'libmxfp4_pack.so')
exported() { nm -D --defined-only "$library" | awk '$2 == "T" {sub("@@.*", "", $3); print $3}' | sort; }
declared() { grep -oE 'mxfp4_pack_[a-z_]+\(' "$prefix/include/mxfp4_pack.h" | tr -d '(' | sort -u; }
diff <(declared) <(exported) || { echo "the library exports (>) what its header does not declare (<)"; exit 1; }
if nm -D --defined-only "$library" | grep -vE ' T mxfp4_pack_|A MXFP4_PACK_1'; then
  echo 'the library exports other symbols than its interface'
  exit 1
fi

ran=0
for compiler in gcc:g++ clang:clang++ clang-14:clang++-14; do
  command -v "${compiler#*:}" >/dev/null || continue
  where=$dir/${compiler%:*}
  PKG_CONFIG_PATH=$(dirname "$library")/pkgconfig CC=${compiler%:*} CXX=${compiler#*:} \
    cmake -S "$dir/consumers" -B "$where" -DCMAKE_PREFIX_PATH="$prefix" >"$where.log" &&
    cmake --build "$where" >>"$where.log" || { cat "$where.log"; exit 1; }
  export LD_LIBRARY_PATH=$(dirname "$library")
  "$where/matrix" cpu
  "$where/checkpoint" "$root/testdata/tiny/gpt-oss" "$where.out" |
    python3 -c 'import json, sys; both = json.load(sys.stdin); assert both["plan"]["packed_bytes"] == both["result"]["packed_bytes"] > 0'
  "$prefix/bin/mxfp4-pack" verify "$where.out" --source "$root/testdata/tiny/gpt-oss" -q
  "$where/checkpoint" "$root/testdata/tiny" "$where.none" 2>"$where.err" && { echo 'a folder without a checkpoint is converted'; exit 1; }
  grep -q 'testdata/tiny' "$where.err" && [ ! -e "$where.none" ]
  ran=$((ran + 1))
  echo "${compiler%:*}: right"
done
[ "$ran" -gt 0 ]
