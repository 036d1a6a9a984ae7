# fish completion of mxfp4-pack
set -l commands inspect convert verify unpack diff backends synth bench
complete -c mxfp4-pack -f
complete -c mxfp4-pack -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c mxfp4-pack -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from inspect convert verify unpack synth" -a '(__fish_complete_directories)'
complete -c mxfp4-pack -s h -l help -d 'Print the help'
complete -c mxfp4-pack -l json -d 'Print one JSON object'
complete -c mxfp4-pack -s q -l quiet -d 'Say nothing unless something is wrong'
complete -c mxfp4-pack -s v -l verbose -d 'Say more'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert verify unpack synth bench" -l threads -x -d 'Threads; 0: one per core'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert verify unpack" -l device -x -a 'auto cpu cuda' -d 'Who packs and unpacks'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert verify unpack" -l device-memory -x -d 'Of each GPU'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from inspect convert" -l gate-up -x -a 'interleaved concatenated'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l backend -x -a "(mxfp4-pack backends 2>/dev/null | awk 'NR > 1 {print \$1}' | sort -u)"
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l engine -x -a 'vllm sglang transformers'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l engine-version -x -a 'installed' -d 'Its release'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l lossy -d 'Take the engine choice also where it changes values'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l layout-version -x -d 'Form of the layout'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l gpu -x -a 'h100 h200 b200 b300 l40s a100 t4 rtx5090 mi300x mi355x sm75 sm80 sm89 sm90 sm100 sm103 sm107 sm120 gfx942 gfx950 cpu'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l phase -x -a 'prefill decode'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l num-warps -x -a '4 8'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l tp-size -x -d 'Tensor-parallel ranks'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert diff" -l rank -x -d 'Write this rank only'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l format -x -a 'packed sharded-state'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l dry-run -d 'Print the plan'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l force -d 'Replace an OUT that mxfp4-pack made'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l add -d 'Add a set to an OUT'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l if-changed -d 'Do nothing where OUT is up to date'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l filelist -r -F -d 'Conversions, one a line'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l fail-fast -d 'End a list at the first failure'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l resume -d 'Go on with what an interrupted run left'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l restart -d 'Discard what an interrupted run left'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l link -x -a 'auto hard reflink none' -d 'Shards without experts'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l sha256 -d 'Write SHA256SUMS'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from convert" -l allow-nan-scales -d 'Take scale bytes 0xFF'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l source -x -a '(__fish_complete_directories)'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l level -x -a 'files bytes kernels'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify synth" -l layers -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify synth" -l experts -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify synth" -l hidden -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify synth" -l intermediate -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from synth" -l vocab -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify synth" -l seed -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l tokens -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l tolerance -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l bench -d 'Print times of the CUDA kernels'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from verify" -l top-k -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from synth" -l tiny -d 'A few hundred KB'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from bench" -l dir -x -a '(__fish_complete_directories)'
complete -c mxfp4-pack -n "__fish_seen_subcommand_from bench" -l model -x
complete -c mxfp4-pack -n "__fish_seen_subcommand_from bench" -l repeats -x
