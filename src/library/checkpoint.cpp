// Functions for whole checkpoints: each runs a command and returns its JSON output.
#include "src/backends/gpu.h"
#include "src/base/log.h"
#include "src/convert/convert.h"
#include "src/convert/raw_layer.h"
#include "src/convert/unpack.h"
#include "src/library/guard.h"
#include "src/verify/verify.h"

namespace mxfp4 {

namespace {

int known_threads(int threads) {
  if (threads < 0 || threads > 4096) fail(ErrorKind::usage, "threads is {}, not 0 to 4096", threads);
  return threads;
}

std::string known_gpu(const char* gpu) {
  const std::string name = architecture_of(or_empty(gpu));
  if (gpu && name.empty()) fail(ErrorKind::usage, "gpu: {} is not one of {}", gpu, known_architectures());
  return name;
}

int known_tp_size(int tp_size) {
  if (tp_size < 0 || tp_size > 1024) fail(ErrorKind::usage, "tp_size is {}, not 1 to 1024", tp_size);
  return tp_size ? tp_size : 1;
}

void take_flags(unsigned flags, ConvertOptions& o) {
  const unsigned all = MXFP4_PACK_FORCE | MXFP4_PACK_ADD | MXFP4_PACK_NO_LOADER;
  if (flags & ~all) fail(ErrorKind::usage, "flags {:#x} are not known", flags & ~all);
  if (flags & MXFP4_PACK_FORCE && flags & MXFP4_PACK_ADD) fail(ErrorKind::usage, "FORCE excludes ADD");
  o.force = flags & MXFP4_PACK_FORCE;
  o.add = flags & MXFP4_PACK_ADD;
  o.no_loader = flags & MXFP4_PACK_NO_LOADER;
}

ConvertOptions options_of(const mxfp4_pack_conversion& c) {
  ConvertOptions o;
  o.json = true;
  o.checkpoint = needed(c.checkpoint, "checkpoint");
  o.out = needed(c.out, "out");
  o.engine = needed(c.engine, "engine");
  o.backend = needed(c.backend, "backend");
  o.layout_version = or_empty(c.layout_version);
  o.gpu = known_gpu(c.gpu);
  if (c.gpu) o.gpu_bytes = memory_of(c.gpu);
  settle_names(o);
  if (c.device) o.device.name = c.device;
  o.threads = known_threads(c.threads);
  o.page_cache = page_cache_of_environment();
  o.tp_size = known_tp_size(c.tp_size);
  take_flags(c.flags, o);
  return o;
}

Level level_of(const char* name) {
  static const std::map<std::string_view, Level> levels = {
      {"files", Level::files}, {"bytes", Level::bytes}, {"kernels", Level::kernels}};
  if (!name) return Level::highest;
  const auto it = levels.find(name);
  if (it == levels.end()) fail(ErrorKind::usage, "level: {} is not files, bytes or kernels", name);
  return it->second;
}

}  // namespace

}  // namespace mxfp4

using namespace mxfp4;

mxfp4_pack_status mxfp4_pack_plan(const mxfp4_pack_conversion* conversion, char** json) {
  return captured(json, [&] {
    ConvertOptions options = options_of(known(conversion, "conversion"));
    options.dry_run = true;
    convert(options);
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_convert(const mxfp4_pack_conversion* conversion, char** json) {
  return captured(json, [&] {
    print_out("{}\n", one_line(convert(options_of(known(conversion, "conversion")))));
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_unpack_checkpoint(const char* out, const char* dest, int threads, char** json) {
  return captured(json, [&] {
    UnpackOptions options;
    options.out = needed(out, "out");
    options.dest = needed(dest, "dest");
    options.threads = known_threads(threads);
    options.json = true;
    print_out("{}\n", one_line(unpack(options)));
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_unpack_layer(const char* out, int set, const char* module, int rank, char** file,
                                          size_t* bytes) {
  if (file) *file = nullptr;
  return guarded([&] {
    if (!file || !bytes) fail(ErrorKind::usage, "file or bytes is null");
    RawLayerFile made = raw_layer({needed(out, "out"), set, needed(module, "module"), rank});
    *bytes = made.bytes;
    *file = made.data.release();
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_verify(const char* out, const char* source, const char* level, int threads, char** json) {
  return captured(json, [&] {
    VerifyOptions options;
    options.out = needed(out, "out");
    options.source = or_empty(source);
    options.level = level_of(level);
    options.threads = known_threads(threads);
    options.page_cache = page_cache_of_environment();
    options.json = true;
    return verify(options);
  });
}
