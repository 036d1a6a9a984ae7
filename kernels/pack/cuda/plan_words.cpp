#include "kernels/pack/cuda/plan_words.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace mxfp4 {

namespace {

/// The source bytes of a word by lanes; -1: none.
using Lanes = std::array<int64_t, 8>;
using Bits = std::vector<int64_t>;

/// The source bytes of a word, in the order in which its bits need them.
std::vector<int64_t> bytes_of(const Bits& word) {
  std::vector<int64_t> bytes;
  for (const int64_t bit : word)
    if (std::find(bytes.begin(), bytes.end(), bit / 8) == bytes.end()) bytes.push_back(bit / 8);
  return bytes;
}

/// The number of a source bit in its word's lanes.
size_t bit_in(const Lanes& lanes, int64_t bit) {
  return size_t(std::find(lanes.begin(), lanes.end(), bit / 8) - lanes.begin()) * 8 + size_t(bit % 8);
}

/// read: whether unpacking takes the bit. Returns the turns of a word.
TurnList turns_of(const Bits& word, const Lanes& lanes, const std::vector<bool>& read) {
  TurnList turns;
  for (size_t t = 0; t < word.size(); ++t) {
    const size_t source = bit_in(lanes, word[t]);
    Turn& turn = turn_of(turns, uint32_t((source - t) & 31) | (source < 32 ? 0 : Turn::high_plane));
    turn.mask |= 1u << t;
    turn.read |= uint32_t(read[t]) << t;
  }
  return turns;
}

/// Each byte near the place of its first bit, so that few turns are needed.
Lanes spread(const Bits& word) {
  Lanes lanes;
  lanes.fill(-1);
  for (const int64_t byte : bytes_of(word)) {
    const auto first = std::find_if(word.begin(), word.end(), [&](int64_t bit) { return bit / 8 == byte; });
    const auto wanted = size_t(first - word.begin()) / 8;
    auto lane = lanes.end();
    for (const size_t at : {wanted, wanted + 4})
      if (lane == lanes.end() && lanes[at] < 0) lane = lanes.begin() + int64_t(at);
    if (lane == lanes.end()) lane = std::find(lanes.begin(), lanes.end(), -1);
    *lane = byte;
  }
  return lanes;
}

/// How many of a word's lanes can be loaded at once: 4, 2 or 1.
int piece_of(const Lanes& lanes, int64_t base_bytes) {
  const auto in_a_row = [&](size_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      if (lanes[first + size_t(i)] != lanes[first] + i) return false;
    return lanes[first] >= 0 && (lanes[first] | base_bytes) % count == 0;
  };
  return in_a_row(0, 4) ? 4 : in_a_row(0, 2) && in_a_row(2, 2) ? 2 : 1;
}

/// The order of a word's four bytes or fewer that needs the fewest loads, and then the fewest turns.
Lanes in_one_plane(const Bits& word, int64_t base_bytes) {
  std::vector<int64_t> bytes = bytes_of(word);
  std::sort(bytes.begin(), bytes.end());
  const std::vector<bool> all(word.size(), true);
  Lanes best;
  std::pair<int, size_t> least = {1, 0};
  do {
    Lanes lanes;
    lanes.fill(-1);
    std::copy(bytes.begin(), bytes.end(), lanes.begin());
    const std::pair cost(-piece_of(lanes, base_bytes), turns_of(word, lanes, all).size());
    if (cost < least) least = cost, best = lanes;
  } while (std::next_permutation(bytes.begin(), bytes.end()));
  return best;
}

/// Whether words are made alike, each of bytes of its own; then all have the turns of the first.
bool are_alike(const std::vector<Bits>& words) {
  std::vector<int64_t> all;
  for (const Bits& word : words) {
    const std::vector<int64_t> bytes = bytes_of(word), first = bytes_of(words[0]);
    if (bytes.size() > 4 || bytes.size() != first.size()) return false;
    all.insert(all.end(), bytes.begin(), bytes.end());
    for (size_t t = 0; t < word.size(); ++t) {
      const auto nth = [&](const std::vector<int64_t>& of, int64_t bit) {
        return std::find(of.begin(), of.end(), bit / 8) - of.begin();
      };
      if (nth(bytes, word[t]) != nth(first, words[0][t]) || word[t] % 8 != words[0][t] % 8) return false;
    }
  }
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) == all.end();
}

/// Whether each bit of a word stays, or moves by whole nibbles with its nibble's other bits that move. Then sets
/// orders. Each source bit is in the word, once.
bool find_nibbles(const Bits& word, const Lanes& lanes, BlockPlan& plan) {
  constexpr uint32_t none = 8;
  std::array<uint32_t, 8> from, to;
  from.fill(none), to.fill(none);
  uint32_t stay = 0;
  for (size_t t = 0; t < word.size(); ++t) {
    const size_t source = bit_in(lanes, word[t]);
    if (source == t) {
      stay |= 1u << t;
      continue;
    }
    uint32_t &f = from[t / 4], &g = to[source / 4];
    if (source % 4 != t % 4 || (f != none && f != source / 4) || (g != none && g != t / 4)) return false;
    f = uint32_t(source / 4), g = uint32_t(t / 4);
  }
  const auto take = [](const std::array<uint32_t, 8>& nibbles, NibbleOrder& order) {
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t n = nibbles[i] % none;
      (i % 2 ? order.high : order.low) |= (n / 2 + n % 2 * 4) << 4 * (i / 2);
    }
  };
  plan.pack_nibbles = plan.unpack_nibbles = {stay, 0, 0};
  take(from, plan.pack_nibbles);
  take(to, plan.unpack_nibbles);
  return true;
}

