// Keeps what providers measured at warm-up in files, so that the next start need not measure.

#ifndef TENON_SERVER_CALIBRATION_STORE_H_
#define TENON_SERVER_CALIBRATION_STORE_H_

#include <optional>
#include <string>

#include "backends/plugin/calibration.h"
#include "backends/plugin/provider.h"

namespace tenon::server {

// "tenon" in the user's folder of caches; empty where there is none.
std::string DefaultCalibrationDir();

// One file for each provider. A file that can't be read or written is logged and otherwise as if it
// were not there: a server starts without it.
class CalibrationStore {
 public:
  // An empty folder keeps nothing.
  explicit CalibrationStore(std::string folder) : folder_(std::move(folder)) {}

  // Measures the provider or gives it what is known of it, and keeps what it measured. Providers
  // without a time model are left alone.
  void Calibrate(plugin::Provider& provider) const;

 private:
  std::string PathOf(const plugin::Provider& provider) const;
  std::optional<tenon_calibration> Read(const plugin::Provider& provider) const;
  void Write(const plugin::Provider& provider) const;

  const std::string folder_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CALIBRATION_STORE_H_
