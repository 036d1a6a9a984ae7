// The search for the cheapest moves of bits between lanes and slots (route.h).
#include <map>
#include <queue>
#include <stdexcept>
#include <utility>

#include "kernels/pack/cpu/route_parts.h"

namespace mxfp4 {

int move_lanes(Ids& lanes, LaneMove move) {
  const auto lane = lanes.begin() + move.lane;
  if (move.code == Route::zip) std::rotate(lane, lanes.end() - 1, lanes.end());
  if (move.code == Route::unzip) std::rotate(lane, lane + 1, lanes.end());
  return std::exchange(move.code == Route::unzip ? lanes.back() : *lane, move.id);
}

namespace {

/// Lanes, in which -1 is a bit that is neither wanted nor of a plane, and whether planes are mixed.
struct State {
  Ids lanes;
  bool mixed;
  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(const LaneTask& task, const VectorForm& form) : task_(task), wanted_(task.wanted), form_(form) {}

  std::vector<LaneMove> run() {
    reach({task_.lanes, !task_.mixes}, {}, 0, nullptr);
    while (!queue_.empty()) {
      auto& [state, node] = *std::get<2>(queue_.top());
      queue_.pop();
      if (state.mixed && state.lanes == wanted_) return path(&node);
      if (!std::exchange(node.done, true)) expand(state, node);
    }
    throw std::logic_error("no moves lead to the lanes of a layout");
  }

 private:
  struct Node {
    LaneMove move;
    int cost;
    const Node* before;
    int number;
    bool done = false;
  };
  using Reached = std::map<State, Node>::value_type;

  Ids missing(const State& s) const {
    Ids out;
    std::copy_if(wanted_.begin(), wanted_.end(), std::back_inserter(out), [&](int id) { return !has(s.lanes, id); });
    return out;
  }

  void reach(State state, LaneMove move, int cost, const Node* before) {
    for (int& id : state.lanes)
      if (!has(wanted_, id) && (state.mixed || !has(task_.planes, id))) id = -1;
    const auto [at, fresh] = nodes_.try_emplace(std::move(state), Node{move, cost, before, int(nodes_.size())});
    if (!fresh && at->second.cost <= cost) return;
    at->second = {move, cost, before, at->second.number};
    queue_.emplace(-cost - (form_.zip ? form_.zip : form_.exchange) * int(missing(at->first).size()), at->second.number,
                   &*at);
  }

  void expand(const State& s, const Node& now) {
    const auto move = [&](LaneMove m) {
      State next = s;
      move_lanes(next.lanes, m);
      reach(std::move(next), m,
            now.cost + (m.code == 0            ? form_.exchange
                        : m.code == Route::zip ? form_.zip
                                               : form_.unzip),
            &now);
    };
    Ids ids = missing(s);
    const bool complete = ids.empty();
    const auto is_plane = [&](int id) { return has(task_.planes, id); };
    const auto plane = std::find_if(s.lanes.begin(), s.lanes.end(), is_plane);
    const bool must_leave = !s.mixed && plane != s.lanes.end();
    if (!s.mixed && !must_leave) return reach({s.lanes, true}, {Route::mix_1, 0, 0}, now.cost, &now);
    size_t in_slots = ids.size();
    if (must_leave) {
      std::erase_if(ids, is_plane);
      for (const int id : task_.planes) in_slots += !has(s.lanes, id) && !has(wanted_, id);
    }
    if ((must_leave || complete) && in_slots < task_.slots) ids.push_back(-1);
    if (s.mixed && complete && form_.sorts() && s.lanes[0] == wanted_[0])
      reach({wanted_, true}, {Route::sort, 0, 0}, now.cost + sort_cost(s.lanes), &now);
    for (const int id : ids) {
      if (form_.zip) {
        for (int lane = 0; lane <= form_.lane_bits; ++lane) {
          const bool inner = lane > 0 && lane < form_.lane_bits;
          move({0, lane, id});
          if (inner) move({Route::zip, lane, id});
          if (inner && form_.unzip) move({Route::unzip, lane, id});
        }
        continue;
      }
      const auto place = [&](auto at) { return int(at - s.lanes.begin()); };
      const auto misplaced = std::mismatch(s.lanes.begin(), s.lanes.end(), wanted_.begin()).first;
      const auto own = s.lanes.begin() + (std::find(wanted_.begin(), wanted_.end(), id) - wanted_.begin());
      const auto free = std::find_if(s.lanes.begin() + 1, s.lanes.end(), [&](int at) { return !has(wanted_, at); });
      move({0, place(must_leave ? plane : id < 0 ? misplaced : own), id});
      if (form_.sorts() && !must_leave && id >= 0 && free != s.lanes.end() && id != wanted_[0])
        move({0, place(free), id});
    }
  }

  int sort_cost(const Ids& lanes) const {
    if (form_.swaps() && lanes.back() != wanted_.back()) return 9;
    return form_.zip ? 5 : 3;  // NEON's reads a table with half of the units
  }

  static std::vector<LaneMove> path(const Node* node) {
    std::vector<LaneMove> moves;
    for (; node->before; node = node->before) moves.insert(moves.begin(), node->move);
    return moves;
  }

  const LaneTask& task_;
  const Ids& wanted_;
  const VectorForm form_;
  std::map<State, Node> nodes_;
  std::priority_queue<std::tuple<int, int, Reached*>> queue_;  // first the least cost with what must follow at least
};

}  // namespace

std::vector<LaneMove> find_moves(const LaneTask& task, const VectorForm& form) { return Search(task, form).run(); }

}  // namespace mxfp4
