#include "server/job_checkpoint.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

// Blocks wait for the next time of storing until they are as many; a larger one is stored at once.
constexpr int64_t kWaitingBytes = int64_t{8} << 20;
// Storing may take one part in so many of the time.
constexpr int kCostShare = 10;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

double JobCheckpoint::run_seconds() const {
  return run_.run_seconds + std::chrono::duration<double>(Clock::now() - begin_).count();
}

bool JobCheckpoint::IsComplete(int64_t block, int64_t next_group) const {
  return std::min((block + 1) * groups_.per_block, groups_.last) <= next_group;
}

// The first group of the node of this level that is occupied before `next_group`.
int64_t JobCheckpoint::FirstOf(int level, int64_t next_group) const {
  const int64_t block = next_group / groups_.per_block;
  const int64_t begin = std::max(block * groups_.per_block, groups_.first);
  return begin + ((next_group - begin) >> (level + 1) << (level + 1));
}

absl::StatusOr<int64_t> JobCheckpoint::StoredBytes() {
  TENON_ASSIGN_OR_RETURN(const auto levels, board_.store().Parts(run_.number, JobData::kLevel));
  TENON_ASSIGN_OR_RETURN(const auto blocks, board_.store().Parts(run_.number, JobData::kBlock));
  int64_t bytes = 0;
  levels_.clear();
  for (const auto& [part, size] : levels) {
    levels_[part.part] = {part.tag, size};
    bytes += size;
  }
  for (const auto& [part, size] : blocks) bytes += size;
  return bytes;
}

absl::StatusOr<schedule::ResumePoint> JobCheckpoint::Load() {
  schedule::ResumePoint resume;
  resume.next_group = run_.next_group;
  const auto read = [&](const JobPart& part, int64_t size) {
    std::vector<std::byte> bytes(static_cast<size_t>(size));
    const absl::Status status = board_.store().Read(run_.number, part.data, part.part, bytes);
    return status.ok() ? absl::StatusOr<std::vector<std::byte>>(std::move(bytes)) : status;
  };
  TENON_ASSIGN_OR_RETURN(const auto levels, board_.store().Parts(run_.number, JobData::kLevel));
  for (const auto& [part, size] : levels) {
    TENON_ASSIGN_OR_RETURN(auto bytes, read(part, size));
    resume.levels.push_back({static_cast<int>(part.part), part.exponent, std::move(bytes)});
  }
  TENON_ASSIGN_OR_RETURN(const auto blocks, board_.store().Parts(run_.number, JobData::kBlock));
  for (const auto& [part, size] : blocks) {
    // A large block is stored before the state that it belongs to.
    if (!IsComplete(part.part, run_.next_group)) continue;
    TENON_ASSIGN_OR_RETURN(auto bytes, read(part, size));
    resume.blocks.push_back({part.part, part.exponent, std::move(bytes)});
    block_bytes_ += size;
  }
  return resume;
}

absl::Status JobCheckpoint::BlockDone(int64_t block, int64_t exponent,
                                      std::span<const std::byte> data) {
  const JobPart part{JobData::kBlock, block, 0, exponent};
  const auto size = static_cast<int64_t>(data.size());
  if (size > kWaitingBytes) {
    block_bytes_ += size;
    return board_.store().Put(run_.number, part, AsText(data));
  }
  blocks_.push_back({part, std::string(AsText(data))});
  waiting_bytes_ += size;
  return absl::OkStatus();
}

absl::Status JobCheckpoint::Combined(const schedule::SumState& state) {
  const Clock::time_point now = Clock::now();
  const bool last = state.next_group >= groups_.last;  // the result itself is stored next
  const bool stopped = board_.stopped() && !last;
  const auto interval = interval_ == interval_.zero()
                            ? Clock::duration(0)
                            : std::max<Clock::duration>(interval_, kCostShare * last_cost_);
  const bool due = now - last_store_ >= interval && !last;
  if (!due && !stopped && waiting_bytes_ <= kWaitingBytes) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(Store(state));
  last_store_ = Clock::now();
  last_cost_ = last_store_ - now;
  return stopped ? JobsStopped() : absl::OkStatus();
}

absl::Status JobCheckpoint::Store(const schedule::SumState& state) {
  std::vector<JobStore::NewPart> parts;
  for (const Block& block : blocks_) parts.push_back({block.part, block.bytes});
  std::map<int64_t, Level> levels;
  int64_t level_bytes = 0;
  for (const schedule::SumState::Level& level : state.levels) {
    const Level node{FirstOf(level.level, state.next_group),
                     static_cast<int64_t>(level.data.size())};
    levels[level.level] = node;
    level_bytes += node.bytes;
    const auto known = levels_.find(level.level);
    if (known != levels_.end() && known->second.first == node.first) continue;
    parts.push_back(
        {{JobData::kLevel, level.level, node.first, level.exponent}, AsText(level.data)});
  }
  std::vector<int64_t> dropped;
  for (const auto& [level, node] : levels_) {
    if (!levels.contains(level)) dropped.push_back(level);
  }
  JobBoard::Progress progress;
  progress.next_group = state.next_group;
  progress.groups_done = state.next_group - groups_.first;
  progress.run_seconds = run_seconds();
  progress.sum_bytes = block_bytes_ + waiting_bytes_ + level_bytes;
  TENON_RETURN_IF_ERROR(board_.StoreCheckpoint(run_.number, progress, parts, dropped));
  block_bytes_ += std::exchange(waiting_bytes_, 0);
  blocks_.clear();
  levels_ = std::move(levels);
  return absl::OkStatus();
}

}  // namespace tenon::server
