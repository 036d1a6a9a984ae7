#!/usr/bin/env bash
# Help and version. usage: help.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'help begins with an example' 0 '^mxfp4-pack convert ' '' "$program" --help
expect 'version' 0 '^mxfp4-pack [0-9]+\.[0-9]+' '' "$program" --version
expect 'version says which drivers are in' 0 '^CPU drivers .*tables; here [a-z0-9]+$' '' "$program" --version
expect 'version says what there is of CUDA' 0 'CUDA' '' "$program" --version
finish
