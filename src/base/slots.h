// Runs more threads than slots, so that a thread that waits for a disk leaves its slot to another.
//
//   thread 1  | pack | hash |···· waits ····| pack |        Two slots: at most two threads work. The third's read was
//   thread 2  | hash |· waits ·| pack | hash |              begun while the first two worked, and it works while they
//   thread 3  |·· waits ··| pack | hash |·· waits ··|       wait.
#pragma once

#include <condition_variable>
#include <mutex>

namespace mxfp4 {

class Slots {
 public:
  explicit Slots(int count) : free_(count) {}

  /// This thread has a slot from construction, which waits for a free one, until destruction.
  class Taken {
   public:
    explicit Taken(Slots& slots);
    Taken(const Taken&) = delete;
    ~Taken();
  };
  /// Frees this thread's slot, if it has one, from construction until destruction, which waits for a free slot.
  class Left {
   public:
    Left();
    Left(const Left&) = delete;
    ~Left();

   private:
    Slots* const left_;
  };

 private:
  void take();
  void leave();

  std::mutex mutex_;
  std::condition_variable is_free_;
  int free_;
};

}  // namespace mxfp4
