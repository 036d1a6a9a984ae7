#!/usr/bin/env bash
# The wheel in a fresh Debian 12 with Python and man alone: installs without network, works, and goes. Prints the seconds
# from the file to the first verified conversion. Needs root. usage: wheel.sh WHEEL
. "$(dirname "$0")/lib.sh"
"$here/symbols.sh" "$1"
fresh_root man-db python3-venv
cp "$1" "$root/tmp"
begin=$(date +%s%N)
inside python3 -m venv /opt/venv
path=/opt/venv/bin:/usr/bin:/bin
files() { (cd "$root/opt/venv" && find . ! -name '*.pyc' ! -name __pycache__ | sort); }
files >"$dir/before"
inside pip install -q --no-index "/tmp/$(basename "$1")"
inside mxfp4-pack convert /tmp/tiny /tmp/first --backend marlin --engine vllm -q
inside mxfp4-pack verify /tmp/first --source /tmp/tiny -q
echo "from the file to the first verified conversion: $((($(date +%s%N) - begin) / 1000000)) ms"
main_job
inside python3 -m mxfp4_pack --version | grep '^mxfp4-pack ' >/dev/null
inside python3 -c '
import importlib.metadata, mxfp4_pack, mxfp4_pack._library
assert mxfp4_pack.verify("/tmp/first", source="/tmp/tiny")["ok"]
assert mxfp4_pack.open("/tmp/first").kernel("auto", 1) == "marlin"
mxfp4_pack._library.Packer("/tmp/first", 0, 0)
found = {e.value for g in ("vllm.general_plugins", "sglang.srt.plugins") for e in importlib.metadata.entry_points(group=g)}
assert found == {"mxfp4_pack.vllm:register", "mxfp4_pack.sglang:register"}, found'
inside python3 -m mxfp4_pack.check /tmp/first
inside pip uninstall -q -y mxfp4-pack
files >"$dir/after"
diff "$dir/before" "$dir/after" | grep -vE '^[0-9,acd]+$|> ./share(/|$)' && exit 1
echo 'installed, used, removed'
