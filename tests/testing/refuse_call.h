// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_REFUSE_CALL_H_
#define RONDA_TESTS_TESTING_REFUSE_CALL_H_

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace ronda::testing {

// Makes the kernel refuse the system call `call` (SYS_...) with `error_number`, in this process and in its future
// children, as the security profiles of containers do. If the kernel does not allow that, exits with code 99.
inline void RefuseCall(long call, int error_number) {
  const auto number = static_cast<std::uint32_t>(call);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    _exit(99);
  }
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_REFUSE_CALL_H_
