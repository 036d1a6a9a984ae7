#!/usr/bin/env bash
# The long form: 1000 kills on a tiny checkpoint, 300 of parts and merges, and 50 on one of 2 GB. usage: long.sh MXFP4-PACK SOURCE-DIR WORK-DIR
set -eu
program=$1 root=$2 work=$3
here=$(dirname "$0")
"$here/run.sh" "$program" "$root/testdata/tiny/gpt-oss" 1000 "$work"
"$here/parts.sh" "$program" "$root/testdata/tiny/deepseek-v4" 300 "$work"
big=$(mktemp -d -p "$work")
trap 'rm -rf "$big"' EXIT
"$program" synth gpt-oss-20b "$big/checkpoint" --layers 3 -q
"$here/run.sh" "$program" "$big/checkpoint" 50 "$work"
