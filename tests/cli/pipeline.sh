#!/usr/bin/env bash
# The README's pipeline, word for word, twice. usage: pipeline.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

mkdir "$dir/pipeline"
sed -n '/^## In a pipeline/,/^## Before/p' "$root/README.md" | sed -n 's/^    //p' >"$dir/pipeline/ci.sh"
pipeline() { (cd "$dir/pipeline" && PATH=$(dirname "$program"):$PATH sh ci.sh && cat result.json); }
expect 'the pipeline' 0 '"converted":2,"unchanged":0,"failed":0' '' pipeline
expect 'the pipeline, again' 0 '"converted":0,"unchanged":2,"failed":0' '' pipeline
finish
