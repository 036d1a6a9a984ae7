#!/usr/bin/env bash
# Tests the program on one file system.
# usage: story.sh MXFP4-PACK SOURCE-DIR NAME FOLDER KILLS
# FOLDER is empty, at the root of a mount of the file system with about 200 MB of free space. TMPDIR is a tmpfs, for the
# bytes to compare with. The last line is the file system's row of the table in README.md here.
set -u
. "$(dirname "$0")/../cli/lib.sh"
name=$3 place=$(realpath "$4") kills=$5
[ "$(stat -f -c %T "$dir")" = tmpfs ] || { echo "FAILED: TMPDIR is no tmpfs" && exit 1; }
target=$place/out in=$place/in journal=$place/.out.mxfp4-pack/journal
hopper=(--backend triton-hopper --engine vllm)

# what leads to the state NAME, from the state before[NAME]; both: `two` is made after `other`
declare -A before=([one]=nothing [two]=one [other]=one [unpacked]=nothing) micros want
# command NAME IN OUT [OPTION...]: sets the array `args`
command() {
  case $1 in
    one) args=(convert "$2" "$3" --backend marlin --engine vllm) ;;
    two | both) args=(convert "$2" "$3" --add "${hopper[@]}") ;;
    other) args=(convert "$2" "$3" --force --backend marlin --engine sglang) ;;
    unpacked) args=(unpack "$place/whole" "$3") ;;
  esac
  args+=("${@:4}")
}
make() { command "$1" "$in" "$target" "${@:2}" && "$program" "${args[@]}"; }
make_expected_state() { command "$1" "$dir/in" "$dir/$1" -q && "$program" "${args[@]}"; }

# The run file stays in OUT until its run has ended; is_tidy sees if it is left.
sum() {
  (cd "$1" 2>/dev/null && find . -type f ! -name .mxfp4-pack-run -print0 | sort -z | xargs -0 sha256sum) | sha256sum
}
state() {
  local now state
  [ -e "$target" ] || { echo nothing && return; }
  now=$(sum "$target")
  for state in "${!want[@]}"; do [ "$now" != "${want[$state]}" ] || { echo "$state" && return; }; done
  echo 'something else'
}
is() { [ "$(state)" = "$1" ] || { echo "OUT is $(state), not $1" && return 1; }; }
# nothing of a run stays beside OUT or in it
is_tidy() { [ -z "$(find "$place" -maxdepth 2 -name '.*mxfp4-pack*')" ] || { find "$place" -maxdepth 2 && return 1; }; }
begin() {
  rm -rf "$target" && is_tidy || return 1
  [ "$1" = nothing ] || cp -r "$dir/$1" "$target"
}
supports() { "$(dirname "$0")/supports.py" "$1" "$place"; }

make_expected() {
  local dims=(--layers 4 --experts 16 --hidden 256 --intermediate 256 --vocab 3000)
  "$program" synth gpt-oss-20b "$dir/in" --tiny "${dims[@]}" -q &&
    python3 -B "$(dirname "$0")/add_shard.py" "$dir/in" && make_expected_state one && cp -r "$dir/one" "$dir/two" &&
    make_expected_state two && cp -r "$dir/one" "$dir/other" && make_expected_state other &&
    cp -r "$dir/other" "$dir/both" && make_expected_state both &&
    cp -r "$dir/two" "$place/whole" && cp -r "$dir/in" "$place" && make_expected_state unpacked || return 1
  local state
  for state in one two other both unpacked; do want[$state]=$(sum "$dir/$state"); done
}

undisturbed() {
  local state begun
  for state in one two other unpacked; do
    prepare begin "${before[$state]}"
    begun=$(date +%s%N)
    expect "$state" 0 '' '.' make "$state"
    micros[$state]=$((($(date +%s%N) - begun) / 1000))
    expect "$state: the bytes of tmpfs" 0 '' '' is "$state"
    expect "$state: nothing beside it" 0 '' '' is_tidy
    [ "$state" != unpacked ] || continue
    expect "$state: verify" 0 'right' '' "$program" verify "$target" --source "$in" --level bytes
  done
  prepare begin one
  expect 'OUT is there' 0 '' 'unchanged' make one
  expect 'it stays' 0 '' '' is one
}

