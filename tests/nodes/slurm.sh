#!/usr/bin/env bash
# Parts on a real Slurm of five nodes, all on this machine. usage: slurm.sh MXFP4-PACK SOURCE-DIR [LAYERS [server]]
# Needs root and slurm-wlm, munge and faketime. Starts munged, slurmctld and slurmds of its own, and ends them.
# The checkpoint is gpt-oss-20b's structure, LAYERS (default 8) of its layers, 0.5 GB each. Work is done in SCRATCH
# (/var/tmp): it needs five times the checkpoint. server: only parts from a server.
set -u
[ $# -ge 2 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR [LAYERS [server]]"; exit 2; }
program=$(realpath "$1") root=$(realpath "$2") layers=${3:-8}
for tool in slurmctld slurmd munged faketime; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo 'skipped: needs root'; exit 77; }
PATH=$PATH:/usr/sbin
dir=$(mktemp -d -p "${SCRATCH:-/var/tmp}")
chmod 755 "$dir"
daemons=()
cleanup() {
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2>/dev/null
  wait 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT
die() {
  echo "FAILED: $*"
  tail -n 5 "$dir"/*.log "$dir"/work/*.out 2>/dev/null
  exit 1
}
run_daemon() { "$@" >"$dir/$(basename "$1")-${#daemons[@]}.log" 2>&1 & daemons+=($!); }
until_true() { for _ in $(seq 1500); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; die "waited in vain: $*"; }

mkdir -p "$dir/work" "$dir/state" "$dir/munge" "$dir/slurmd"
head -c 1024 /dev/urandom >"$dir/munge/key" && chmod 400 "$dir/munge/key"
chmod 711 "$dir/munge"
run_daemon munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
  --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
host=$(hostname -s)
cat >"$dir/slurm.conf" <<CONF
ClusterName=parts
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/slurmd/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1
SchedulerTimeSlice=5
KillWait=1
$(for n in 0 1 2 3 4; do echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((16820 + n)) CPUs=$(nproc)"; done)
PartitionName=all Nodes=n[0-4] Default=YES State=UP OverSubscribe=YES
CONF
export SLURM_CONF=$dir/slurm.conf
until_true test -S "$dir/munge/socket"
run_daemon slurmctld -D
for n in 0 1 2 3 4; do
  mkdir -p "$dir/slurmd/n$n"
  run_daemon slurmd -D -N n$n
done
all_idle() { [ "$(sinfo -h -t idle -o %D)" = 5 ]; }
until_true all_idle

cd "$dir/work" || exit 1
"$program" synth gpt-oss-20b ckpt --layers "$layers" --vocab 8192 -q || exit 1
export PATH=$(dirname "$program"):$PATH MXFP4_PACK_DEVICE=cpu MXFP4_PACK_THREADS=1
options='--backend marlin --engine vllm'
# shellcheck disable=SC2086
mxfp4-pack convert ckpt single $options -q || exit 1

# the man page's batch script and commands, word for word
page=$root/man/mxfp4-pack.1
sed -n '/^#!\/bin\/sh$/,/^\.Ed$/p' "$page" | sed '/^\.Ed$/d' >convert.sbatch
submit() { eval "$(sed -n '/^sbatch --wait convert/p' "$page")"; }
submit_missing() { eval "$(sed -n "/^missing=/p" "$page")"; }
submit_verify() { eval "$(sed -n "/^sbatch --wait --array/p" "$page")"; }
all_ended() { [ -z "$(squeue -h)" ]; }
started() { compgen -G .out.mxfp4-pack/parts; }
same() { diff -r single out || die "$1: other bytes than a single run"; rm -rf out; echo "$1: the bytes of a single run"; }

# each node fetches only what it packs
from_server() {
  mkdir -p www/own && cp -r ckpt www/own/model
  python3 -B "$root/tests/remote/server.py" www --port-file port --log served.txt >/dev/null 2>&1 & daemons+=($!)
  until_true test -e port
  export HF_ENDPOINT=http://127.0.0.1:$(cat port) HF_HOME=$dir/work/home
  cat >remote.sbatch <<'SCRIPT'
#!/bin/sh
mxfp4-pack convert hf://own/model out --backend marlin --engine vllm --part auto
SCRIPT
  id=$(sbatch --parsable --array=0-4 remote.sbatch)
  until_true all_ended
  [ "$(cat slurm-"${id}"_*.out | grep -c 'commit ')" = 5 ] || die 'not five parts from the server'
  sent=$(awk '/safetensors bytes/ {bytes += $5} END {printf "%.0f", bytes}' served.txt)
  of_files() { python3 -c 'import sys; print(sum(eval(sys.argv[1]) for f in sys.argv[2:]))' "$@" ckpt/*.safetensors; }
  bytes=$(of_files 'open(f, "rb").seek(0, 2)') headers=$(of_files '8 + int.from_bytes(open(f, "rb").read(8), "little")')
  [ "$sent" = $((bytes + 4 * headers)) ] || die "$sent bytes were sent, $bytes and 4 times $headers of headers expected"
  mxfp4-pack merge out -q || die 'merge of parts from a server'
  rm out/mxfp4-pack.json single/mxfp4-pack.json  # the names of the sources differ
  same "an array of 5 from a server, which sent $sent bytes for a checkpoint of $bytes"
}
if [ "${4:-}" = server ]; then from_server; exit; fi

submit >/dev/null
submit_missing >/dev/null 2>&1 || die 'merge after all parts'
submit_verify >verify.txt || die 'verify by parts'
[ "$(cat "slurm-$(grep -o '[0-9]*$' verify.txt)"_*.out | grep -c 'part [0-4] of 5: right')" = 5 ] || die 'not five verdicts'
echo 'verify by an array of 5: right'
same 'an array of 5, then a merge'

id=$(sbatch --parsable convert.sbatch)
until_true started
sleep 0.3
scancel "${id}_2"
scancel --signal=KILL "${id}_3"
scontrol requeue "${id}_4" || die 'cannot requeue'
until_true all_ended
missing=$(mxfp4-pack merge out/ 2>merge.err)
code=$?
[ $code = 1 ] || die "merge without parts 2 and 3 ended with $code: $(cat merge.err)"
echo "cancelled, killed and requeued tasks: missing $missing"
submit_missing >/dev/null
until_true all_ended
mxfp4-pack merge out/ -q || die 'merge'
same 'the missing parts again'

# another clock alone: the times that the file system keeps are everybody's
sed 's/^mxfp4-pack/NO_FAKE_STAT=1 faketime -f +1h mxfp4-pack/' convert.sbatch >late.sbatch
sbatch --array=0-3 convert.sbatch >/dev/null
sbatch --array=3-4 late.sbatch >/dev/null
sbatch --array=0 late.sbatch >/dev/null
until_true all_ended
mxfp4-pack merge out/ -q || die 'merge'
same 'two on one part, clocks an hour off'

cat >tasks.sbatch <<'SCRIPT'
#!/bin/sh
#SBATCH --nodes=5 --ntasks=5
srun mxfp4-pack convert ckpt out --backend marlin --engine vllm --part auto --merge
mxfp4-pack merge out
SCRIPT
sbatch tasks.sbatch >/dev/null
until_true all_ended
same "srun's tasks"
from_server
