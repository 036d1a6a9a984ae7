#!/usr/bin/env bash
# What interrupted runs leave, and two runs at once. usage: resume.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

# a checkpoint of many jobs, so that one is there to be interrupted
many=$dir/many journal=$dir/.k.mxfp4-pack/journal partial=$dir/.k.mxfp4-pack/new
synth gpt-oss-20b "$many" --tiny --layers 24
first=(--backend marlin --engine vllm --threads 1)
second=(--add --backend marlin --engine sglang --threads 1)
on() { "$program" convert "$many" "$1" "${first[@]}" "${@:2}"; }
on_top() { "$program" convert "$many" "$dir/k" "${second[@]}" "$@"; }

has_a_job() { { read -r && read -r; } <"$journal"; }

# leave UNLESS-THIS-FILE OPTIONS...: ends a conversion to $dir/k by SIGKILL when a job is done; fails if the signal was
# too late
leave() {
  "$program" convert "$many" "$dir/k" "${@:2}" -q &
  local pid=$!
  until has_a_job || ! kill -0 $pid; do :; done
  kill -KILL $pid
  wait $pid
  has_a_job && [ ! -e "$1" ]
} 2>/dev/null
leave_new() {
  for try in $(seq 200); do
    leave "$dir/k" "${first[@]}" && return
    rm -rf "$dir/k" "$journal" "$partial"
  done
  return 1
}
leave_added() {
  for try in $(seq 200); do
    leave "$dir/k/packed/canary-1.safetensors" "${second[@]}" && return
    rm -rf "$dir/k" "$journal" "$partial"
    on "$dir/k" -q
  done
  return 1
}

discard='or discard it: mxfp4-pack clean .*/k --remove$'
others="k: an interrupted run with other options, or of another version, exists; run that command again, $discard"
prepare leave_new
expect 'a part with other options is refused beside it' 2 '' 'an interrupted run with other options is there; finish that one' \
  on "$dir/k" --sha256 --part 0/2
expect 'other options are refused' 2 '' "$others" on "$dir/k" --sha256
expect 'and --link is another' 2 '' "$others" on "$dir/k" --link
echo mine >"$many/NOTES.md"
changed="k: an interrupted run of another source, or of this one before it changed, exists; choose another place, $discard"
expect 'a companion that came' 2 '' "$changed" on "$dir/k"
rm "$many/NOTES.md"
cp -r "$many" "$dir/copy"
expect 'and another source' 2 '' "$changed" "$program" convert "$dir/copy" "$dir/k" --backend marlin --engine vllm
convert "$tiny" "$dir/q" --backend marlin --engine sglang
expect 'unpack leaves it alone' 2 '' "$discard" "$program" unpack "$dir/q" "$dir/k"
expect 'and so does synth' 2 '' "$discard" "$program" synth gpt-oss-20b "$dir/k" --tiny
expect 'the same command keeps what is done' 0 '' '[0-9]+ of [0-9]+ steps are done already' on "$dir/k"
expect 'the output is right' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'nothing is left behind' 1 '' '' test -e "$journal" -o -e "$partial"

rm -r "$dir/k"
prepare leave_new
expect 'with --force another conversion discards it' 0 '' 'check it with' on "$dir/k" --sha256 --force
expect 'and is right' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'with nothing left behind' 1 '' '' test -e "$journal" -o -e "$partial"

rm -r "$dir/k"
prepare leave_new
shard=$(ls "$many"/*.safetensors | head -n 1)
touch -r "$shard" "$dir/time"
put_last "$shard" '\001'
touch -r "$dir/time" "$shard"
expect 'a source that was changed, with its time put back' 2 '' "$changed" on "$dir/k"
expect 'the command that the message names' 0 '^removed: .*/k: a partial output' '' "$program" clean "$dir/k" --remove
expect 'makes room' 0 '' 'check it with' on "$dir/k"

prepare leave_added
expect 'an addition that was cut short leaves OUT as it was' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'the same addition continues' 0 '' '[0-9]+ of [0-9]+ steps are done already' on_top
expect 'it is right' 0 'marlin of sglang: right' '' "$program" verify "$dir/k" --source "$many"
expect 'and leaves nothing behind' 1 '' '' test -e "$journal" -o -e "$partial"

mkdir -m 700 "$dir/.locked.mxfp4-pack"
exec 9>"$dir/.locked.mxfp4-pack/journal"
flock 9
expect 'a place that another run writes' 2 '' 'another run of mxfp4-pack is writing it' on "$dir/locked"
exec 9>&-
expect 'a lock of the dead' 0 '' 'check it with' on "$dir/locked"
finish
