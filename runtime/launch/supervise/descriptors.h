#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_DESCRIPTORS_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_DESCRIPTORS_H_

namespace ronda {

// By close_range(), or, where that is refused or not there (containers with older profiles, Linux before 5.11), one by
// one, as /proc lists them. Both are for a process between fork() and exec(): they allocate nothing.

// The descriptors from 3 on end with an exec.
void CloseAllOnExec();

// Closes the descriptors from 3 on but `kept`.
void CloseAllBut(int kept);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_DESCRIPTORS_H_
