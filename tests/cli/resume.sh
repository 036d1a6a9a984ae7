#!/usr/bin/env bash
# What interrupted runs leave, and two runs at once. usage: resume.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

# a checkpoint of many jobs, so that one is there to be interrupted
many=$dir/many journal=$dir/.k.mxfp4-pack.journal partial=$dir/.k.mxfp4-pack.partial
synth gpt-oss-20b "$many" --tiny --layers 24
first=(--backend marlin --engine vllm --threads 1)
second=(--add --backend marlin --engine sglang --threads 1)
on() { "$program" convert "$many" "$1" "${first[@]}" "${@:2}"; }
on_top() { "$program" convert "$many" "$dir/k" "${second[@]}" "$@"; }

has_a_job() { { read -r && read -r; } <"$journal"; }

# leave UNLESS-THIS-FILE OPTIONS...: ends a conversion to $dir/k by SIGKILL when a job is done; fails where it was too late
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

prepare leave_new
expect 'a part with other options is refused beside it' 2 '' 'a partial output of a run with other options is there; finish it' \
  on "$dir/k" --sha256 --part 0/2
expect 'a partial output is not overlooked' 2 '' 'a partial output is there; go on with convert --resume' on "$dir/k"
expect 'nor used with other options' 2 '' 'begun with other options' on "$dir/k" --resume --allow-nan-scales
expect 'of which SHA256SUMS is one' 2 '' 'begun with other options' on "$dir/k" --resume --sha256
expect 'and --link is another' 2 '' 'begun with other options' on "$dir/k" --resume --link none
echo mine >"$many/NOTES.md"
expect 'nor where a companion came' 2 '' 'begun from another source, or the source has changed' on "$dir/k" --resume
rm "$many/NOTES.md"
cp -r "$many" "$dir/copy"
expect 'nor from another source' 2 '' 'begun from another source' \
  "$program" convert "$dir/copy" "$dir/k" --backend marlin --engine vllm --resume
expect 'resume and restart exclude each other' 2 '' 'excludes' on "$dir/k" --resume --restart
convert "$tiny" "$dir/q" --backend marlin --engine sglang
not_mine='a partial output is there; choose another place, or remove what is there with .mxfp4-pack clean .* --remove.$'
expect 'unpack leaves it alone' 2 '' "$not_mine" "$program" unpack "$dir/q" "$dir/k"
expect 'and so does synth' 2 '' "$not_mine" "$program" synth gpt-oss-20b "$dir/k" --tiny
expect 'resume keeps what is done' 0 '' '[0-9]+ of [0-9]+ steps are done already' on "$dir/k" --resume
expect 'what was resumed is right' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'nothing is left behind' 1 '' '' test -e "$journal" -o -e "$partial"

rm -r "$dir/k"
prepare leave_new
shard=$(ls "$many"/*.safetensors | head -n 1)
touch -r "$shard" "$dir/time"
put_last "$shard" '\001'
touch -r "$dir/time" "$shard"
expect 'a source that was changed, with its time restored' 2 '' 'the source has changed' on "$dir/k" --resume
expect 'restart begins anew' 0 '' 'check it with' on "$dir/k" --restart
rm -r "$dir/k"
expect 'resume without a partial output' 0 '' 'check it with' on "$dir/k" --resume

prepare leave_added
expect 'an addition that was cut short leaves OUT as it was' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'it is not overlooked' 2 '' 'a partial output is there' on_top
expect 'resume of an addition' 0 '' '[0-9]+ of [0-9]+ steps are done already' on_top --resume
expect 'it is right' 0 'marlin of sglang: right' '' "$program" verify "$dir/k" --source "$many"
expect 'and leaves nothing behind' 1 '' '' test -e "$journal" -o -e "$partial"

exec 9>"$dir/.locked.mxfp4-pack.journal"
flock 9
expect 'a place that another run writes' 2 '' 'another run of mxfp4-pack is writing it' on "$dir/locked"
exec 9>&-
expect 'a lock of the dead' 0 '' 'check it with' on "$dir/locked"
finish
