#!/usr/bin/env bash
# The examples of mxfp4-pack-deploy(7): the unit and the manifests are well-formed, and their conversions run.
# Not checked: a cluster, a start of the unit, a server. usage: deploy.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"
page=$root/man/mxfp4-pack-deploy.7
python3 -c 'import yaml' 2>/dev/null || skip 'no PyYAML (python3-yaml)'

# examples PAGE: writes the examples here, and prints their commands and faults
examples() { mkdir -p models && python3 "$root/tests/cli/deploy.py" "$1" . "$PWD/models"; }
# ran NAME: the command of an example, with this program
ran() { sed -n "s/^$1 //p" commands.txt | sed "s#^[a-z/]*mxfp4-pack#$program#" | bash; }

test_manifests() {
  expect 'the manifests have the fields of their kinds' 0 '^job mxfp4-pack convert ' '' examples "$page"
  for change in 's/claimName: models}/claimNames: models}/' 's/restartPolicy: OnFailure/restartPolicy: Always/' \
    's/name: shm, mountPath/name: memory, mountPath/' 's/matchLabels: {app: gpt-oss}/matchLabels: {app: other}/' \
    's/^  replicas: 2/  replicas: "2"/' 's/20b.packed, --served/20b, --served/'; do
    printed=''
    case $change in *packed*) printed='^job' ;; esac  # the command itself is fine
    sed "$change" "$page" >changed.7
    expect "a fault is found: $change" 1 "$printed" '^(a server starts|[A-Za-z].*( is | mounts | selects ))' examples changed.7
  done
}
test_unit() {
  command -v systemd-analyze >/dev/null || skip 'no systemd-analyze'
  prepare examples "$page" >commands.txt
  mkdir bin  # systemd looks for the programs of a unit
  ln -s "$program" bin/mxfp4-pack
  ln -s /bin/true bin/vllm
  sed "s#/opt/vllm/bin#$PWD/bin#" gpt-oss.service >bin/gpt-oss.service
  expect 'systemd accepts the unit' 0 '' '' systemd-analyze verify --man=no "$PWD/bin/gpt-oss.service"
  sed 's/^TimeoutStartSec=.*/TimeoutStartSec=soon/' bin/gpt-oss.service >bin/other.service
  verified() { systemd-analyze verify --man=no "$1" || true; }
  expect 'systemd reads its lines' 0 '' 'TimeoutStartSec.*soon' verified "$PWD/bin/other.service"
}
test_starts() {
  prepare examples "$page" >commands.txt
  wait_for_job=$(sed -n 's/^wait //p' commands.txt)
  out=models/gpt-oss-20b.packed
  expect 'without a checkpoint the server does not start' 2 '' 'gpt-oss-20b: no such directory' ran unit
  prepare cp -r "$tiny" models/gpt-oss-20b
  expect 'the pod waits for the Job' 124 '' '' timeout 1 bash -c "$wait_for_job"
  expect 'the first start converts' 0 '' 'gpt-oss-20b.packed: [0-9]+ packed tensors' ran unit
  expect 'the pod starts' 0 '' '' timeout 60 bash -c "$wait_for_job"
  expect 'later starts change nothing' 0 '' 'unchanged' ran unit
  expect 'and the Job too' 0 '' 'unchanged' ran job
  XDG_CACHE_HOME=$PWD/none expect 'without the cache of checksums, too' 0 '' 'unchanged' ran job
  expect 'the output is right' 0 '' '' "$program" verify $out --level files -q
  prepare cp $out/config.json before.json
  echo ' ' >>models/gpt-oss-20b/config.json
  expect 'another checkpoint is refused' 2 '' 'gpt-oss-20b.packed' ran unit
  expect 'and the old output stays' 0 '' '' cmp $out/config.json before.json
}
run_cases