class Words {
 public:
  Words(const Bits& bits, int64_t unit_bits, BaseBits bases, BlockPlan& plan) : bases_(bases), plan_(plan) {
    plan.pack = {};
    plan.piece = 1;
    plan.is_by_nibbles = false;
    for (size_t t = 0; t < bits.size(); t += 32)
      words_.emplace_back(bits.begin() + int64_t(t), bits.begin() + int64_t(std::min(t + 32, bits.size())));
    const bool has_high = std::any_of(bits.begin(), bits.end(), [](int64_t bit) { return bit % 8 >= 4; });
    if (bases.nibbles && has_high) refuse_layout();
    find_read(bits, size_t(unit_bits));
    if (!bases.nibbles && are_alike(words_))
      take_alike();
    else
      take_shared();
  }

 private:
  /// Of the copies of a bit, the first unit's last is read.
  void find_read(const Bits& bits, size_t unit_bits) {
    std::vector<bool> read(bits.size());
    for (size_t t = 0; t < bits.size(); ++t) {
      size_t best = size_t(std::find(bits.begin(), bits.end(), bits[t]) - bits.begin());
      for (size_t u = best; u < bits.size() && unit_bits > 0 && u / unit_bits == best / unit_bits; ++u)
        if (bits[u] == bits[t]) best = u;
      read[t] = best == t;
      plan_.is_repeated |= best != t;
    }
    for (size_t t = 0; t < bits.size(); t += 32)
      read_.emplace_back(read.begin() + int64_t(t), read.begin() + int64_t(std::min(t + 32, bits.size())));
  }

  void take_alike() {
    const Lanes lanes = in_one_plane(words_[0], bases_.bytes);
    const std::vector<int64_t> first = bytes_of(words_[0]);
    plan_.form = PlanForm::words;
    plan_.lanes = int(first.size());
    plan_.piece = 4;
    bool in_a_row = words_.size() == 4;
    for (size_t q = 0; q < words_.size(); ++q) {
      const std::vector<int64_t> bytes = bytes_of(words_[q]);
      Lanes here;
      here.fill(-1);
      for (size_t lane = 0; lane < first.size(); ++lane) {
        const auto nth = size_t(std::find(first.begin(), first.end(), lanes[lane]) - first.begin());
        here[lane] = bytes[nth];
        plan_.offset[q][lane] = uint32_t(bytes[nth]);
      }
      plan_.piece = std::min(plan_.piece, piece_of(here, bases_.bytes));
      in_a_row &= plan_.offset[q][0] == plan_.offset[0][0] + 4 * q;
    }
    if (plan_.piece == 4 && in_a_row && (plan_.offset[0][0] | bases_.bytes) % 16 == 0) plan_.piece = 16;
    const TurnList turns = turns_of(words_[0], lanes, read_[0]);
    plan_.is_by_nibbles = turns.size() > 3 && !plan_.is_repeated && words_[0].size() == 32 && first.size() == 4 &&
                          find_nibbles(words_[0], lanes, plan_);
    const size_t alone = std::min<size_t>(turns.size(), BlockPlan::word_lists - 1);
    for (size_t t = 0; t < alone; ++t) add_list({turns[t]}, plan_.pack);
    if (alone < turns.size()) add_list({turns.begin() + int64_t(alone), turns.end()}, plan_.pack);
  }

  void take_shared() {
    plan_.form = PlanForm::shared_words;
    for (size_t q = 0; q < words_.size(); ++q) {
      const std::vector<int64_t> bytes = bytes_of(words_[q]);
      if (bytes.size() > 8) refuse_layout();
      const Lanes lanes = spread(words_[q]);
      for (size_t lane = 0; lane < lanes.size(); ++lane)
        plan_.offset[q][lane] = uint32_t(lanes[lane] < 0 ? bytes[0] : lanes[lane]);
      add_list(turns_of(words_[q], lanes, read_[q]), plan_.pack);
    }
  }

  const BaseBits bases_;
  BlockPlan& plan_;
  std::vector<Bits> words_;
  std::vector<std::vector<bool>> read_;
};

}  // namespace

Turn& turn_of(TurnList& list, uint32_t by) {
  for (Turn& turn : list)
    if (turn.by == by) return turn;
  return list.emplace_back(Turn{0, 0, by});
}

void add_list(const TurnList& list, Turns& to) {
  const int number = to.lists++;
  if (list.empty()) return;
  const uint64_t bit = uint64_t(1) << number;
  to.first[number] = list[0];
  to.filled |= bit;
  if (list.size() == 1) return;
  to.second[number] = list[1];
  to.seconds |= bit;
  if (list.size() == 2) return;
  if (to.rest_count + int(list.size()) > Turns::most_rest) refuse_layout();
  to.longer |= bit;
  for (size_t t = 2; t < list.size(); ++t) {
    to.rest[to.rest_count] = list[t];
    to.rest[to.rest_count++].by |= t + 1 < list.size() ? Turn::more : 0;
  }
}

void find_words(const std::vector<int64_t>& bits, int64_t unit_bits, BaseBits bases, BlockPlan& plan) {
  Words(bits, unit_bits, bases, plan);
}

}  // namespace mxfp4
