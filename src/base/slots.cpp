#include "src/base/slots.h"

namespace mxfp4 {

namespace {

thread_local Slots* slots_of_this_thread = nullptr;  // null: the thread has no slots

}  // namespace

void Slots::take() {
  std::unique_lock lock(mutex_);
  is_free_.wait(lock, [&] { return free_ > 0; });
  --free_;
  slots_of_this_thread = this;
}

void Slots::leave() {
  {
    const std::lock_guard lock(mutex_);
    ++free_;
  }
  is_free_.notify_one();
  slots_of_this_thread = nullptr;
}

Slots::Taken::Taken(Slots& slots) { slots.take(); }

Slots::Taken::~Taken() { slots_of_this_thread->leave(); }

Slots::Left::Left() : left_(slots_of_this_thread) {
  if (left_) left_->leave();
}

Slots::Left::~Left() {
  if (left_) left_->take();
}

}  // namespace mxfp4
