#!/usr/bin/env bash
# Parts by Open MPI's launcher, and as pods of an indexed job see their numbers. usage: mpi.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/../cli/lib.sh"
command -v mpirun >/dev/null || skip 'mpirun is not installed'
export PATH=$(dirname "$program"):$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
cd "$dir" || exit 1
synth deepseek-v4-flash ckpt --tiny --layers 8
convert ckpt single --backend marlin --engine vllm
same() { diff -r single out; }

# the man page's line, word for word
line=$(grep '^mpirun ' "$root/man/mxfp4-pack.1")
expect 'mpirun' 0 '' 'part 3 of 4' sh -c "$line"
expect 'the bytes of a single run' 0 '' '' same
rm -rf out .out.*

export MXFP4_PACK_PARTS=8
for pod in 0 1 2 3 4 5 6 7; do
  JOB_COMPLETION_INDEX=$pod mxfp4-pack convert ckpt out --backend marlin --engine vllm --part auto -q &
done
wait
expect 'pods of an indexed job' 0 '' 'check it with' mxfp4-pack merge out
expect 'give the same bytes' 0 '' '' same
finish