# killed STATE [OPTION]: SIGKILL at a random moment of the time that it takes
killed() {
  local wait=$(((RANDOM * 32768 + RANDOM) % (micros[$1] * 11 / 10)))
  command "$1" "$in" "$target" "${@:2}"
  "$program" "${args[@]}" >/dev/null 2>&1 &
  sleep "$((wait / 1000000)).$(printf %06d $((wait % 1000000)))"
  end_it $!
}
end_it() {
  kill -KILL "$1"
  wait "$1"
} 2>/dev/null

is_old_or_new() {
  local now
  now=$(state)
  [ "$now" = "$1" ] || [ "$now" = "${before[$1]}" ] || { [ "$now" = nothing ] && [ "$exchange" = 'moved aside' ]; } ||
    { echo "OUT is $now" && return 1; }
}
# Where DEST was made before the kill, unpack says that it exists; only a journal is left.
is_done() { [ "$(state)" = "$1" ] && [ ! -e "$journal" ]; }
finish_run() {
  ! is_done "$1" || return 0
  if [ "$1 $(state)" = 'unpacked unpacked' ]; then
    "$program" clean "$place" --remove
  else
    make "$1"
  fi
}

# Without locks, `clean` keeps what may belong to a run: all that changed in the last ten minutes.
grow_old() { [ "$locks" = yes ] || find "$place" -path '*/.*.mxfp4-pack*' -exec touch -h -d '1 hour ago' {} +; }

survive_kills() {
  local i state
  for ((i = 0; i < kills; ++i)); do
    state=$(echo one two other unpacked | cut -d' ' -f$((i % 4 + 1)))
    prepare begin "${before[$state]}"
    killed "$state"
    expect "kill $i of $state" 0 '' '' is_old_or_new "$state"
    if [ $((RANDOM % 2)) = 0 ] && ! is_done "$state"; then
      killed "$state"
      expect "kill $i of $state, resumed" 0 '' '' is_old_or_new "$state"
    fi
    if [ $((i / 4 % 3)) = 2 ] && ! { [ "$(state)" = nothing ] && [ "${before[$state]}" = one ]; }; then
      prepare grow_old
      expect "kill $i of $state, clean" 0 '' '' quiet "$program" clean "$place" --remove
      expect "kill $i of $state, cleaned" 0 '' '' is_tidy
      expect "kill $i of $state, cleaned: OUT" 0 '' '' is_old_or_new "$state"
    fi
    expect "kill $i of $state, again" 0 '' '' quiet finish_run "$state"
    expect "kill $i of $state: bytes" 0 '' '' is "$state"
    expect "kill $i of $state: nothing beside it" 0 '' '' is_tidy
  done
}

# stop_after LINES: stops a run as soon as its journal has LINES lines; its process is $run
stop_after() {
  local try
  for try in $(seq 100); do
    begin nothing || return 1
    command one "$in" "$target" --threads 1
    "$program" "${args[@]}" >/dev/null 2>"$dir/first.txt" &
    run=$!
    until has_lines "$1"; do kill -0 $run || break; done
    kill -STOP $run && [ ! -e "$target" ] && has_lines "$1" && return
    kill -CONT $run
    wait $run
  done 2>/dev/null
  echo 'no run could be stopped' && return 1
}
has_lines() {
  local i
  for ((i = 0; i < $1; ++i)); do read -r || return 1; done <"$journal"
} 2>/dev/null

