// One matrix: the description from C, checked and converted for the devices.
#include <cstdint>

#include "src/device/device_choice.h"
#include "src/library/guard.h"

struct mxfp4_pack_device {
  std::unique_ptr<mxfp4::Device> device;
};

namespace mxfp4 {

namespace {

constexpr int64_t largest_side = int64_t(1) << 31;
constexpr int64_t largest_matrix = int64_t(1) << 46;  // above any memory; no layout's sizes overflow below it

void check_sizes(const mxfp4_pack_matrix& m) {
  if (m.views != 1 && m.views != 2) fail(ErrorKind::usage, "matrix.views is {}, not 1 or 2", m.views);
  for (const int64_t side : {m.rows, m.bytes, m.padded_rows, m.padded_bytes})
    if (side <= 0 || side > largest_side)
      fail(ErrorKind::usage, "matrix: rows and bytes are {} x {}, padded {} x {}; each is 1 to 2^31", m.rows, m.bytes,
           m.padded_rows, m.padded_bytes);
  if (m.padded_rows > largest_matrix / m.padded_bytes)
    fail(ErrorKind::usage, "matrix: {} x {} bytes, at most {} in all are expected", m.padded_rows, m.padded_bytes,
         largest_matrix);
  if (m.padded_rows < m.rows * m.views || m.padded_bytes < m.bytes || m.padded_rows % m.views)
    fail(ErrorKind::usage, "matrix: {} views of {} x {} do not fit into {} x {}", m.views, m.rows, m.bytes,
         m.padded_rows, m.padded_bytes);
  if (m.order_block < 0 || (m.order_block && (m.views == 1 || m.padded_rows / 2 % m.order_block)))
    fail(ErrorKind::usage, "matrix.order_block is {}, which does not divide half of {} rows of two views",
         m.order_block, m.padded_rows);
}

/// The matrix with its defaults filled in. Throws if a field is invalid.
mxfp4_pack_matrix checked(const mxfp4_pack_matrix* given) {
  mxfp4_pack_matrix m = known(given, "matrix");
  for (int64_t& stride : m.stride)
    if (!stride) stride = m.bytes;
  const bool may_multiply = m.rows > 0 && m.rows <= largest_side && (m.views == 1 || m.views == 2);
  if (!m.padded_rows && may_multiply) m.padded_rows = m.rows * m.views;
  if (!m.padded_bytes) m.padded_bytes = m.bytes;
  check_sizes(m);
  return m;
}

Layout layout_of(const mxfp4_pack_matrix& m) {
  const std::optional<Layout> layout = find_layout(needed(m.layout, "matrix.layout"));
  if (!layout) fail(ErrorKind::usage, "matrix.layout: there is no layout {}", m.layout);
  const Shape padded{m.padded_rows, m.padded_bytes};
  if (fits(*layout, padded)) return *layout;
  const Shape multiple = multiple_of(*layout);
  fail(ErrorKind::usage, "{} takes multiples of {} rows and {} bytes, not {} x {}", m.layout, multiple.n, multiple.b,
       padded.n, padded.b);
}

template <class T>
BasicMatrix<T> matrix_of(const mxfp4_pack_matrix& m) {
  BasicMatrix<T> matrix;
  for (int i = 0; i < m.views; ++i) {
    if (!m.view[i]) fail(ErrorKind::usage, "matrix.view[{}] is null", i);
    if (m.stride[i] < m.bytes) fail(ErrorKind::usage, "matrix.stride[{}] is {}, less than a row", i, m.stride[i]);
    if (m.stride[i] > INT64_MAX / m.rows)
      fail(ErrorKind::usage, "matrix.stride[{}] is {}, which times {} rows ends beyond any memory", i, m.stride[i],
           m.rows);
    matrix.view[i] = {static_cast<T*>(m.view[i]), m.stride[i]};
  }
  matrix.views = m.views;
  matrix.real = {m.rows, m.bytes};
  matrix.padded = {m.padded_rows, m.padded_bytes};
  matrix.order = {m.order_block, m.up_first != 0};
  matrix.pad = {m.pad_row, m.pad_column, m.pad_storage};
  matrix.add = m.add;
  return matrix;
}

Device& opened(mxfp4_pack_device* device) {
  if (!device) fail(ErrorKind::usage, "device is null");
  return *device->device;
}

template <class Byte>
Byte* aligned(Byte* packed) {
  if (!packed || reinterpret_cast<uintptr_t>(packed) % 16)
    fail(ErrorKind::usage, "packed is null or not aligned to 16 bytes");
  return packed;
}

}  // namespace

}  // namespace mxfp4

using namespace mxfp4;

const char* mxfp4_pack_layout(int index) {
  return index < 0 || size_t(index) >= layouts.size() ? nullptr : name_of(layouts[size_t(index)]);
}

mxfp4_pack_status mxfp4_pack_open_device(const char* name, mxfp4_pack_device** device) {
  if (device) *device = nullptr;
  return guarded([&] {
    if (!device) fail(ErrorKind::usage, "device is null");
    const DeviceChoice choice = choose_device({.name = needed(name, "name")});
    *device = new mxfp4_pack_device{open_device(choice, 0, 1)};
    return true;
  });
}

void mxfp4_pack_close_device(mxfp4_pack_device* device) { delete device; }

mxfp4_pack_status mxfp4_pack_packed_bytes(const mxfp4_pack_matrix* matrix, int64_t* bytes) {
  return guarded([&] {
    if (!bytes) fail(ErrorKind::usage, "bytes is null");
    const mxfp4_pack_matrix m = checked(matrix);
    *bytes = packed_bytes(layout_of(m), {m.padded_rows, m.padded_bytes});
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_pack(mxfp4_pack_device* device, const mxfp4_pack_matrix* matrix, void* packed) {
  return guarded([&] {
    const mxfp4_pack_matrix m = checked(matrix);
    const PackItem item{layout_of(m), matrix_of<const uint8_t>(m), static_cast<uint8_t*>(aligned(packed))};
    opened(device).pack({&item, 1});
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_unpack(mxfp4_pack_device* device, const void* packed, const mxfp4_pack_matrix* matrix) {
  return guarded([&] {
    const mxfp4_pack_matrix m = checked(matrix);
    const UnpackItem item{layout_of(m), static_cast<const uint8_t*>(aligned(packed)), matrix_of<uint8_t>(m)};
    PadReport report;
    opened(device).unpack({&item, 1}, {&report, 1});
    return report.wrong == 0;
  });
}

mxfp4_pack_status mxfp4_pack_compare(mxfp4_pack_device* device, const void* packed, const mxfp4_pack_matrix* matrix) {
  return guarded([&] {
    const mxfp4_pack_matrix m = checked(matrix);
    const CompareItem item{layout_of(m), static_cast<const uint8_t*>(aligned(packed)), matrix_of<const uint8_t>(m)};
    CompareReport report;
    opened(device).compare({&item, 1}, {&report, 1});
    return report.pads.wrong == 0 && report.view[0].wrong == 0 && report.view[1].wrong == 0;
  });
}
