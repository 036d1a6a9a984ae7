#include "src/bench/pack_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "src/base/checksum.h"
#include "src/base/elapsed.h"
#include "src/base/threads.h"

namespace mxfp4 {

namespace {

constexpr int64_t bytes_in = 64 << 20;          // of a thread
constexpr int64_t rows = 5888, columns = 3072;  // GPT-OSS w13, padded so that every layout supports it

/// The width of a row of the kind of matrix that the layout is for.
int64_t row_bytes(std::string_view layout) {
  if (layout.ends_with(".scales")) return columns / 32;
  if (layout == "trtllm.bias") return 4;
  if (layout.ends_with(".bias")) return 2;
  return columns / 2;
}

/// Seconds until work(lane) is done for `threads` lanes, each on its own thread if the system permits that many.
template <class Work>
double seconds(int threads, Work work) {
  const auto start = std::chrono::steady_clock::now();
  run_jobs(threads, threads, work);
  return seconds_since(start);
}

/// A thread's matrices of one layout after the other.
class Lane {
 public:
  explicit Lane(const Packer& packer)
      : device_(packer.open()), in_(device_->allocate(bytes_in)), out_(device_->allocate(2 * bytes_in)) {
    for (int64_t i = 0; i < bytes_in; ++i) in_[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
    std::memset(out_, 0, size_t(2 * bytes_in));
  }
  ~Lane() {
    device_->release(in_);
    device_->release(out_);
  }
  Lane(const Lane&) = delete;

  void take(const Layout& layout) {
    const Shape shape{rows, row_bytes(name_of(layout))};
    const int64_t size = shape.n * shape.b, packed = packed_bytes(layout, shape);
    const int64_t count = std::min(bytes_in / size, 2 * bytes_in / packed);
    packs_.clear();
    unpacks_.clear();
    for (int64_t i = 0; i < count; ++i) {
      Matrix from;
      from.view[0] = {in_ + i * size, shape.b};
      from.real = from.padded = shape;
      packs_.push_back({layout, from, out_ + i * packed});
      MutableMatrix to;
      to.view[0] = {in_ + i * size, shape.b};
      to.real = to.padded = shape;
      unpacks_.push_back({layout, out_ + i * packed, to});
    }
    reports_.resize(size_t(count));
    bytes_ = count * size;
  }
  void copy() { std::memcpy(out_, in_, size_t(bytes_)); }
  void pack() { device_->pack(packs_); }
  void unpack() { device_->unpack(unpacks_, reports_); }
  int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<Device> device_;
  uint8_t *in_, *out_;
  int64_t bytes_ = 0;
  std::vector<PackItem> packs_;
  std::vector<UnpackItem> unpacks_;
  std::vector<PadReport> reports_;
};

struct Row {
  Layout layout;
  PackSpeed speed;
  std::vector<double> copy{}, pack{}, unpack{};  // seconds
};

/// All rows of one packer and thread count.
void measure(std::vector<Row>& rows_of, const Packer& packer, int threads, int repeats) {
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int t = 0; t < threads; ++t) lanes.push_back(std::make_unique<Lane>(packer));
  for (int r = 0; r < repeats; ++r)
    for (Row& row : rows_of) {
      for (auto& lane : lanes) lane->take(row.layout);
      row.copy.push_back(seconds(threads, [&](int64_t t) { lanes[size_t(t)]->copy(); }));
      row.pack.push_back(seconds(threads, [&](int64_t t) { lanes[size_t(t)]->pack(); }));
      row.unpack.push_back(seconds(threads, [&](int64_t t) { lanes[size_t(t)]->unpack(); }));
      row.speed.copy = double(threads * lanes[0]->bytes()) / median(row.copy);
      row.speed.pack = double(threads * lanes[0]->bytes()) / median(row.pack);
      row.speed.unpack = double(threads * lanes[0]->bytes()) / median(row.unpack);
    }
}

}  // namespace

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + int64_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

std::vector<PackSpeed> pack_speeds(const std::vector<Layout>& layouts, const std::vector<Packer>& packers,
                                   const std::vector<int>& threads, int repeats) {
  std::vector<PackSpeed> out;
  for (const Packer& packer : packers)
    for (int count : threads) {
      std::vector<Row> rows_of;
      for (const Layout& layout : layouts) rows_of.push_back({layout, {name_of(layout), packer.name, count}});
      measure(rows_of, packer, count, repeats);
      for (Row& row : rows_of) out.push_back(std::move(row.speed));
    }
  return out;
}

double hash_speed(int threads) {
  const std::vector<uint8_t> data(size_t(bytes_in), 1);
  std::vector<double> times;
  std::vector<Hash> hashes(static_cast<size_t>(threads));
  for (int r = 0; r < 3; ++r)
    times.push_back(seconds(threads, [&](int64_t t) { hashes[size_t(t)] = hash_bytes(data.data(), bytes_in); }));
  return double(threads * bytes_in) / median(times);
}

}  // namespace mxfp4
