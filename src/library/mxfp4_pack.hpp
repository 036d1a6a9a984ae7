// libmxfp4_pack for C++17: the functions of mxfp4_pack.h, with exceptions and owners. Everything is inline.
#pragma once

#include <mxfp4_pack.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace mxfp4_pack {

struct Error : std::runtime_error {
  explicit Error(mxfp4_pack_status status) : std::runtime_error(mxfp4_pack_error()), status(status) {}
  mxfp4_pack_status status;
};

/// True for MXFP4_PACK_OK, false for MXFP4_PACK_WRONG. Throws Error for any other status.
inline bool check(mxfp4_pack_status status) {
  if (status > MXFP4_PACK_WRONG) throw Error(status);
  return status == MXFP4_PACK_OK;
}

struct Matrix : mxfp4_pack_matrix {
  explicit Matrix(const char* layout) : mxfp4_pack_matrix{} {
    this->size = sizeof(mxfp4_pack_matrix);
    this->layout = layout;
    this->views = 1;
  }
  int64_t packed_bytes() const {
    int64_t bytes = 0;
    check(mxfp4_pack_packed_bytes(this, &bytes));
    return bytes;
  }
};

class Device {
 public:
  explicit Device(const char* name = "auto") {
    mxfp4_pack_device* device = nullptr;
    check(mxfp4_pack_open_device(name, &device));
    device_.reset(device);
  }
  void pack(const Matrix& matrix, void* packed) { check(mxfp4_pack_pack(device_.get(), &matrix, packed)); }
  /// Returns false if pads differ from the matrix's pad bytes.
  bool unpack(const void* packed, const Matrix& matrix) {
    return check(mxfp4_pack_unpack(device_.get(), packed, &matrix));
  }
  bool compare(const void* packed, const Matrix& matrix) {
    return check(mxfp4_pack_compare(device_.get(), packed, &matrix));
  }

 private:
  struct Close {
    void operator()(mxfp4_pack_device* device) const { mxfp4_pack_close_device(device); }
  };
  std::unique_ptr<mxfp4_pack_device, Close> device_;
};

class Set {
 public:
  explicit Set(const std::string& out, int number = 0) {
    mxfp4_pack_set* set = nullptr;
    check(mxfp4_pack_open_set(out.c_str(), number, &set));
    set_.reset(set);
  }
  void pack(int rank, const std::vector<mxfp4_pack_expert>& experts, int gpu = -1, void* stream = nullptr) const {
    check(mxfp4_pack_pack_experts(set_.get(), rank, experts.data(), experts.size(), gpu, stream));
  }

 private:
  struct Close {
    void operator()(mxfp4_pack_set* set) const { mxfp4_pack_close_set(set); }
  };
  std::unique_ptr<mxfp4_pack_set, Close> set_;
};

class Reader {
 public:
  explicit Reader(int gpu = -1, int threads = 0) {
    mxfp4_pack_reader* reader = nullptr;
    check(mxfp4_pack_open_reader(gpu, threads, &reader));
    reader_.reset(reader);
  }
  void expect(int64_t bytes) { check(mxfp4_pack_expect_read(reader_.get(), bytes)); }
  struct Cached {
    int64_t read = 0, before = 0, now = 0;
  };
  Cached cached() const {
    Cached found;
    check(mxfp4_pack_cached_bytes(reader_.get(), &found.read, &found.before, &found.now));
    return found;
  }
  int64_t begin(const std::vector<mxfp4_pack_part>& parts) {
    int64_t request = 0;
    check(mxfp4_pack_begin_read(reader_.get(), parts.data(), parts.size(), &request));
    return request;
  }
  void finish(int64_t request) { check(mxfp4_pack_finish_read(reader_.get(), request, nullptr)); }

 private:
  struct Close {
    void operator()(mxfp4_pack_reader* reader) const { mxfp4_pack_close_reader(reader); }
  };
  std::unique_ptr<mxfp4_pack_reader, Close> reader_;
};

struct Conversion : mxfp4_pack_conversion {
  Conversion(const char* checkpoint, const char* out, const char* backend, const char* engine)
      : mxfp4_pack_conversion{} {
    this->size = sizeof(mxfp4_pack_conversion);
    this->checkpoint = checkpoint;
    this->out = out;
    this->backend = backend;
    this->engine = engine;
  }
};

/// A JSON object, and whether the answer is yes.
struct Result {
  bool ok = false;
  std::string json;
};

/// Calls a function of mxfp4_pack.h that stores JSON through its argument, and takes that JSON over.
template <class Call>
Result result_of(Call call) {
  char* json = nullptr;
  const bool ok = check(call(&json));
  const std::unique_ptr<char, void (*)(char*)> owner(json, mxfp4_pack_free);
  return {ok, json ? json : ""};
}

inline std::string plan(const Conversion& c) {
  return result_of([&](char** json) { return mxfp4_pack_plan(&c, json); }).json;
}
inline std::string convert(const Conversion& c) {
  return result_of([&](char** json) { return mxfp4_pack_convert(&c, json); }).json;
}
inline std::string unpack(const char* out, const char* dest, int threads = 0) {
  return result_of([&](char** json) { return mxfp4_pack_unpack_checkpoint(out, dest, threads, json); }).json;
}
inline Result verify(const char* out, const char* source = nullptr, const char* level = nullptr, int threads = 0) {
  return result_of([&](char** json) { return mxfp4_pack_verify(out, source, level, threads, json); });
}

}  // namespace mxfp4_pack
