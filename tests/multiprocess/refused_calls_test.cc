// SPDX-License-Identifier: Apache-2.0

// Tests jobs in which the kernel refuses a system call of the launcher and its ranks, as containers' security profiles
// do. The job must still work, or soon end with an error that names the call.
#include <sys/syscall.h>

#include <cerrno>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

struct Call {
  std::string name;
  long number;
  // A part of rondarun's last line, or "" if the job works.
  std::string says;
  // Like `says`, for a job that shows a table of the running ranks, and binds each rank to a core.
  std::string says_with_cores;
  // Like `says`, for a job over TCP.
  std::string says_over_tcp = says;
};

const std::vector<Call>& Calls() {
  static const auto* const calls = new std::vector<Call>{
      {"close_range", SYS_close_range, "", ""},
      {"copy_file_range", SYS_copy_file_range, "", ""},
      {"fallocate", SYS_fallocate, "", ""},
      {"get_mempolicy", SYS_get_mempolicy, "", ""},
      {"getcpu", SYS_getcpu, "", ""},
      {"io_uring_setup", SYS_io_uring_setup, "", ""},
      {"madvise", SYS_madvise, "", ""},
      {"mbind", SYS_mbind, "", ""},
      {"membarrier", SYS_membarrier, "", ""},
      {"memfd_create", SYS_memfd_create, "", ""},
      {"mlock", SYS_mlock, "", ""},
      {"perf_event_open", SYS_perf_event_open, "", ""},
      {"process_vm_readv", SYS_process_vm_readv, "", ""},
      {"ptrace", SYS_ptrace, "", ""},
      {"rseq", SYS_rseq, "", ""},
      {"set_mempolicy", SYS_set_mempolicy, "", ""},
      {"statx", SYS_statx, "", ""},
      {"sysinfo", SYS_sysinfo, "", ""},
      {"uname", SYS_uname, "", ""},
      {"sched_getaffinity", SYS_sched_getaffinity, "", "sched_getaffinity is refused"},
      {"pidfd_open", SYS_pidfd_open, "the system refuses pidfd_open", "the system refuses pidfd_open"},
      {"poll", SYS_poll, "", ""},
      {"ppoll", SYS_ppoll, "the system refuses ppoll (", "the system refuses ppoll ("},
      {"kill", SYS_kill, "the system refuses kill", "the system refuses kill"},
      {"waitid", SYS_waitid, "the system refuses waitid", "the system refuses waitid"},
      {"prctl", SYS_prctl, "the system refuses prctl(", "the system refuses prctl("},
      {"dup2", SYS_dup2, "the system refuses dup2", "the system refuses dup2"},
      {"pipe2", SYS_pipe2, "(pipe2)", "(pipe2)"},
      {"signalfd4", SYS_signalfd4, "(signalfd)", "(signalfd)"},
      {"getrandom", SYS_getrandom, "(getrandom)", "(getrandom)"},
      {"setpgid", SYS_setpgid, "the system refuses setpgid", "the system refuses setpgid"},
      {"eventfd2", SYS_eventfd2, "", ""},
      {"epoll_create1", SYS_epoll_create1, "", ""},
      {"epoll_ctl", SYS_epoll_ctl, "", "", "the system refuses epoll_ctl ("},
      {"epoll_wait", SYS_epoll_wait, "", "", "the system refuses epoll_wait ("},
      {"accept4", SYS_accept4, "", "", "the system refuses accept4 ("},
      {"getpeername", SYS_getpeername, "", "", "the system refuses getpeername ("},
      {"getsockopt", SYS_getsockopt, "", "", "the system refuses getsockopt ("},
      {"setsockopt", SYS_setsockopt, "", "", "the system refuses setsockopt ("},
      {"sendmsg", SYS_sendmsg, "", "", "the system refuses sendmsg ("},
      {"recvmsg", SYS_recvmsg, "", "", "the system refuses recvmsg ("},
  };
  return *calls;
}

class RefusedCallsTest : public ::testing::TestWithParam<std::tuple<Call, int>> {
 protected:
  void Expect(const std::vector<std::string>& options, const std::vector<std::string>& environment,
              const std::string& says) const {
    std::vector<std::string> command = {"-np", "2"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"./tests/multiprocess/launcher_surroundings_test", "rank"});
    LauncherRun run(command, {.environment = environment, .in_child = [] {
                                const auto& [call, error_number] = GetParam();
                                testing::RefuseCall(call.number, error_number);
                              }});
    const int code = run.Finish();
    if (says.empty()) {
      EXPECT_EQ(code, 0) << run.err();
      EXPECT_THAT(run.out(), HasSubstr("[1]<stdout>: the sum is 2\n"));
    } else {
      EXPECT_NE(code, 0);
      EXPECT_THAT(run.LastLine(), HasSubstr(says));
    }
  }
};

TEST_P(RefusedCallsTest, AJobWorksOrNamesTheCall) {
  const Call& call = std::get<0>(GetParam());
  Expect({}, {}, call.says);
  Expect({}, {"RONDA_BACKEND=tcp", "RONDA_JOB_SECRET=x"}, call.says_over_tcp);
  Expect({"--summary", "--binding", "core"}, {}, call.says_with_cores);
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Call, int>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, std::get<1>(info.param) == EPERM ? "_EPERM" : "_ENOSYS");
}

INSTANTIATE_TEST_SUITE_P(Calls, RefusedCallsTest,
                         ::testing::Combine(::testing::ValuesIn(Calls()), ::testing::Values(EPERM, ENOSYS)), NameOf);

}  // namespace
}  // namespace ronda
