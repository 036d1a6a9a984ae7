#!/usr/bin/env bash
# What others put where mxfp4-pack writes stays. usage: strangers.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

partial=$dir/.o.mxfp4-pack.partial journal=$dir/.o.mxfp4-pack.journal
on() { "$program" convert "$dir/in" "$dir/o" --backend marlin --engine vllm -q "$@"; }
cp -r "$tiny" "$dir/in"
mkdir "$partial"
echo text >"$partial/thesis"
for how in '' --restart --resume --force; do
  expect "a folder of the partial output's name ($how)" 2 '' 'move it away first' on $how
  expect "it stays ($how)" 0 text '' cat "$partial/thesis"
done
rm -r "$partial"
echo notes >"$journal"
expect 'a file of the journal'"'"'s name' 2 '' 'is no journal of mxfp4-pack; move it away' on
expect 'clean keeps it' 0 '^kept: .*the journal is not mxfp4-pack' '' "$program" clean "$dir" --remove
expect 'it stays' 0 notes '' cat "$journal"
rm "$journal"

mkdir "$dir/in/packed"
echo text >"$dir/in/packed/source-headers"
echo text >"$dir/in/.mxfp4-pack-run"
expect 'companions under names of the output are left out' 0 '' '' on
expect 'which is right' 0 '' '' "$program" verify "$dir/o" --source "$dir/in" -q
rm -r "$dir/in/packed" "$dir/o"
echo text >"$dir/in/packed"
expect 'a companion named as the folder of the output' 0 '' '' on

synth gpt-oss-20b "$dir/many" --tiny --layers 24
# a run that is stopped after its first job, loses its partial output, and goes on
robbed() {
  for try in $(seq 100); do
    rm -rf "$dir/k"
    "$program" convert "$dir/many" "$dir/k" --backend marlin --engine vllm --threads 1 -q 2>"$dir/robbed" &
    local pid=$! code
    until { read -r && read -r; } <"$dir/.k.mxfp4-pack.journal" || ! kill -0 $pid; do :; done
    kill -STOP $pid
    rm -rf "$dir/.k.mxfp4-pack.partial/packed"
    kill -CONT $pid
    wait $pid
    code=$?
    [ $code -eq 0 ] && [ -e "$dir/k/packed" ] && continue  # it had ended before
    cat "$dir/robbed"
    return $code
  done
} 2>/dev/null
expect 'a partial output that somebody removes' 2 'removed meanwhile' '' robbed
expect 'gives no output' 1 '' '' test -e "$dir/k"
finish
