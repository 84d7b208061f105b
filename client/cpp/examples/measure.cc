#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tenon/client.h"

// Code and text, and what a server says beside them: a stable reason and its figures.
int Fail(const absl::Status& status) {
  std::cerr << status.ToString(absl::StatusToStringMode::kWithNoExtraData) << "\n";
  if (const auto error = tenon::client::ServerErrorOf(status)) {
    std::cerr << "reason: " << error->reason << "\n";
    for (const auto& [key, value] : error->metadata) std::cerr << key << ": " << value << "\n";
  }
  return 1;
}

int main() {
  const char* address = std::getenv("TENON_SERVER");
  auto client = tenon::client::Client::Connect(address ? address : "127.0.0.1:50551");
  auto helix = tenon::Tensor::Allocate({tenon::DType::kFloat64, {200, 3}});
  auto points = tenon::Tensor::Allocate({tenon::DType::kFloat64, {200, 2}});
  auto spec = tenon::client::ParseMeasureSpec("tnc:k=10");
  if (!client.ok() || !helix.ok() || !points.ok() || !spec.ok()) return 1;
  double* rows = helix->buffer.as<double>();
  for (int i = 0; i < 200; ++i) {
    const double angle = 12.0 * i / 199;
    rows[3 * i] = std::cos(angle);
    rows[3 * i + 1] = std::sin(angle);
    rows[3 * i + 2] = angle;
  }

  tenon::client::MeasureRequest request;
  request.specs = {*spec};
  request.dataset = *helix;
  // Makes one projection after the other, when the server has room for it.
  request.next_projection = [&, axis = 0](auto* projection) mutable -> absl::StatusOr<bool> {
    if (axis == 3) return false;
    for (int i = 0; i < 200; ++i) {
      points->buffer.as<double>()[2 * i] = rows[3 * i + axis];
      points->buffer.as<double>()[2 * i + 1] = rows[3 * i + (axis + 1) % 3];
    }
    projection->name = "axis " + std::to_string(axis++) + " and the next";
    projection->tensor = *points;
    return true;
  };
  auto stream = client->Measure(std::move(request));
  if (!stream.ok()) return Fail(stream.status());
  for (;;) {
    auto item = stream->Next();
    if (!item.ok()) return Fail(item.status());
    if (!item->has_value()) return 0;
    if (!(*item)->status.ok()) return Fail((*item)->status);
    const auto& values = (*item)->scores.specs(0).values();
    std::cout << (*item)->name << ": " << values.at("trustworthiness") << " "
              << values.at("continuity") << "\n";
  }
}
