// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_

namespace ronda {

// CloseAllOnExec() and CloseAllBut() use close_range(). The security profiles of older containers refuse close_range(),
// and Linux before 5.11 lacks it. Without close_range(), the functions handle one by one the descriptors that /proc
// lists. The functions allocate no memory, so a process can call them between fork() and exec().

// Marks all descriptors from 3 on, so that exec closes them.
void CloseAllOnExec();

// Closes all descriptors from 3 on except `kept`.
void CloseAllBut(int kept);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_DESCRIPTORS_H_
