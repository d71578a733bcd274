// SPDX-License-Identifier: Apache-2.0

// Provides MonitorService over a network to callers that prove that they know the job's secret. Monitors use it to call
// the monitors of other hosts.
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_PROVED_CALLS_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_PROVED_CALLS_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/serve/monitor_service.h"
#include "runtime/base/mutex.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/proof.h"

namespace ronda {

// The method that returns a nonce for a proof.
inline constexpr char kMonitorChallenge[] = "/ronda.v1.MonitorService/Challenge";

// Forwards calls to a MonitorService, but only calls that read data. Each call needs a new proof. Each nonce is valid
// for one call, so a party that has seen a proof cannot reuse it.
//
// Thread-safe if the service is thread-safe.
class ProvedCalls {
 public:
  // `service` must outlive this object. REQUIRES: `secret` is not empty.
  ProvedCalls(const MonitorService* service, std::string secret) : service_(service), secret_(std::move(secret)) {}

  // Answers a call like MonitorService::Answer, or a call of Challenge, which returns a nonce. Errors: UNAUTHENTICATED
  // if the call has no proof, or if the nonce of the proof is unknown or used. PERMISSION_DENIED if the proof is wrong,
  // or if the call would change anything. Also those of the service.
  absl::StatusOr<std::string> Answer(absl::string_view method, absl::string_view request);

 private:
  // The maximum number of nonces that have been issued but not used. It bounds the memory that callers without the
  // secret can use.
  static constexpr size_t kNonces = 1024;

  absl::StatusOr<std::string> Challenge();

  const MonitorService* const service_;
  const std::string secret_;
  Mutex mu_;
  NonceLedger nonces_ ABSL_GUARDED_BY(mu_){kNonces};
};

// Sends an encoded request to the gRPC method `method`, and returns the encoded reply.
using MonitorCaller =
    absl::FunctionRef<absl::StatusOr<std::string>(const std::string& method, const std::string& request)>;

// Asks another host's monitor for its ranks of the job whose id starts with `job`. With its reply, the other monitor
// proves that it knows the secret. Errors: those of `call` and DecodeHostReport; PERMISSION_DENIED if the reply comes
// from a monitor that does not know the secret.
absl::StatusOr<OtherHost> AskForRanks(const std::string& job, const std::string& secret, MonitorCaller call);

// Asks another host's monitor periodically, on its own thread, until the object is destroyed.
class OtherMonitor {
 public:
  struct Options {
    Endpoint endpoint;
    std::string plugin;  // as in MessageServer
    std::string job;     // the beginning of its name
    std::string secret;
    absl::Duration period = absl::Milliseconds(250);
  };
  // Errors: those of MessageChannel::Connect.
  static absl::StatusOr<std::unique_ptr<OtherMonitor>> Start(Options options);
  ~OtherMonitor();
  OtherMonitor(const OtherMonitor&) = delete;
  OtherMonitor& operator=(const OtherMonitor&) = delete;

  // Returns the last answer. Until the first answer, returns the last error. If the last call was refused, returns
  // PERMISSION_DENIED with the reason.
  absl::StatusOr<OtherHost> heard() const {
    MutexLock lock(&mu_);
    return heard_;
  }

 private:
  class Line;

  OtherMonitor(Options options, std::unique_ptr<Line> line);
  void Run();
  void RecordAnswer(absl::StatusOr<OtherHost> answer);

  const Options options_;
  const std::unique_ptr<Line> line_;
  std::vector<absl::Duration> round_trips_;  // of the thread
  mutable Mutex mu_;
  CondVar ends_;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<OtherHost> heard_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_PROVED_CALLS_H_
