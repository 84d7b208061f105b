#include "server/warm_memory.h"

namespace tenon::server {

WarmMemory::WarmMemory(BlockPool* pool, int64_t limit_bytes) : pool_(pool) {
  pool_->SetLimit(limit_bytes);
  thread_ = std::thread([this] { Run(); });
}

WarmMemory::~WarmMemory() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  thread_.join();
  pool_->SetLimit(0);
}

void WarmMemory::Run() {
  constexpr std::chrono::seconds kInterval{1};
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kInterval, [this] { return stopped_; })) pool_->TrimIdle(kIdle);
}

}  // namespace tenon::server
