#include "server/calibration_store.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "backends/core/file.h"
#include "nlohmann/json.hpp"
#include "server/logging.h"

namespace tenon::server {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::array<const char*, 4> kTypes = {"float32", "float64", "complex64", "complex128"};
constexpr std::pair<const char*, double tenon_step_times::*> kTimes[] = {
    {"step", &tenon_step_times::step},
    {"multiply_add", &tenon_step_times::multiply_add},
    {"near_read", &tenon_step_times::near_read},
    {"far_read", &tenon_step_times::far_read},
    {"near_write", &tenon_step_times::near_write},
    {"far_write", &tenon_step_times::far_write},
    {"near_elements", &tenon_step_times::near_elements},
};

// Whose figures a file has.
json IdentityOf(const plugin::Provider& provider) {
  const tenon_provider_info& info = provider.info();
  return {{"name", info.name}, {"description", info.description}, {"isa", info.isa}};
}

json ToJson(const tenon_calibration& calibration) {
  json times;
  for (size_t t = 0; t < kTypes.size(); ++t) {
    for (const auto& [name, member] : kTimes) times[kTypes[t]][name] = calibration.times[t].*member;
  }
  return {{"version", calibration.version},
          {"threads", calibration.threads},
          {"arithmetic_speedup", calibration.arithmetic_speedup},
          {"traffic_speedup", calibration.traffic_speedup},
          {"factors",
           std::vector<double>(calibration.factors, calibration.factors + calibration.n_factors)},
          {"step_times", std::move(times)}};
}

// Throws what the library does for a file of another form.
tenon_calibration FromJson(const json& object) {
  tenon_calibration calibration{};
  calibration.struct_size = sizeof(calibration);
  calibration.version = object.at("version");
  calibration.threads = object.at("threads");
  calibration.arithmetic_speedup = object.at("arithmetic_speedup");
  calibration.traffic_speedup = object.at("traffic_speedup");
  const std::vector<double> factors = object.at("factors");
  calibration.n_factors =
      static_cast<int32_t>(std::min<size_t>(factors.size(), TENON_CALIBRATION_FACTORS));
  std::copy_n(factors.begin(), calibration.n_factors, calibration.factors);
  for (size_t t = 0; t < kTypes.size(); ++t) {
    const json& times = object.at("step_times").at(kTypes[t]);
    for (const auto& [name, member] : kTimes) calibration.times[t].*member = times.at(name);
  }
  return calibration;
}

void LogNotUsed(const std::string& path, const std::string& why) {
  Log(LogLevel::kWarning, "calibration file not used", {{"path", path}, {"message", why}});
}

bool AreSame(const tenon_calibration& a, const tenon_calibration& b) {
  return ToJson(a) == ToJson(b);
}

}  // namespace

std::string DefaultCalibrationDir() {
  const auto folder = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): at the start
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const auto caches = folder("XDG_CACHE_HOME"); !caches.empty()) return caches / "tenon";
  if (const auto home = folder("HOME"); !home.empty()) return home / ".cache" / "tenon";
  return "";
}

void CalibrationStore::Calibrate(plugin::Provider& provider) const {
  if (!provider.CanCalibrate()) return;
  const auto start = std::chrono::steady_clock::now();
  const std::optional<tenon_calibration> known = Read(provider);
  absl::Status status = provider.Calibrate(known.has_value() ? &*known : nullptr);
  // What is wrong with a file is not the device's.
  if (!status.ok() && known.has_value()) status = provider.Calibrate(nullptr);
  const std::string name(provider.name());
  if (!status.ok()) {
    Log(LogLevel::kWarning, "no time model",
        {{"provider", name}, {"message", std::string(status.message())}});
    return;
  }
  const bool is_known = known.has_value() && AreSame(*known, *provider.calibration());
  if (known.has_value() && !is_known) {
    LogNotUsed(PathOf(provider), "its figures are of another version, or no device's");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  Log(LogLevel::kInfo, is_known ? "calibration read" : "calibration measured",
      {{"provider", name}, {"seconds", seconds.count()}});
  if (!is_known) Write(provider);
}

std::string CalibrationStore::PathOf(const plugin::Provider& provider) const {
  std::string name(provider.name());
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return (std::filesystem::path(folder_) / ("calibration_" + name + ".json")).string();
}

std::optional<tenon_calibration> CalibrationStore::Read(const plugin::Provider& provider) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(provider);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  std::string what;
  if (const auto bytes = ReadFile(path); !bytes.ok()) {
    what = std::string(bytes.status().message());
  } else {
    try {
      const json object = json::parse(AsText(*bytes));
      if (object.at("format") == kFormat && object.at("provider") == IdentityOf(provider)) {
        return FromJson(object);
      }
      what = "it is of another device or format";
    } catch (const json::exception& failure) {
      what = failure.what();
    }
  }
  LogNotUsed(path, what);
  return std::nullopt;
}

void CalibrationStore::Write(const plugin::Provider& provider) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);  // what is wrong, writing tells
  json object = ToJson(*provider.calibration());
  object["format"] = kFormat;
  object["provider"] = IdentityOf(provider);
  const std::string text = object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  const absl::Status status = WriteFile(PathOf(provider), {text});
  if (status.ok()) return;
  Log(LogLevel::kWarning, "calibration not kept",
      {{"path", PathOf(provider)}, {"message", std::string(status.message())}});
}

}  // namespace tenon::server
