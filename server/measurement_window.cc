#include "server/measurement_window.h"

#include <algorithm>
#include <utility>

namespace tenon::server {

void ProjectionWindow::SetWidth(int width) {
  std::lock_guard lock(mutex_);
  width_ = std::max(1, width);
}

bool ProjectionWindow::AskRoom() {
  std::lock_guard lock(mutex_);
  room_wanted_ = held_ >= width_;
  return !room_wanted_;
}

void ProjectionWindow::Add(const ItemPointer& item) {
  std::lock_guard lock(mutex_);
  if (abandoned_) return;
  slots_.push_back({item});
  ++held_;
  max_held_ = std::max(max_held_, held_);
  item->in_flight = held_;
}

void ProjectionWindow::Complete(const ItemPointer& item,
                                const std::function<void(const ItemPointer&)>& deliver) {
  std::unique_lock lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.item == item) slot.complete = true;
  }
  while (!delivering_ && !slots_.empty() && slots_.front().complete) {
    const ItemPointer next = std::move(slots_.front().item);
    slots_.pop_front();
    delivering_ = true;
    lock.unlock();
    deliver(next);
    lock.lock();
    delivering_ = false;
  }
}

void ProjectionWindow::Withdraw(const ItemPointer& item) {
  std::lock_guard lock(mutex_);
  held_ -=
      static_cast<int>(std::erase_if(slots_, [&](const Slot& slot) { return slot.item == item; }));
}

bool ProjectionWindow::Release() {
  std::lock_guard lock(mutex_);
  --held_;
  return held_ < width_ && std::exchange(room_wanted_, false);
}

void ProjectionWindow::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  slots_.clear();
}

bool ProjectionWindow::drained() const {
  std::lock_guard lock(mutex_);
  return slots_.empty() && !delivering_;
}

int ProjectionWindow::max_held() const {
  std::lock_guard lock(mutex_);
  return max_held_;
}

}  // namespace tenon::server
