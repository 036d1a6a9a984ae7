#!/usr/bin/env bash
# Checkpoints on servers: hf://, https:// and s3://. usage: remote.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

export HOME=$once TMPDIR=$once/tmp
unset HF_HOME HF_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HF_ENDPOINT AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION
unset http_proxy https_proxy all_proxy SSL_CERT_FILE CURL_CA_BUNDLE
mkdir -p "$once/tmp" "$once/own"
hub=hf://own/model

synth gpt-oss-20b "$once/own/model" --tiny --layers 6
echo '{"a": 1}' >"$once/own/model/generation_config.json"
mkdir -p "$once/own/model/original" "$once/own/model/docs/more"
echo weights >"$once/own/model/original/model.bin"
echo text >"$once/own/model/docs/more/text.md"
bytes=$(cat "$once"/own/model/*.safetensors | wc -c)

servers=()
# serve LOG OPTIONS..: starts a server of this case's folder; sets $origin and $port
serve() {
  : >"$1"
  rm -f port
  python3 -B "$root/tests/remote/server.py" "$dir" --port-file port --log "$1" "${@:2}" 2>server.txt &
  servers+=($!)
  trap 'kill "${servers[@]}"' EXIT
  for try in $(seq 200); do [ -e port ] && break || sleep 0.1; done
  [ -e port ] || prepare cat server.txt no-server
  port=$(cat port) origin=http://127.0.0.1:$port
}
# served OPTIONS..: the model on a server; the log is $dir/log
served() {
  cp -rp "$once/own" .
  serve log --keys AK:SK "$@"
  export HF_ENDPOINT=$origin AWS_ENDPOINT_URL=$origin/s3 AWS_ACCESS_KEY_ID=AK AWS_SECRET_ACCESS_KEY=SK
}
# again OPTIONS..: another server of the same model
again() {
  kill "${servers[@]}"
  servers=()
  serve log "$@"
  export HF_ENDPOINT=$origin AWS_ENDPOINT_URL=$origin/s3
}
sent() { awk '{bytes += $5} END {print bytes + 0}' log; }
of_shards() { awk '/safetensors bytes/ {bytes += $5} END {print bytes + 0}' log; }
converted() { "$program" convert "$1" "$2" --backend marlin --engine vllm --no-loader "${@:3}"; }
# refused NAME STDERR-PATTERN COMMAND..: fails with exit code 2 and one line
refused() {
  expect "$1" 2 '' "$2" "${@:3}"
  also 'error: ' 1
}

test_bytes() {  # the same OUT, and each byte of the shards once
  served
  convert own/model local --backend marlin --engine vllm
  for source in "$hub" "$hub@main" "$origin/plain/own/model" s3://own/model s3://own/model/; do
    : >log
    rm -rf out
    expect "$source" 0 '' '' converted "$source" out --no-published -q
    # without a list, only usual names are known, and the manifest lists the others
    [[ $source == http* ]] && more=(-x docs -x mxfp4-pack.json) || more=()
    expect "$source: OUT" 0 '' '' diff -r "${more[@]}" out local
    expect "$source: bytes" 0 '' '' test "$(of_shards)" -eq "$bytes"
  done
  nothing "$TMPDIR"/*
}
test_folder() {
  served
  expect 'a folder without a list' 0 'gpt-oss' 'has no SHA256SUMS, so only companions with usual names are copied' \
    "$program" inspect "$origin/plain/own/model/"
  (cd own/model && find . -type f ! -name SHA256SUMS -exec sha256sum {} + >SHA256SUMS)
  expect 'a folder with SHA256SUMS' 0 '' 'as published: 6 files \(http.*/SHA256SUMS\)' converted "$origin/plain/own/model" out
  expect 'its companions' 0 '' '' cmp out/docs/more/text.md own/model/docs/more/text.md
}
test_headers() {
  served
  expect 'inspect' 0 '^hf://own/model: gpt-oss' 'commit [0-9a-f]{40}, 7 files' "$program" inspect "$hub"
  expect 'dry run' 0 'contents: not read' 'a dry run reads no tensors: only hashes of small files are compared' \
    converted "$hub" plan --dry-run
  expect 'headers alone are read' 0 '' '' test "$(sent)" -lt $((bytes / 2))
  expect 'inspect prints the same' 0 '' '' diff <("$program" inspect "$hub" --json 2>/dev/null | sed "s|$hub|X|g") \
    <("$program" inspect own/model --json | sed "s|own/model|X|g")
}
quietly() { "$@" 2>/dev/null; }
test_companions() {  # large ones are not read for headers
  served
  head -c 3000000 /dev/zero | tr '\0' 'x' >own/model/tokenizer.model
  for source in "$hub" "$origin/plain/own/model" s3://own/model; do
    : >log
    expect "inspect $source" 0 '^[a-z0-9]*://.*: gpt-oss' '' quietly "$program" inspect "$source"
    expect "its bytes" 0 '' '' test "$(sent)" -lt 1000000
    expect "dry run $source" 0 'contents: not read' '' quietly converted "$source" plan --dry-run
    expect "its bytes" 0 '' '' test "$(sent)" -lt 2000000
  done
  expect 'convert copies them' 0 '' '' converted "$hub" out -q
  expect 'the same bytes' 0 '' '' cmp out/tokenizer.model own/model/tokenizer.model
}
test_published() {
  served
  expect 'hashes are compared' 0 '' "as published: 6 files \(hf://own/model@[0-9a-f]{40}\)" converted "$hub" out
  also 'restored' 0
  expect 'the manifest names the commit' 0 '' '' \
    grep -q '"published_by": *"hf://own/model@[0-9a-f]\{40\}"' out/mxfp4-pack.json
  expect 'verify --published' 0 'as published in hf://own/model' ': commit ' "$program" verify out --published "$hub"
  expect 'verify --source' 0 'right at level kernels' ': commit ' "$program" verify out --source "$hub"
  : >log
  expect 'again' 0 '' 'out: unchanged' converted "$hub" out
  expect 'again, headers alone' 0 '' '' test "$(sent)" -lt $((bytes / 2))
  synth deepseek-v4-flash own/deepseek --tiny --layers 2
  refused 'a lossy backend' 'is lossy: it reads scales twice, so it needs a local copy of the checkpoint' \
    "$program" convert hf://own/deepseek lossy --backend humming-w4a8 --engine vllm --no-loader -q
}
test_restored() {  # a continued run has not seen all bytes
  served
  converted "$hub" whole -q
  requests=$(wc -l <log)
  again --fault 403 --at -$requests
  refused 'the last request fails' 'the server answers 403' converted "$hub" out -q
  again
  expect 'shards of which a part was there' 0 '' '2 shards: restored from out, and compared with published hashes' \
    converted "$hub" out
  also 'as published: 6 files' 1
  expect 'the same OUT' 0 '' '' diff -r out whole
  again --fault flip --at "$requests"
  refused 'a changed byte' 'SHA-256 is [0-9a-f]{64}, [0-9a-f]{64} as published \(hf://' converted "$hub" wrong -q
  nothing wrong .wrong.mxfp4-pack
}
test_wrong_part() {  # convert without --part does not trust what parts read from a server
  served
  converted "$hub" out --part 0/2 -q
  again --fault flip --at $(($(wc -l <log) * 3 / 4))  # a request for tensors: headers come first
  converted "$hub" wrong --part 0/2 -q
  again
  refused 'a wrong part' 'SHA-256 is [0-9a-f]{64}, [0-9a-f]{64} as published \(hf://' converted "$hub" wrong -q
  nothing wrong
  expect 'reads it again from the server' 0 '' 'as published: 6 files' converted "$hub" wrong
  expect 'a right part' 0 '' 'shards: restored from out, and compared' converted "$hub" out
  also 'as published: 6 files' 1
}
test_parts() {
  served
  for part in 0 1 2; do expect "part $part" 0 '' '' converted "$hub" out --part $part/3 -q; done
  headers=$(python3 -c 'import sys; print(sum(8 + int.from_bytes(open(f, "rb").read(8), "little") for f in sys.argv[1:]))' \
    own/model/*.safetensors)
  expect 'parts fetch each byte once, and headers three times' 0 '' '' test "$(of_shards)" -eq $((bytes + 2 * headers))
  expect 'merge' 0 '' 'merge reads headers and small files from hf://own/model' "$program" merge out
  convert own/model local --backend marlin --engine vllm
  expect 'OUT of parts' 0 '' '' diff -r -x mxfp4-pack.json out local
  expect 'the same as one run' 0 '' 'out: unchanged' converted "$hub" out
  also 'parts compare no published hashes' 1
  expect 'a part' 0 '' '' converted "$hub" begun -q --part 0/2
  expect 'one run goes on' 0 '' 'restored from begun, and compared with published hashes' converted "$hub" begun
  also 'as published' 1
  expect 'parts and hashes' 0 'as published in' ': commit ' "$program" verify out --published "$hub"
}
test_add_and_link() {
  served
  converted "$hub" out -q
  expect '--add' 0 '' '' "$program" convert "$hub" out --add --backend marlin --engine sglang --no-published --no-loader -q
  convert own/model local --backend marlin --engine vllm
  convert own/model local --add --backend marlin --engine sglang
  expect 'OUT of --add' 0 '' '' diff -r -x mxfp4-pack.json out local
  convert own/model linked --backend marlin --engine vllm --link
  expect '--link' 0 '' '' converted "$hub" link --link --no-published -q
  expect 'OUT of --link' 0 '' '' diff -r link linked
}
test_addresses() {
  served
  refused 'no repository' 'revision main: the server answers 404' "$program" inspect hf://own/none
  refused 'no revision' 'revision v9: the server answers 404' "$program" inspect hf://own/model@v9
  refused 'no name' 'hf://OWNER/NAME or hf://OWNER/NAME@REVISION was expected' "$program" inspect hf://own
  refused 'another scheme' 'ftp://x/y: hf://OWNER/NAME, https://HOST/DIR/ or s3://BUCKET/PREFIX was expected' \
    "$program" inspect ftp://x/y
  refused 'a password' 'https://: a password in an address' "$program" inspect https://me:secret@host/x
  refused 'a query' 'https://host/x: a folder.s address was expected' "$program" inspect 'https://host/x?token=secret'
  refused 'http to the internet' 'http:// reaches only private addresses; use https://' "$program" inspect http://8.8.8.8/x/
  refused 'no checkpoint' 'no model.safetensors.index.json and no \*.safetensors' "$program" inspect s3://own/model/docs
  refused 'a wrong key' '403 \(AccessDenied\); check AWS_ACCESS_KEY_ID' env AWS_SECRET_ACCESS_KEY=x "$program" inspect s3://own/model
  refused 'a key with a line of its own' 'AWS_SESSION_TOKEN: holds characters that no key has' \
    env AWS_SESSION_TOKEN=$'a\r\nx-evil: 1' "$program" inspect s3://own/model
  refused 'no key' '403 \(AccessDenied\); set AWS_ACCESS_KEY_ID' env -u AWS_ACCESS_KEY_ID "$program" inspect s3://own/model
  refused 'a prefix without objects' 'no object' "$program" inspect s3://own/none
  refused 'no bucket' '404 \(NoSuchBucket\); does it exist' "$program" inspect s3://none/x
  refused 'no folder' 'none: no config.json and no model.safetensors.index.json; a checkpoint.s folder was expected' \
    "$program" inspect "$origin/plain/own/none"
  refused 'TLS to a server without it' 'wrong version number$' "$program" inspect "https://127.0.0.1:$port/plain/own/model"
  refused 'an endpoint without a server' 'hf://own/model at HF_ENDPOINT: revision main: .* connect' \
    env HF_ENDPOINT=http://127.0.0.1:1 "$program" inspect "$hub"
  refused 'an endpoint without a scheme' 'HF_ENDPOINT: host: an address of https:// was expected' \
    env HF_ENDPOINT=host "$program" inspect "$hub"
  refused 'offline' 'HF_HUB_OFFLINE is set, so the hub is not asked; the cache does not have the repository' \
    env HF_HUB_OFFLINE=yes "$program" inspect "$hub"
  refused 'offline, with a revision' 'the hub is not asked; give the folder of that snapshot' \
    env HF_HUB_OFFLINE=1 "$program" inspect "$hub@main"
  expect 'not offline' 0 gpt-oss ': commit ' env HF_HUB_OFFLINE=0 "$program" inspect "$hub"
  for more in '' --dry-run; do
    refused "OUT on a server $more" 'hf://own/new: OUT must be a local directory; upload it afterwards' \
      converted own/model hf://own/new $more -q
  done
  converted own/model own/packed -q
  for source in hf://own/packed "$origin/plain/own/packed"; do
    refused "an OUT on a server: $source" 'already packed by mxfp4-pack; download that output' "$program" inspect "$source" -q
  done
}
test_names() {
  served
  cp -r own/model own/bad
  touch own/bad/a:b
  refused 'an unsafe name' "unsafe file name 'a:b'" "$program" inspect hf://own/bad
  rm own/bad/a:b own/bad/model-00001-of-00001.safetensors
  refused 'a missing shard' 'model-00001-of-00001.safetensors: missing' "$program" inspect hf://own/bad -q
  again --odd long-name
  refused 'a long name' "the name of a file has more than 255 bytes: 'x{60}\.\.'" "$program" inspect "$hub"
  again
  mkdir -p home/hub/models--own--model/snapshots
  cp -r own/model home/hub/models--own--model/snapshots/x
  expect 'the cache comes first' 0 'gpt-oss' 'own/model: its snapshot ' env HF_HOME="$dir/home" "$program" inspect "$hub"
}
test_changes() {
  served
  converted "$hub" out -q --part 0/2
  touch own/model/model-00000-of-00001.safetensors
  expect 'another commit' 0 '' '' converted "$hub" out -q --part 1/2
  expect 'with the same files' 0 '' '' "$program" merge out -q
  expect 'an object' 0 '' '' converted s3://own/model out2 -q --part 0/2
  touch own/model/model-00000-of-00001.safetensors
  refused 'a changed object' 'was made from another source, or the source has changed' \
    converted s3://own/model out2 -q --part 1/2
}
test_token() {  # goes to the hub, and nowhere else
  cp -rp "$once/own" .
  serve cdn.log
  serve log --token secret-token --cdn "$origin"
  export HF_ENDPOINT=$origin HF_HOME=$dir/home
  refused 'no token' '401; no such repository, or it needs a token in HF_TOKEN' "$program" inspect "$hub"
  refused 'a wrong token' '401; the token may not read it' env HF_TOKEN=x "$program" inspect "$hub"
  expect 'HF_TOKEN' 0 '' '' env HF_TOKEN=secret-token \
    "$program" convert "$hub" out --backend marlin --engine vllm --no-loader -q
  expect 'the hub gets the token' 0 '' '' grep -q '^[0-9]* 302 .*/resolve/.* token$' log
  expect 'the server of the redirect answers' 0 '' '' grep -q '^[0-9]* 206 /cdn/' cdn.log
  expect 'and gets no token' 1 '' '' grep -q 'token$' cdn.log
  expect 'no token in OUT' 1 '' '' grep -rq secret-token out
  mkdir home
  echo secret-token >home/token
  expect 'a file with the token' 0 'gpt-oss' ': commit ' "$program" inspect "$hub"
}
# certificate NAME: key.pem, ca.pem and both in server.pem
certificate() {
  quiet openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext "subjectAltName=$1" -keyout key.pem -out ca.pem
  cat key.pem ca.pem >server.pem
}
test_tls() {
  cp -rp "$once/own" .
  certificate DNS:localhost
  serve log --cert server.pem
  safe=https://localhost:$port/plain/own/model/
  refused 'an unknown authority' 'certificate.*; name your authority.s certificates in SSL_CERT_FILE' "$program" inspect "$safe"
  for name in SSL_CERT_FILE CURL_CA_BUNDLE; do
    expect "$name" 0 'gpt-oss' 'usual names' env $name="$dir/ca.pem" "$program" inspect "$safe"
  done
  export SSL_CERT_FILE=$dir/ca.pem
  refused 'a name that the certificate lacks' 'SSL' "$program" inspect "https://127.0.0.1:$port/plain/own/model/"
  serve log --cert server.pem --cdn http://127.0.0.1:1
  refused 'a redirect to http' 'redirected to an address that is not https://' \
    env HF_ENDPOINT="https://localhost:$port" "$program" inspect "$hub"
}
test_private() {  # a server of the internet that redirects to this machine
  unshare -n ip link set lo up 2>/dev/null || skip 'no network namespaces'
  cp -rp "$once/own" .
  certificate IP:203.0.113.7
  cat >public.sh <<'EOF'
ip link set lo up && ip addr add 203.0.113.7/32 dev lo || exit 77
python3 -B "$root/tests/remote/server.py" "$dir" --port-file port --address 203.0.113.7 --cert server.pem --cdn https://127.0.0.1:1 &
until [ -e port ]; do sleep 0.1; done
HF_ENDPOINT=https://203.0.113.7:$(cat port) SSL_CERT_FILE=ca.pem "$program" inspect hf://own/model
code=$?
kill %1
exit $code
EOF
  export root dir program
  refused 'a redirect to a private address' 'redirected to a private address' unshare -n bash public.sh
}
test_versions() {
  served --odd no-version
  refused 'a shard without a version' 'the server names no version of the file \(ETag or Last-Modified\), so a change' \
    converted "$origin/plain/own/model" out -q
  refused 'an object whose answer has no version' 'changed while it was read' converted s3://own/model out -q
  expect 'a repository has its commit' 0 '' '' converted "$hub" out -q
  (cd own/model && find . -type f ! -name SHA256SUMS -exec sha256sum {} + >SHA256SUMS)
  expect 'a published hash is a version' 0 '' '' converted "$origin/plain/own/model" out2 -q
}
test_total() {
  served --odd no-total
  refused 'a range without the whole size' 'sent without its whole size in Content-Range; download' converted "$hub" out -q
}
test_commit() {
  served --odd other-commit
  refused 'another commit' 'the hub answers with commit [0-9a-f]{40}, 0{40} expected' \
    "$program" inspect "$hub@$(printf 0%.0s $(seq 40))"
}
test_lists() {
  served --odd cut-list
  refused 'a list that is cut off' 'list of objects: has no </ListBucketResult>, so it was cut off' \
    "$program" inspect s3://own/model
  again --odd key-count
  refused 'a list without a key' 'its list of objects has 3 keys, 9 expected' "$program" inspect s3://own/model
  for odd in no-keys same-keys same-token; do
    again --odd $odd
    refused "an endless list: $odd" 'its list of objects has no end' timeout 60 "$program" inspect s3://own/model
  done
}
test_waits() {
  served --odd drip
  refused 'a byte for each answer' 'model-0.*, 8 times; give the same command again later' \
    timeout 100 "$program" convert "$hub" out --backend marlin --engine vllm --no-loader -q
  again --fault date --at -4
  refused 'a date in Retry-After' '503, and asks to wait (119[0-9]|1200) s; give the same command again then' \
    timeout 20 "$program" inspect "$hub" -q
  again --odd no-length
  refused 'an answer without a length' 'revision main: sent without its length, so it may be cut off' \
    "$program" inspect "$hub" -q
  again --odd entities
  mv own/model/generation_config.json "own/model/a&b +%41.json"
  expect 'a list with entities' 0 '' '' converted s3://own/model entities -q
  expect 'the name' 0 '' '' cmp "entities/a&b +%41.json" "own/model/a&b +%41.json"
  again
  expect 'a list in percent encoding' 0 '' '' converted s3://own/model encoded -q
  expect 'the same name' 0 '' '' cmp "encoded/a&b +%41.json" "own/model/a&b +%41.json"
  again --odd forbidden
  expect 'absent files are forbidden' 0 gpt-oss 'only companions with usual names' "$program" inspect "$origin/plain/own/model"
}
test_changed_object() {  # behind a commit, without published hashes
  served
  converted "$hub" whole -q
  again --fault changed --at "$(wc -l <log)"
  refused 'another ETag' 'changed while it was read: "another" instead of' converted "$hub" out --no-published -q
}
test_changed_config() {  # after it was read
  served
  for file in config.json model.safetensors.index.json; do
    for source in "$origin/plain/own/model" s3://own/model; do
      rm -rf out .out.mxfp4-pack
      to_first_job : out "$program" convert "$source" out --backend marlin --engine vllm --no-loader --threads 1 -q
      kill -STOP $pid
      echo >>own/model/$file
      refused "$source: $file" "own/model/?: $file: changed while it was read; start again" go_on $pid "$once/said"
      nothing out .out.mxfp4-pack
    done
  done
}
test_proxies() {
  cp -rp "$once/own" .
  serve proxy.log
  export http_proxy=$origin https_proxy=$origin HF_TOKEN=secret-token
  refused 'http through a proxy' 'http:// reaches only private addresses; use https://' \
    env HF_ENDPOINT=http://8.8.8.8 "$program" inspect "$hub"
  expect 'the proxy gets no token' 0 '' '' test ! -s proxy.log
  certificate DNS:hub.example
  export SSL_CERT_FILE=$dir/ca.pem HF_ENDPOINT=https://hub.example
  unset http_proxy
  for to in 127.0.0.1:1 localhost:1 2130706433:1 0x7f.1:1 '[::1]:1' '[::ffff:10.0.0.1]:1' '[2002:a00:1::]:1'; do
    serve log --cert server.pem --cdn "https://$to"
    serve proxy.log --tunnel "$port"
    refused "redirected to $to" 'redirected to a private address' env https_proxy="$origin" "$program" inspect "$hub"
    expect "$to is not asked for" 1 '' '' grep -v 'CONNECT hub.example:443' proxy.log
  done
  serve log --cert server.pem --cdn https://cdn.example
  serve proxy.log --tunnel "$port"
  refused 'redirected to a public name' "SSL: .*cdn.example|cdn.example'" env https_proxy="$origin" "$program" inspect "$hub"
}
run_cases
