#include "kernels/pack/cpu/lane_moves.h"

#include <algorithm>
#include <map>
#include <queue>
#include <stdexcept>
#include <utility>

namespace mxfp4 {

int move_lanes(Ids& lanes, LaneMove move) {
  const auto lane = lanes.begin() + move.lane;
  if (move.code == Route::zip) std::rotate(lane, lanes.end() - 1, lanes.end());
  if (move.code == Route::unzip) std::rotate(lane, lane + 1, lanes.end());
  return std::exchange(move.code == Route::unzip ? lanes.back() : *lane, move.id);
}

namespace {

constexpr int each = 4;  // the cost of an exchange or a zip; a sort of NEON reads a table with half of the units

/// Lanes, in which -1 is a bit that is neither wanted nor of a plane, and whether planes are mixed.
struct State {
  Ids lanes;
  bool mixed;
  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(const LaneTask& task, const VectorForm& form)
      : task_(task), wanted_(task.wanted), planes_(task.planes), form_(form) {}

  std::vector<LaneMove> run() {
    reach({task_.lanes, !task_.mixes}, {}, 0, -1);
    while (true) {
      if (queue_.empty()) throw std::logic_error("no moves lead to the lanes of a layout");
      const int now = queue_.top().second;
      queue_.pop();
      const State state = nodes_[size_t(now)].state;
      if (state.mixed && state.lanes == wanted_) return path(now);
      if (std::exchange(nodes_[size_t(now)].done, true)) continue;
      expand(state, now);
    }
  }

 private:
  struct Node {
    State state;
    LaneMove move;
    int cost, before;
    bool done = false;
  };

  Ids missing(const State& s) const {
    Ids out;
    for (const int id : wanted_)
      if (!has(s.lanes, id)) out.push_back(id);
    return out;
  }

  void reach(State state, LaneMove move, int cost, int before) {
    for (int& id : state.lanes)
      if (!has(wanted_, id) && (state.mixed || !has(planes_, id))) id = -1;
    const auto [at, fresh] = seen_.try_emplace(state, int(nodes_.size()));
    if (!fresh && nodes_[size_t(at->second)].cost <= cost) return;
    if (fresh) nodes_.push_back({state, {}, 0, 0});
    Node& node = nodes_[size_t(at->second)];
    node = {std::move(state), move, cost, before};
    queue_.emplace(-cost - each * int(missing(node.state).size()), at->second);
  }

  void move(const State& s, LaneMove move, int now) {
    State next = s;
    move_lanes(next.lanes, move);
    reach(std::move(next), move, nodes_[size_t(now)].cost + each, now);
  }

  void expand(const State& s, int now) {
    Ids ids = missing(s);
    const bool complete = ids.empty();
    const auto is_plane = [&](int id) { return has(planes_, id); };
    const auto plane = std::find_if(s.lanes.begin(), s.lanes.end(), is_plane);
    const bool must_leave = !s.mixed && plane != s.lanes.end();
    size_t in_slots = ids.size();
    if (!s.mixed) {
      std::erase_if(ids, is_plane);
      if (!must_leave) return reach({s.lanes, true}, {Route::mix_1, 0, 0}, nodes_[size_t(now)].cost, now);
      for (const int id : planes_) in_slots += !has(s.lanes, id) && !has(wanted_, id);
    }
    if ((must_leave || complete) && in_slots < task_.slots) ids.push_back(-1);
    if (s.mixed && complete && form_.sorts() && s.lanes[0] == wanted_[0])
      reach({wanted_, true}, {Route::sort, 0, 0}, nodes_[size_t(now)].cost + sort_cost(s.lanes), now);
    for (const int id : ids) {
      if (form_.zips)
        for (int lane = 0; lane <= form_.lane_bits; ++lane)
          for (const int code : {0, int(Route::zip), int(Route::unzip)})
            if (code == 0 || (lane > 0 && lane < form_.lane_bits)) move(s, {code, lane, id}, now);
      if (form_.zips) continue;
      const auto misplaced = std::mismatch(s.lanes.begin(), s.lanes.end(), wanted_.begin()).first;
      const auto own = s.lanes.begin() + (std::find(wanted_.begin(), wanted_.end(), id) - wanted_.begin());
      const auto free = std::find_if(s.lanes.begin() + 1, s.lanes.end(), [&](int at) { return !has(wanted_, at); });
      const auto at = must_leave ? plane : id < 0 ? misplaced : own;
      move(s, {0, int(at - s.lanes.begin()), id}, now);
      if (form_.sorts() && !must_leave && id >= 0 && free != s.lanes.end() && id != wanted_[0])
        move(s, {0, int(free - s.lanes.begin()), id}, now);
    }
  }

  int sort_cost(const Ids& lanes) const {
    if (form_.swaps() && lanes.back() != wanted_.back()) return 3 * (each - 1);
    return form_.zips ? each + 1 : each - 1;
  }

  std::vector<LaneMove> path(int now) const {
    std::vector<LaneMove> moves;
    for (; nodes_[size_t(now)].before >= 0; now = nodes_[size_t(now)].before)
      moves.insert(moves.begin(), nodes_[size_t(now)].move);
    return moves;
  }

  const LaneTask& task_;
  const Ids &wanted_, &planes_;
  const VectorForm form_;
  std::vector<Node> nodes_;
  std::map<State, int> seen_;
  std::priority_queue<std::pair<int, int>> queue_;  // the least cost with what must follow at least
};

}  // namespace

std::vector<LaneMove> find_moves(const LaneTask& task, const VectorForm& form) { return Search(task, form).run(); }

}  // namespace mxfp4
