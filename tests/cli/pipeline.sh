#!/usr/bin/env bash
# The README's pipeline, word for word, twice, and what its first command prints. usage: pipeline.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

# code HEADING: the lines of code in the README's section of that name
code() { sed -n "/^## $1\$/,/^## /s/^    //p" "$root/README.md"; }

mkdir -p "$dir/pipeline" "$dir/clone/build"
code 'In a pipeline' >"$dir/pipeline/ci.sh"
pipeline() { (cd "$dir/pipeline" && PATH=$(dirname "$program"):$PATH sh ci.sh && cat result.json); }
expect 'the pipeline' 0 '"converted":2,"unchanged":0,"failed":0' '' pipeline
expect 'the pipeline, again' 0 '"converted":0,"unchanged":2,"failed":0' '' pipeline

# The first command without packages and build: it runs in a folder with the clone's test data and this program.
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
finish
