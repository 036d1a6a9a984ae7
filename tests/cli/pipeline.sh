#!/usr/bin/env bash
# The README's pipeline, word for word, with stand-ins for hub and engine, and what its first command prints.
# usage: pipeline.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# code HEADING: the lines of code in the README's section of that name
code() { sed -n "/^## $1\$/,/^## /s/^    //p" "$root/README.md"; }

# Stand-ins for the engine's environment: python3 knows only the plugin's check, hf prints the folder of a revision, and
# vllm serves an output that the check passed.
test_pipeline() {
  packages=$dir/env/lib/python3/site-packages
  mkdir -p "$dir/pipeline" "$dir/hub" "$dir/env/bin" "$packages/vllm-0.33.0.dist-info"
  stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$dir/env/bin/$1" && chmod +x "$dir/env/bin/$1"; }
  prepare stand_in hf '[ "$1 $3 $5" = "download --revision --quiet" ] && echo '"$dir"'/hub/"$4"'
  prepare stand_in python3 '[ "$1 $2 $4" = "-m mxfp4_pack.check --engine" ] && [ -f "$3/mxfp4-pack.json" ] && touch checked'
  prepare stand_in vllm '[ "$1" = serve ] && [ -f checked ] && rm checked && echo "serving $2"'
  synth gpt-oss-20b "$dir/hub/1" --tiny --seed 1
  synth gpt-oss-20b "$dir/hub/2" --tiny --seed 2
  programs=$(dirname "$program")
  code 'In a pipeline' >"$dir/pipeline/start.sh"
  pipeline() { (cd "$dir/pipeline" && PATH=$programs:$dir/env/bin:$PATH VIRTUAL_ENV=$dir/env sh start.sh "$1"); }
  identity() { (cd "$dir/pipeline" && stat -c %i gpt-oss-20b-1/mxfp4-pack.json); }
  expect 'the pipeline' 0 '^serving gpt-oss-20b-1$' 'packed tensors for vllm triton-hopper' pipeline 1
  first=$(identity)
  expect 'the pipeline, again' 0 '^serving gpt-oss-20b-1$' 'gpt-oss-20b-1: unchanged' pipeline 1
  prepare mv "$packages/vllm-0.33.0.dist-info" "$packages/vllm-0.32.0.dist-info"
  expect 'with another release of this layout' 0 '^serving gpt-oss-20b-1$' 'gpt-oss-20b-1: unchanged' pipeline 1
  expect 'the next revision' 0 '^serving gpt-oss-20b-2$' 'packed tensors for vllm triton-hopper' pipeline 2
  expect 'which leaves the first' 0 "^$first\$" '' identity
  expect 'a revision that the hub does not have' 2 '' 'gpt-oss-20b-3|hub/3' pipeline 3
  prepare rm -r "$packages/vllm-0.32.0.dist-info"
  expect 'without the engine' 2 '' 'python3 has no vllm' pipeline 1
}
# The first command without packages and build: it runs in a folder with the clone's test data and this program.
test_first_command() {
  mkdir -p clone/build
  ln -s "$root/testdata" "$dir/clone/testdata"
  ln -s "$program" "$dir/clone/build/mxfp4-pack"
  without_times() { sed -E 's/[0-9.]+ s\b/N s/; s/ \([0-9.]+ [kMG]?B\/s\)//'; }
  first_command() { (cd "$dir/clone" && bash -c "$(code 'Quick start' | grep -o 'build/mxfp4-pack convert .*')"); }
  first_command 2>&1 | without_times >"$dir/printed.txt"
  shown=$(code 'Quick start' | grep '^[^ ]*: ')
  prepare [ "$(wc -l <<<"$shown")" -ge 2 ]
  while read -r line; do
    expect "the first command prints: ${line:0:40}" 0 . '' grep -xF -- "$(without_times <<<"$line")" "$dir/printed.txt"
  done <<<"$shown"
}
run_cases
