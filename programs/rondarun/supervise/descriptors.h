// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_

namespace ronda {

// CloseAllOnExec() and CloseAllBut() use close_range(). The security profiles of older containers refuse this call, and
// Linux before 5.11 lacks it. In that case, the functions process the descriptors listed in /proc one by one. They
// allocate no memory, so they can be called between fork() and exec().

// Marks all descriptors from 3 on as close-on-exec.
void CloseAllOnExec();

// Closes all descriptors from 3 on except `kept`.
void CloseAllBut(int kept);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_
