// A matrix' real rows in device memory, and the copies that bring them there or back.
#pragma once

#include <algorithm>

#include "kernels/layouts/matrix.h"
#include "kernels/pack/cuda/check.h"

namespace mxfp4 {

/// The alignment of all data in device memory, in bytes.
inline constexpr int64_t device_alignment = 256;

/// A copy of `rows` rows of `width` bytes between host and device.
struct Transfer {
  uint8_t* host;
  int64_t host_stride;
  uint8_t* device;
  int64_t stride, width, rows;
};

inline void copy(const Transfer& t, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice;
  uint8_t *const to = to_device ? t.device : t.host, *const from = to_device ? t.host : t.device;
  if (t.rows == 1)
    MXFP4_CUDA(cudaMemcpyAsync(to, from, t.width, kind, stream));
  else
    MXFP4_CUDA(cudaMemcpy2DAsync(to, to_device ? t.stride : t.host_stride, from, to_device ? t.host_stride : t.stride,
                                 t.width, t.rows, kind, stream));
}

/// A matrix's real rows in device memory. Rows without gaps are copied as one image of the host's bytes, or one per
/// view. Other rows are placed at multiples of 16.
struct UploadPlan {
  MutableMatrix matrix;
  Transfer transfers[2];
  int count = 0;
  int64_t bytes = 0;
};

template <class T>
UploadPlan plan_upload(const BasicMatrix<T>& m, uint8_t* device) {
  UploadPlan placed{{{}, m.views, m.real, m.padded, m.order, m.pad, m.add}, {}};
  const int64_t rows = m.real.n, width = m.real.b;
  if (rows * width == 0) return placed;
  uint8_t* host[2] = {};
  for (int v = 0; v < m.views; ++v) host[v] = const_cast<uint8_t*>(m.view[v].data);
  uint8_t *begin = host[0], *end = host[0];
  for (int v = 0; v < m.views; ++v) {
    begin = std::min(begin, host[v]);
    end = std::max(end, host[v] + (rows - 1) * m.view[v].stride + width);
  }
  if (end - begin == m.views * rows * width) {
    for (int v = 0; v < m.views; ++v) placed.matrix.view[v] = {device + (host[v] - begin), m.view[v].stride};
    placed.transfers[placed.count++] = {begin, 0, device, 0, end - begin, 1};
    placed.bytes = round_up(end - begin, device_alignment);
  } else {
    for (int v = 0; v < m.views; ++v) {
      uint8_t* const to = device + placed.bytes;
      const bool dense = m.view[v].stride == width;
      const int64_t stride = dense ? width : round_up(width, 16);
      placed.matrix.view[v] = {to, stride};
      placed.transfers[placed.count++] = dense ? Transfer{host[v], 0, to, 0, rows * width, 1}
                                               : Transfer{host[v], m.view[v].stride, to, stride, width, rows};
      placed.bytes += round_up(rows * stride, device_alignment);
    }
  }
  return placed;
}

inline Matrix read_only(const MutableMatrix& m) {
  Matrix r{{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
  for (int v = 0; v < m.views; ++v) r.view[v] = {m.view[v].data, m.view[v].stride};
  return r;
}

}  // namespace mxfp4
