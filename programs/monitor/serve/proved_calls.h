// SPDX-License-Identifier: Apache-2.0

// Provides MonitorService on a network, for callers that prove that they know the job's secret. A monitor uses
// MonitorService to call the monitors of other hosts.
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

// Passes calls on to a MonitorService, but only calls that read data. Each call needs a new proof. Each nonce is valid
// for one call, so a party that has seen a proof cannot use it again.
//
// Thread-safe if the service is thread-safe.
class ProvedCalls {
 public:
  // `service` must outlive this object. REQUIRES: `secret` is not empty.
  ProvedCalls(const MonitorService* service, std::string secret) : service_(service), secret_(std::move(secret)) {}

  // Answers a call like MonitorService::Answer. Also answers calls of Challenge, which return a nonce.
  // Errors: UNAUTHENTICATED if the call has no proof, or the proof's nonce is unknown or used. PERMISSION_DENIED if the
  // proof is wrong, or the call changes anything. Also the service's errors.
  absl::StatusOr<std::string> Answer(absl::string_view method, absl::string_view request);

 private:
  // The largest number of nonces that have been given out and not used. This limit bounds the memory that callers
  // without the secret can use.
  static constexpr size_t kNonces = 1024;

  absl::StatusOr<std::string> Challenge();

  const MonitorService* const service_;
  const std::string secret_;
  Mutex mu_;
  NonceLedger nonces_ ABSL_GUARDED_BY(mu_){kNonces};
};

// Sends an encoded request to the gRPC method `method`, and returns the encoded answer.
using MonitorCaller =
    absl::FunctionRef<absl::StatusOr<std::string>(const std::string& method, const std::string& request)>;

// Asks another host's monitor for its ranks of the job whose name begins with `job`. The other monitor proves with its
// answer that it knows the secret.
// Errors: the errors of `call` and DecodeHostReport; PERMISSION_DENIED if the answer comes from a monitor without the
// secret.
absl::StatusOr<OtherHost> AskForRanks(const std::string& job, const std::string& secret, MonitorCaller call);

// Asks another host's monitor repeatedly, on its own thread, until the object is destroyed.
class OtherMonitor {
 public:
  struct Options {
    Endpoint endpoint;
    std::string plugin;  // as in MessageServer
    std::string job;     // the beginning of its name
    std::string secret;
    absl::Duration period = absl::Milliseconds(250);
  };
  // Errors: the errors of MessageChannel::Connect.
  static absl::StatusOr<std::unique_ptr<OtherMonitor>> Start(Options options);
  ~OtherMonitor();
  OtherMonitor(const OtherMonitor&) = delete;
  OtherMonitor& operator=(const OtherMonitor&) = delete;

  // Returns the last answer. Returns an error if no answer has come yet, or if the other monitor has refused the
  // question.
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
