#include "client/cpp/contract_upload.h"

#include "backends/core/error.h"
#include "client/cpp/wire.h"

namespace tenon::client {

absl::StatusOr<ContractUpload> ContractUpload::Create(const ContractRequest& request,
                                                      SharedPlacement* placement) {
  ContractUpload upload(request, placement);
  TENON_ASSIGN_OR_RETURN(*upload.header_.mutable_header(), BuildContractHeader(request, true));
  if (placement != nullptr) {
    upload.header_.mutable_header()->set_shared_pool(placement->token());
    if (const auto region = placement->PlaceResult(0)) {
      *upload.header_.mutable_header()->mutable_result()->mutable_shared() = *region;
    }
  }
  upload.PlaceOperands();
  return upload;
}

void ContractUpload::PlaceOperands() {
  v1::ContractHeader* header = header_.mutable_header();
  auto* wire = header->has_network() ? header->mutable_network()->mutable_operands()
                                     : header->mutable_einsum()->mutable_operands();
  // Names, shapes and path take their part of the message first.
  int64_t room = kInlineBudgetBytes - static_cast<int64_t>(header->ByteSizeLong());
  for (size_t i = 0; i < request_->operands.size(); ++i) {
    const Operand& operand = request_->operands[i];
    const auto bytes = static_cast<int64_t>(operand.tensor.bytes.size());
    if (operand.varying) {
      varying_.push_back(static_cast<int>(i));
    } else if (!operand.handle.empty() || bytes == 0) {
      continue;
    } else if (bytes < kInlineLimitBytes && bytes <= room) {
      (*wire)[static_cast<int>(i)].set_inline_data(std::string(AsText(operand.tensor.bytes)));
      room -= bytes;
    } else if (auto region = placement_ == nullptr ? std::nullopt
                                                   : placement_->Place(SharedPlacement::kWholeCall,
                                                                       operand.tensor.bytes)) {
      *(*wire)[static_cast<int>(i)].mutable_shared() = *region;
    } else {
      deferred_.push_back(static_cast<int>(i));
    }
  }
}

bool ContractUpload::SendSmall(int64_t set, const std::vector<Part>& parts, const Send& send) {
  v1::ContractRequest frame;
  int64_t used = 0;
  for (const Part& part : parts) {
    const auto bytes = static_cast<int64_t>(part.view->bytes.size());
    if (bytes == 0 || bytes >= kInlineLimitBytes) continue;
    if (used + bytes > kInlineBudgetBytes) {
      if (!send(frame)) return false;
      frame.Clear();
      used = 0;
    }
    frame.mutable_operand_set()->set_set(set);
    v1::OperandData* data = frame.mutable_operand_set()->add_operands();
    data->set_operand(part.operand);
    data->set_data(std::string(AsText(part.view->bytes)));
    used += bytes;
  }
  return used == 0 || send(frame);
}

// Operands of the set that lie in shared memory, and where its result shall; that of set 0 stands
// in the header. Before anything else of the set, which may be complete then.
bool ContractUpload::SendRegions(int64_t set, const std::vector<Part>& parts, const Send& send) {
  if (placement_ == nullptr) return true;
  v1::ContractRequest frame;
  v1::OperandSet* regions = frame.mutable_operand_set();
  regions->set_set(set);
  const auto result = set == 0 ? std::nullopt : placement_->PlaceResult(set);
  if (result.has_value()) *regions->mutable_result() = *result;
  for (const Part& part : parts) {
    if (!part.region.has_value()) continue;
    v1::OperandData* data = regions->add_operands();
    data->set_operand(part.operand);
    *data->mutable_shared() = *part.region;
  }
  return (regions->operands_size() == 0 && !regions->has_result()) || send(frame);
}

bool ContractUpload::SendParts(int64_t set, const std::vector<Part>& parts, int32_t chunk_bytes,
                               const Send& send) {
  if (!SendRegions(set, parts, send) || !SendSmall(set, parts, send)) return false;
  v1::ContractRequest frame;
  for (const Part& part : parts) {
    if (part.region || static_cast<int64_t>(part.view->bytes.size()) < kInlineLimitBytes) continue;
    v1::TensorChunk* chunk = frame.mutable_chunk();
    chunk->set_set(set);
    chunk->set_operand(part.operand);
    if (!SendChunks(part.view->bytes, chunk_bytes, request_->result.checksums(), chunk,
                    [&] { return send(frame); })) {
      return false;
    }
  }
  return true;
}

absl::Status ContractUpload::CheckSet(int64_t set, const std::vector<TensorView>& views) const {
  const std::string field = StrCat("sets[", set, "]");
  if (views.size() != varying_.size()) {
    return Error(Reason::kShapeMismatch, StrCat("set ", set, " has ", views.size(),
                                                " operands instead of ", varying_.size()))
        .Field(field);
  }
  for (size_t v = 0; v < views.size(); ++v) {
    const std::string path = StrCat(field, ".operands[", varying_[v], "]");
    TENON_RETURN_IF_ERROR(CheckView(views[v], path));
    if (views[v].spec == request_->operands[static_cast<size_t>(varying_[v])].tensor.spec) continue;
    return Error(Reason::kShapeMismatch, StrCat("operand ", varying_[v], " of set ", set,
                                                " is not of the announced type and shape"))
        .Field(path);
  }
  return absl::OkStatus();
}

absl::Status ContractUpload::SendSets(int32_t chunk_bytes, const Send& send) {
  for (int64_t set = 0;; ++set) {
    std::vector<TensorView> views;
    has_asked_for_sets_ = true;
    TENON_ASSIGN_OR_RETURN(const bool more, request_->next_set(set, &views));
    if (!more) return absl::OkStatus();
    TENON_RETURN_IF_ERROR(CheckSet(set, views));
    std::vector<Part> parts;
    size_t bytes = 0;
    for (size_t v = 0; v < views.size(); ++v) {
      parts.push_back({varying_[v], &views[v]});
      if (placement_ != nullptr) parts.back().region = placement_->Place(set, views[v].bytes);
      bytes += views[v].bytes.size();
    }
    if (bytes == 0) {
      // Nothing else would tell the server that there is such a set.
      v1::ContractRequest frame;
      frame.mutable_operand_set()->set_set(set);
      if (!send(frame)) return absl::OkStatus();
    }
    if (!SendParts(set, parts, chunk_bytes, send)) return absl::OkStatus();
  }
}

absl::Status ContractUpload::SendRest(int32_t chunk_bytes, const Send& send) {
  std::vector<Part> parts;
  for (const int operand : deferred_) {
    parts.push_back({operand, &request_->operands[static_cast<size_t>(operand)].tensor});
  }
  if (!SendParts(0, parts, chunk_bytes, send)) return absl::OkStatus();
  return varying_.empty() ? absl::OkStatus() : SendSets(chunk_bytes, send);
}

}  // namespace tenon::client
