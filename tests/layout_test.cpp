#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/device.h"
#include "tests/golden.h"

using namespace mxfp4;

namespace {

/// A golden matrix vector: which layout makes it, from which canonical input.
struct Vector {
  const char* name;   // tensor in matrix_*.safetensors
  const char* input;  // codes, scales or bias
  Layout layout;
};
const Vector vectors[] = {
    {"marlin.codes", "codes", MarlinCodes{}},
    {"marlin.scales", "scales", MarlinScales{}},
    {"marlin.bias", "bias", MarlinBias{}},
};

Matrix plain_matrix(const uint8_t* data, Shape s) {
  Matrix m;
  m.view[0] = {data, s.b};
  m.real = m.padded = s;
  return m;
}

void check_vector(const Golden& golden, const Vector& v) {
  const Tensor* want = golden.find(v.name);
  if (!want) return;  // the layout does not take this shape
  const Tensor& in = *golden.find(v.input);
  const int64_t experts = in.shape[0];
  const Shape s{in.shape[1], in.bytes / experts / in.shape[1]};
  const int64_t packed_size = packed_bytes(v.layout, s);
  REQUIRE(want->bytes == experts * packed_size);
  auto cpu = open_cpu();
  for (int64_t e = 0; e < experts; ++e) {
    const uint8_t* canonical = golden.bytes(in).data() + e * s.n * s.b;
    std::vector<uint8_t> packed(packed_size), back(s.n * s.b);
    const PackItem pack{v.layout, plain_matrix(canonical, s), packed.data()};
    cpu->pack({&pack, 1});
    CHECK(std::memcmp(packed.data(), golden.bytes(*want).data() + e * packed_size, packed_size) == 0);
    UnpackItem unpack{v.layout, packed.data(), {}};
    unpack.matrix.view[0] = {back.data(), s.b};
    unpack.matrix.real = unpack.matrix.padded = s;
    PadReport report;
    cpu->unpack({&unpack, 1}, {&report, 1});
    CHECK(report.wrong == 0);
    CHECK(std::memcmp(back.data(), canonical, back.size()) == 0);
  }
}

}  // namespace

TEST_CASE("layouts equal the golden matrices, forward and inverse") {
  for (const char* file : golden_matrices) {
    const Golden golden(file);
    for (const Vector& v : vectors) {
      INFO(file << " " << v.name);
      check_vector(golden, v);
    }
  }
}
