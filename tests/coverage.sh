#!/usr/bin/env bash
# Lines of src/ that the tests run, per file and in all; needs lcov and a build with -DMXFP4_COVERAGE=ON.
# usage: coverage.sh SOURCE-DIR BUILD-DIR
set -eu
source=$1 build=$2
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" --output-on-failure
lcov --quiet --capture --directory "$build" --output-file "$build/all.info"
lcov --quiet --extract "$build/all.info" "$source/src/*" --output-file "$build/src.info"
lcov --list "$build/src.info"
lcov --summary "$build/src.info"
