// SPDX-License-Identifier: Apache-2.0

// Tests how a monitor asks another host's monitor over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "programs/monitor/serve/proved_calls.h"
#include "runtime/net/message_streams.h"
#include "runtime/net/served_call.h"
#include "tests/programs/monitor/serve/snapshots.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr char kPlugin[] = "runtime/net/libronda_hosts.so";
constexpr char kSecret[] = "f00d";

// A call that the other host's monitor answers.
class CallOfMonitor final : public ServedCall {
 public:
  CallOfMonitor(ProvedCalls* calls, absl::string_view method, MessageStream stream)
      : ServedCall(std::move(stream)), calls_(calls), method_(method) {}

 private:
  void Serve(absl::string_view request) override { Answer(calls_->Answer(method_, request)); }

  ProvedCalls* const calls_;
  const std::string method_;
};

// Another job's monitor, with another secret, replaces the monitor that has answered before.
TEST(OtherMonitorTest, RefusalReplacesAnEarlierAnswer) {
  const std::vector<JobSnapshot> jobs = {testing::MakeJob("alpha", 2)};
  const MonitorService service({.snapshots = [&] { return jobs; }, .ask = nullptr, .end = nullptr});
  ProvedCalls own(&service, kSecret), other(&service, "beef");
  std::atomic<ProvedCalls*> calls = &own;
  std::atomic<int> refused = 0;
  const auto server = MessageServer::Start({.plugin = kPlugin,
                                            .endpoint = *ResolveEndpoint("127.0.0.1", 0),
                                            .grace = absl::ZeroDuration(),
                                            .accept = [&](absl::string_view method, MessageStream stream) {
                                              ProvedCalls* const answering = calls;
                                              if (answering == &other && method == kMonitorChallenge) ++refused;
                                              stream.Open(new CallOfMonitor(answering, method, stream));
                                            }});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto monitor = OtherMonitor::Start({.endpoint = *ResolveEndpoint("127.0.0.1", (*server)->port()),
                                            .plugin = kPlugin,
                                            .job = "alpha",
                                            .secret = kSecret,
                                            .period = absl::Milliseconds(1)});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  while (!(*monitor)->heard().ok()) std::this_thread::yield();
  calls = &other;
  while (refused < 2) std::this_thread::yield();  // the first refusal is recorded before the second call
  const absl::Status status = (*monitor)->heard().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the proof is not of this job's secret"));
}

}  // namespace
}  // namespace ronda
