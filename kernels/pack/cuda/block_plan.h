// How a layout is packed in blocks on a GPU: tables that the host makes from the layout's modes.
//
// Every mode is split into digits, of prime counts if the mode is even. A block is the bytes that some of the digits
// count; the other digits count the blocks. In shared memory a block is a list of slots:
//
//     slot     consecutive bytes of one row of the storage; slots have one length, and places of their own
//     group    16, 4 or 1 consecutive stored bytes; the same places, from a base, feed each group
//     word     four bytes of a group (or its only one)
//     lane     a source byte of a word, at an offset from the group's base
//     plane    four lanes in a register, which are rotated and masked at once (Turn)
//
//     rows of the storage      shared memory               registers, per word          packed matrix
//     row 5  ########    --->  slot 0  ########     --->   lanes d c b a, a plane  --->  groups of words
//     row 9  ########          slot 1  ########            turned into a word
//
// NVIDIA's CuTe and Triton's linear layouts describe a permutation of addresses by the same digits (CuTe: shapes and
// strides; Triton: powers of two and XOR). Here digits may have any factor and address bits, and XOR has no place.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/hd.h"
#include "kernels/layouts/layouts.h"
#include "kernels/layouts/matrix.h"

namespace mxfp4 {

/// A block's begin in the storage's rows and in the packed matrix, and the first of its slots.
struct alignas(16) PlanBlock {
  uint32_t row = 0, byte = 0, to = 0, slot = 0;
};

/// Row and byte from the block's first, and the place in shared memory.
struct PlanSlot {
  uint32_t row = 0, byte = 0, place = 0;
};

/// The first of the groups that a thread makes at once: its place in the packed matrix from the block's first, and its
/// base, to which lanes' offsets are added.
struct alignas(8) PlanGroup {
  static constexpr uint32_t swapped = 1u << 31;  // in `base`: the two nibbles of each lane change places
  uint32_t to = 0, base = 0;
};

/// Bits that move together: those of a plane or lane, rotated right, in the mask.
struct Turn {
  static constexpr uint32_t high_plane = 32, more = 1u << 31;  // in `by`: of the second plane; the list goes on
  uint32_t mask = 0;
  uint32_t read = 0;  // of a word: the bits that unpacking takes, all but those of copies
  uint32_t by = 0;    // 0 to 31, and flags
};

/// Lists of turns. A list's first and second turn have places that the compiler knows, so that no instruction loads
/// them.
struct Turns {
  static constexpr int most_lists = 64, most_rest = 128;
  Turn first[most_lists] = {}, second[most_lists] = {};  // mask 0: there is none
  Turn rest[most_rest] = {};                             // list after list
  uint64_t filled = 0, seconds = 0, longer = 0;  // a bit for each list that has a first turn, a second one, a rest
  int lists = 0, rest_count = 0;
};

/// A word's nibbles in another order, but for bits that stay. Four bits of `low` and of `high` for each byte of the
/// result: the numbers of its two nibbles. Nibbles 0 to 3 are the low ones of bytes 0 to 3, 4 to 7 the high ones.
struct NibbleOrder {
  uint32_t stay = 0, low = 0, high = 0;
};

/// How a thread makes groups: by words, each with lanes of its own or shared with other words, or in a planar form. A
/// planar form takes four neighbouring bytes of a slot at once, which go to four words, so that a turn serves all of
/// them. These words are of one group (in_group), the same word of four groups (across), or words 0 and 2, or 1 and 3,
/// of two groups (pairs).
enum class PlanForm { words, shared_words, in_group, across, pairs };

/// A kernel parameter: the pointers are the device's.
struct BlockPlan {
  static constexpr int most_threads = 256, most_slots = most_threads, most_together = 4;
  static constexpr int word_lists = 8;  // form words
  const PlanBlock* blocks = nullptr;
  const PlanSlot* slots = nullptr;
  const PlanGroup* groups = nullptr;
  const uint32_t* copy = nullptr;  // places of a group's copies, from its first place
  uint32_t block_count = 0, slot_count = 0, copies = 1;
  uint32_t group_count = 0;                 // of the table: each stands for `together` groups
  uint32_t threads = most_threads;          // of a block: no fewer than slots
  uint32_t cols = 0;                        // bytes of a slot
  uint32_t across = 0, across_inverse = 0;  // chunks of 16 bytes of a slot
  uint32_t shared_bytes = 0;
  uint32_t link_room = 0;    // bytes behind a slot's bytes that may be overwritten
  uint32_t column_bits = 0;  // the OR of the columns at which slots begin, and their length
  PlanForm form = PlanForm::words;
  int group = 16;              // bytes
  int piece = 1;               // form words: lanes that are loaded at once, 1, 2, 4 or 16
  int lanes = 4;               // form words: lanes of a word that are used
  bool is_repeated = false;    // groups have copies of bits within them
  bool is_by_nibbles = false;  // form words: words are made by nibble orders in the place of turns
  NibbleOrder pack_nibbles, unpack_nibbles;
  uint32_t offset[4][8] = {};         // of each lane, by word; planar: by unit, the words that share lanes
  int together = 1;                   // groups of a thread, at most most_together; planar: 4
  uint32_t part[most_together] = {};  // their places in the packed matrix, from the first
  uint32_t base[most_together] = {};  // by words: their bases, from the first
  bool is_exchanged = false;          // planar: groups 0 and 1, and 2 and 3, are neighbours; all warps are full
  Turns pack;    // form words: eight lists, of one turn but for the last, for every word; shared words: one for each
                 // word; planar: for each stored byte of a unit and each lane
  Turns unpack;  // planar: for each lane and each stored byte

  bool is_planar() const { return form > PlanForm::shared_words; }
  /// Slot and chunk of a chunk's number, which is below 2^16.
  MXFP4_HD uint32_t slot_of(uint32_t chunk) const {
    return across == 1 ? chunk : uint32_t(uint64_t(chunk) * across_inverse >> 32);
  }
};

/// A plan, and the tables that it points to.
struct HostPlan {
  BlockPlan plan;
  std::vector<PlanBlock> blocks;
  std::vector<PlanSlot> slots;
  std::vector<PlanGroup> groups;
  std::vector<uint32_t> copy;
  HostPlan() = default;
  HostPlan(const HostPlan&) = delete;
};

/// m: gives views, row order and strides, by which slots are sorted. Throws DeviceError if the GPU has no form for the
/// layout: groups of whole bytes that are fed alike, and pads that repeat no values.
void make_plan(const Layout& layout, Shape storage, const MutableMatrix& m, HostPlan& to);

}  // namespace mxfp4
