// Runs more threads than slots, so that a thread that waits for a disk leaves its slot to another. Two slots:
//
//   thread 1  | pack | hash |···· waits ····| pack |        At most two threads work. Thread 3 began its
//   thread 2  | hash |· waits ·| pack | hash |              read while 1 and 2 worked, and it works
//   thread 3  |·· waits ··| pack | hash |·· waits ··|       while they wait.
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
