# bash completion of mxfp4-pack
_mxfp4_pack() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local common='--help --json --quiet --verbose' words=
  case $before in
    --engine) words='vllm sglang transformers' ;;
    --gpu) words='h100 h200 b200 b300 l40s a100 t4 rtx5090 mi300x mi355x sm75 sm80 sm89 sm90 sm100 sm103 sm107 sm120 gfx942 gfx950 cpu' ;;
    --engine-version) words='installed' ;;
    --phase) words='prefill decode' ;;
    --num-warps) words='4 8' ;;
    --format) words='packed sharded-state' ;;
    --gate-up) words='interleaved concatenated' ;;
    --device) words='auto cpu cuda' ;;
    --link) words='auto hard reflink none' ;;
    --level) words='files bytes kernels' ;;
    --backend) words=$(mxfp4-pack backends 2>/dev/null | awk 'NR > 1 {print $1}' | sort -u) ;;
    --filelist) mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
    --layout-version | --threads | --device-memory | --tp-size | --rank | --seed | --layers | --experts | --hidden | --intermediate | --vocab | --tokens | --tolerance | --model | --repeats) return ;;
    *)
      if [ "$COMP_CWORD" -eq 1 ]; then
        words='inspect convert verify unpack diff backends synth bench --help --version'
      elif [[ $word == -* ]]; then
        case $command in
          inspect) words="$common --gate-up" ;;
          convert) words="$common --backend --engine --engine-version --layout-version --gpu --phase --lossy --num-warps --tp-size --rank --format --dry-run --force --add --if-changed --filelist --fail-fast --resume --restart --link --sha256
            --allow-nan-scales --gate-up --threads --device --device-memory" ;;
          verify) words="$common --source --level --tokens --layers --seed --tolerance --threads --device --device-memory --bench
            --hidden --intermediate --experts --top-k" ;;
          unpack) words="$common --threads --device --device-memory" ;;
          diff) words="$common --rank" ;;
          backends) words=$common ;;
          bench) words="$common --dir --model --repeats --threads" ;;
          synth) words="$common --layers --experts --hidden --intermediate --vocab --tiny --seed --threads" ;;
        esac
      fi
      ;;
  esac
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -d -- "$word")
    compopt -o filenames
  fi
}
complete -F _mxfp4_pack mxfp4-pack
