#!/usr/bin/env bash
# What convert, verify and the library's reader leave of OUT in the page cache. usage: page_cache.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# The C library's reader, which loaders use.
library=$(dirname "$program")/libmxfp4_pack.so
read_out() {
  drop "$dir/out"
  env MXFP4_PACK_PAGE_CACHE="$1" python3 "$root/tests/cli/read_all.py" "$library" "$2" "$dir"/out/packed/packed-*
}
make_of_cached() { rm -rf "$dir/out" && cat "$once"/ckpt/* >/dev/null && "$program" convert "$once/ckpt" "$dir/out" $as -q "$@"; }
# read_once NAME COMMAND..: a disk gives the checkpoint once; the best of three tries, since the kernel may take pages away
bytes_read() { python3 -c 'import resource, subprocess, sys
if subprocess.run(sys.argv[1:]).returncode: sys.exit(1)
print(512 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock)' "$@"; }
is_read_once() { echo "$1 of $2 bytes" && [ "$1" -ge $(($2 * 9 / 10)) ] && [ "$1" -le $(($2 * 11 / 10)) ]; }
read_once() {
  local name=$1 all=$(sizes "$once/ckpt" size) bytes try
  shift
  for try in 1 2 3; do
    rm -rf "$dir/out" && drop "$once/ckpt" && bytes=$(bytes_read "$@") && is_read_once "$bytes" "$all" >/dev/null && break
  done
  expect "$name" 0 bytes '' is_read_once "$bytes" "$all"
}
make_by() { local MXFP4_PACK_PAGE_CACHE=$1; export MXFP4_PACK_PAGE_CACHE; make; }
command -v fincore >/dev/null || skip "no fincore"
! is_sanitized || skip "sanitizers have no room in the memory limits"
[ "$(stat -f -c %T "$once")" != tmpfs ] || skip "tmpfs is the page cache"
"$program" synth gpt-oss-20b "$once/ckpt" --layers 2 --hidden 1024 --intermediate 1024 --experts 8 --vocab 1000 -q || exit 1
as="--backend marlin --engine vllm"

# bytes of a directory's large files, and how many of them are cached
sizes() { find -L "$1" -name '*.safetensors' -size +1024k -exec fincore -b -n -o "$2" {} + | awk '{sum += $1} END {print sum + 0}'; }
drop() { find -L "$1" -name '*.safetensors' -exec dd of={} oflag=nocache conv=notrunc,fdatasync count=0 status=none \;; }
# cached DIR most|less|none: the kernel may take pages away at any time
cached() {
  local all=$(sizes "$1" size) part=$(sizes "$1" res)
  echo "$part of $all are cached"
  case $2 in
    most) [ $((part * 10)) -gt $((all * 8)) ] ;;
    none) [ $((part * 20)) -lt "$all" ] ;;
    less) [ $((part * 10)) -lt $((all * 8)) ] ;;
  esac
}
# leaves NAME DIR most|less|none COMMAND..: the best of three tries
leaves() {
  local name=$1 place=$2 what=$3 try
  shift 3
  for try in 1 2 3; do
    "$@" >/dev/null 2>&1 || break
    cached "$place" "$what" >/dev/null && break
  done
  expect "$name" 0 'are cached' '' cached "$place" "$what"
}

# Small reads of a file bring some of it into the page cache, more with each run.
make() { rm -rf "$dir/out" && drop "$once/ckpt" && "$program" convert "$once/ckpt" "$dir/out" $as -q "$@"; }
check() { drop "$dir/out" && drop "$once/ckpt" && "$program" verify "$dir/out" --source "$once/ckpt" --level bytes -q "$@"; }
(cd "$once/ckpt" && sha256sum ./*) >"$once/sums"
make && drop "$dir/out" && drop "$once/ckpt"
cached "$dir/out" none >/dev/null || skip "pages cannot be dropped here"
[ "$(sizes "$dir/out" size)" -gt 30000000 ] || { echo "FAILED: OUT is too small to tell"; exit 1; }

test_convert() {
  leaves 'convert keeps OUT' "$dir/out" most make --page-cache yes
  leaves 'and not the checkpoint' "$once/ckpt" none make --page-cache yes
  leaves 'auto does where memory has room' "$dir/out" most make
  leaves 'convert keeps nothing' "$dir/out" none make --page-cache no
}
test_published_hashes() {
  leaves 'published hashes leave nothing of the checkpoint' "$once/ckpt" none make --published "$once/sums"
  leaves 'but what was there' "$once/ckpt" most make_of_cached --published "$once/sums"
}
test_read_once() {
  read_once 'convert reads the checkpoint once' "$program" convert "$once/ckpt" "$dir/out" $as -q
  for threads in 1 2 8; do
    read_once "with published hashes, too: $threads" \
      "$program" convert "$once/ckpt" "$dir/out" $as -q --published "$once/sums" --threads $threads
  done
  leaves 'as the environment says' "$dir/out" none make_by no
}
test_way_and_values() {
  expect 'the way is said' 0 '"writes":."way":"cached","why":"memory has room for OUT' '' \
    "$program" convert "$once/ckpt" "$dir/other" $as --page-cache yes --json -q
}
test_verify() {
  make
  leaves 'verify keeps OUT' "$dir/out" most check --page-cache yes
  leaves 'and not the checkpoint' "$once/ckpt" none check --page-cache yes
  leaves 'auto does where memory has room' "$dir/out" most check
  leaves 'verify keeps nothing' "$dir/out" none check --page-cache no
}
test_values() {
  make
  expect 'another value' 2 '' "error: --page-cache: 'maybe' is none of auto, no, yes" "$program" verify "$dir/out" --page-cache maybe
  expect 'another value of the variable' 2 '' "error: MXFP4_PACK_PAGE_CACHE: '1' is none of" \
    env MXFP4_PACK_PAGE_CACHE=1 "$program" verify "$dir/out"
}
test_reader() {
  make
  if python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$library" 2>/dev/null; then
    leaves 'a reader keeps what it reads' "$dir/out/packed" most read_out auto 0
    leaves 'and where memory has room for what is expected' "$dir/out/packed" most read_out auto 100000000
    leaves 'not where it has none' "$dir/out/packed" none read_out auto 1000000000000000
    leaves 'yes keeps it even then' "$dir/out/packed" most read_out yes 1000000000000000
    leaves 'no keeps nothing' "$dir/out/packed" none read_out no 0
    expect 'bytes are counted' 0 '^[1-9][0-9]{7,} [0-9]+ [1-9][0-9]{6,}$' '' read_out yes 0
    expect 'another value' 1 '' "^error: MXFP4_PACK_PAGE_CACHE: '1' is not auto, yes or no$" read_out 1 0
  fi
}
# A cgroup without free memory, if a cgroup can be made.
test_cgroup() {
  make
  for group in /sys/fs/cgroup/memory/mxfp4-pack-$$ /sys/fs/cgroup/mxfp4-pack-$$; do
    mkdir "$group" 2>/dev/null && [ -e "$group/memory.stat" ] && break
    rmdir "$group" 2>/dev/null
  done
  limit() { echo "$1" >"$group/memory.limit_in_bytes" || echo "$1" >"$group/memory.max"; }
  if [ -d "$group" ] && limit 32M 2>/dev/null; then
    trap 'rmdir "$group"' EXIT
    within() { bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"; }
    make_within() { rm -rf "$dir/out" && within "$program" convert "$once/ckpt" "$dir/out" $as -q --threads 1; }
    check_within() { drop "$dir/out" && within "$program" verify "$dir/out" --level files -q --threads 1; }
    read_within() {
      drop "$dir/out"
      within python3 "$root/tests/cli/read_all.py" "$library" 1000000000 "$dir"/out/packed/packed-*
    }
    leaves 'convert keeps nothing where a cgroup has no room' "$dir/out" none make_within
    limit 1G
    leaves 'and does where it has' "$dir/out" most make_within
    limit 32M
    leaves 'verify neither' "$dir/out" less check_within
    leaves 'nor a reader' "$dir/out/packed" less read_within
  fi
}
run_cases
