// SPDX-License-Identifier: Apache-2.0

// Tests calls of the C ABI at the end of a thread, in destructors of thread_local objects and of POSIX thread keys. In
// the main thread, calls are also made in atexit() functions and in destructors of static objects. The job has one
// rank, so the result equals the input. The test is a separate program that reports failures by its exit code.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.h"

namespace {

constexpr int kElements = 2;

ronda_status Reduce(const char* name, float* data, std::int64_t count) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = {name, RONDA_FLOAT32, 1, &count};
  args.input = args.output = data;
  return ronda_allreduce(&args);
}

void Fail(const char* where, const char* what) {
  std::fprintf(stderr, "%s: %s\n", where, what);
  std::_Exit(1);
}

// Allocates memory before the call. If this thread's earlier calls freed memory that Ronda still uses, the caller gets
// the same memory here.
void Check(const char* where) {
  std::vector<std::unique_ptr<float[]>> memory;
  for (const int count : {2, 4, 8, 16, 32, 64}) {
    memory.push_back(std::make_unique<float[]>(count));
    std::fill_n(memory.back().get(), count, 1.0F);
  }
  const ronda_status status = Reduce(where, memory[0].get(), kElements);
  if (status != RONDA_OK) Fail(where, ronda_last_error());
  int elements = 2;
  for (const std::unique_ptr<float[]>& each : memory) {
    if (std::any_of(each.get(), each.get() + elements, [](float value) { return value != 1; })) {
      Fail(where, "memory of the caller's has changed");
    }
    elements *= 2;
  }
  float number = 0;
  if (Reduce(nullptr, &number, -1) == RONDA_OK) Fail(where, "a tensor of -1 elements was accepted");
  if (std::strstr(ronda_last_error(), "-1") == nullptr) Fail(where, "the error is not that of the last call");
}

struct ChecksAtItsEnd {
  explicit ChecksAtItsEnd(const char* place) : where(place) {}
  ~ChecksAtItsEnd() { Check(where); }
  const char* where;
};

void CheckThread() {
  thread_local const ChecksAtItsEnd before("a thread_local object from before the first call");
  pthread_key_t key = 0;
  if (pthread_key_create(&key, [](void*) { Check("a thread key"); }) != 0) Fail("a thread key", "there is none");
  pthread_setspecific(key, &key);
  Check("a thread");
  thread_local const ChecksAtItsEnd after("a thread_local object");
}

const ChecksAtItsEnd static_object("a static object");

}  // namespace

int main() {
  std::atexit([] { Check("atexit()"); });
  if (ronda_init(nullptr) != RONDA_OK) Fail("ronda_init", ronda_last_error());
  std::thread(CheckThread).join();
  thread_local const ChecksAtItsEnd object("a thread_local object of the main thread");
  Check("main");
  return 0;
}
