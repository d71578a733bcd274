// SPDX-License-Identifier: Apache-2.0

// The C library's original functions, which virtual_calls.cc replaces.
#ifndef RONDA_TESTS_SIMULATION_REAL_CALLS_H_
#define RONDA_TESTS_SIMULATION_REAL_CALLS_H_

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

namespace ronda::simulation {

struct RealCalls {
  int (*create_thread)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  int (*join_thread)(pthread_t, void**);
  int (*detach_thread)(pthread_t);
  pthread_t (*current_thread)();
  int (*lock)(pthread_mutex_t*);
  int (*try_lock)(pthread_mutex_t*);
  int (*unlock)(pthread_mutex_t*);
  int (*wait)(pthread_cond_t*, pthread_mutex_t*);
  int (*wait_by_clock)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  int (*notify_one)(pthread_cond_t*);
  int (*notify_all)(pthread_cond_t*);
  int (*get_time)(clockid_t, timespec*);
  int (*sleep)(const timespec*, timespec*);
  int (*yield)();
  int (*poll)(pollfd*, nfds_t, const timespec*, const sigset_t*);
  ssize_t (*send_message)(int, const msghdr*, int);
  ssize_t (*receive_message)(int, msghdr*, int);
  ssize_t (*send)(int, const void*, size_t, int);
  ssize_t (*receive)(int, void*, size_t, int);
  int (*make_socket)(int, int, int);
  int (*accept)(int, sockaddr*, socklen_t*, int);
  int (*get_socket_name)(int, sockaddr*, socklen_t*);
  int (*open)(const char*, int, ...);
  int (*create_memory_file)(const char*, unsigned);
  int (*close)(int);
  int (*make_socket_pair)(int, int, int, int[2]);
  int (*bind)(int, const sockaddr*, socklen_t);
  int (*listen)(int, int);
  int (*connect)(int, const sockaddr*, socklen_t);
  int (*get_socket_option)(int, int, int, void*, socklen_t*);
  int (*kill)(pid_t, int);

  // Thread-safe.
  static const RealCalls& Get();
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_REAL_CALLS_H_