two_at_once() {
  local codes
  prepare stop_after 2
  if [ "$locks" = yes ]; then
    expect 'a second run' 2 '' 'another run of mxfp4-pack is writing it' make one
    expect 'clean' 0 '^kept: .*a run is writing it' '' "$program" clean "$place" --remove
    expect 'the first one' 0 '' 'check it with' go_on $run "$dir/first.txt"
  else
    expect 'clean' 0 '^kept: ' '' "$program" clean "$place" --remove
    expect 'a warning' 0 '' 'this file system has no locks; let no other run write here' go_on $run "$dir/first.txt"
  fi
  expect 'its bytes' 0 '' '' is one
  [ "$locks" = yes ] || return
  prepare stop_after 2
  end_it $run
  expect 'a lock goes with its run' 0 '' 'check it with' make one
  prepare begin one
  make two -q 2>/dev/null &
  make other -q 2>/dev/null
  codes=$?
  wait $!
  codes="$codes $?"
  case "$codes $(state)" in
    '0 0 other' | '0 0 both' | '0 2 other' | '2 0 two') passed=$((passed + 1)) ;;
    *) echo "FAILED: --force and --add at once: exit $codes, OUT is $(state)" && failed=$((failed + 1)) ;;
  esac
  expect 'nothing beside it' 0 '' '' is_tidy
}

# fill BYTES: fills the file system except for BYTES; removed files become free space late
fill() {
  local try bytes
  for try in 1 2 3 4; do
    sync -f "$place"
    bytes=$(($(stat -f -c '%a * %S' "$place") - $1))
    [ $bytes -gt 0 ] || return
    fallocate -o "$(stat -c %s "$place/fill" || echo 0)" -l $bytes "$place/fill" ||
      head -c $bytes /dev/zero >>"$place/fill"
  done
} 2>/dev/null
make_room() { rm "$place/fill" && sync -f "$place"; }

run_out_of_space() {
  local lines code
  prepare begin nothing
  fill $((4 << 20))
  expect 'too little space' 2 '' 'needed, .* free' make one
  expect 'too little space: nothing is written' 0 '' '' is_tidy
  make_room
  for lines in 1 2; do
    prepare stop_after $lines
    fill 0
    go_on $run "$dir/first.txt" 2>"$dir/full.txt"
    code=$?
    make_room
    expect "full after line $lines" 0 '' '' test $code = 0 -o $code = 2
    if [ $code = 2 ]; then
      expect 'it names the cause' 0 'No space left on device|needed, .* free' '' cat "$dir/full.txt"
      expect 'OUT' 0 '' '' is nothing
      expect 'resumed' 0 '' 'check it with' make one
    fi
    expect 'its bytes' 0 '' '' is one
  done
}

read_only() {
  prepare begin two
  prepare mount -i -o remount,ro none "$place"
  expect 'read-only: convert' 2 '' 'Read-only file system' "$program" convert "$in" "$place/new" "${hopper[@]}"
  expect 'read-only: --force' 2 '' 'Read-only file system' make other
  expect 'read-only: unpack' 2 '' 'Read-only file system' "$program" unpack "$target" "$place/new"
  expect 'read-only: clean' 0 '' 'nothing is left' "$program" clean "$place"
  expect 'read-only: verify' 0 'right' '' "$program" verify "$target" --source "$in" --level bytes
  expect 'read-only: unpack elsewhere' 0 '' '' "$program" unpack "$target" "$dir/from" -q
  expect 'read-only: its bytes' 0 '' '' diff -r "$dir/from" "$dir/unpacked"
  expect 'read-only: converted again' 0 '' '' "$program" convert "$target" "$dir/again" "${hopper[@]}" -q
  expect 'read-only: diff' 0 '' '' quiet "$program" diff "$target" "$dir/two"
  prepare mount -i -o remount,rw none "$place"
}

links=
try_links() {
  local how
  for how in hard reflink; do
    [ "$(supports $how)" = yes ] && links="$links${links:+, }$how"
  done
  prepare begin nothing
  expect '--link' 0 '' 'check it with' make one --link
  expect '--link: verify' 0 'right' '' "$program" verify "$target" --source "$in" --level bytes
}

prepare make_expected
exchange=$(supports exchange) locks=$(supports locks)
[ "$exchange" = yes ] && exchange='at once' || exchange='moved aside'
undisturbed
survive_kills
two_at_once
run_out_of_space
try_links
read_only
rm -rf "$place"/*
[ $failed -gt 0 ] || echo "| $name | $exchange | $locks | ${links:-none} |"
finish
