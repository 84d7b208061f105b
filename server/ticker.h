// Calls a function again and again while a request is at work.

#ifndef TENON_SERVER_TICKER_H_
#define TENON_SERVER_TICKER_H_

#include <functional>
#include <memory>

namespace tenon::server {

// On a thread of gRPC's, one call at a time, never sooner than the interval after the last one.
class Ticker {
 public:
  // `seconds` > 0 between the calls; below a hundredth counts as that.
  Ticker(double seconds, std::function<void()> tick);
  // `tick` is not running any more, nor called again, when this returns.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_TICKER_H_
