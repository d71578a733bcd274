/* SPDX-License-Identifier: Apache-2.0 */

/* Lets Ronda's threads enter the interpreter, and lets calls wait while the interpreter checks for signals. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/python/ronda/_native.h"

/* -- Ronda's threads --
 *
 * A thread that requests the GIL while the interpreter is finalizing never gets it; instead, the thread or the whole
 * process ends. For this reason an atexit function, which runs before that, closes the interpreter to Ronda's
 * threads. */

static pthread_mutex_t interpreter_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t interpreter_left = PTHREAD_COND_INITIALIZER;
static int interpreter_closed; /* the mutex guards interpreter_closed and threads_inside */
static int threads_inside;     /* each thread is counted as often as its callbacks are nested */

static __thread int callbacks_on_this_thread;

int EnterInterpreter(PyGILState_STATE* state) {
  pthread_mutex_lock(&interpreter_mutex);
  const int open = !interpreter_closed;
  threads_inside += open;
  pthread_mutex_unlock(&interpreter_mutex);
  if (!open) return 0;
  *state = PyGILState_Ensure();
  ++callbacks_on_this_thread;
  return 1;
}

void LeaveInterpreter(PyGILState_STATE state) {
  --callbacks_on_this_thread;
  PyGILState_Release(state);
  pthread_mutex_lock(&interpreter_mutex);
  --threads_inside;
  pthread_cond_signal(&interpreter_left);
  pthread_mutex_unlock(&interpreter_mutex);
}

int InCallback(void) { return callbacks_on_this_thread > 0; }

static void AfterSlice(struct timespec* moment) {
  clock_gettime(CLOCK_REALTIME, moment); /* the clock of pthread_cond_timedwait */
  moment->tv_nsec += (long)(RONDA_SLICE_S * 1e9);
  moment->tv_sec += moment->tv_nsec / 1000000000;
  moment->tv_nsec %= 1000000000;
}

PyObject* CloseInterpreter(PyObject* module, PyObject* none) {
  for (;;) {
    int inside = 0;
    struct timespec until;
    AfterSlice(&until);
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&interpreter_mutex);
    interpreter_closed = 1;
    if (threads_inside > 0) pthread_cond_timedwait(&interpreter_left, &interpreter_mutex, &until);
    inside = threads_inside;
    pthread_mutex_unlock(&interpreter_mutex);
    Py_END_ALLOW_THREADS;
    if (inside == 0) Py_RETURN_NONE;
    if (PyErr_CheckSignals() != 0) return NULL;
  }
}

static int is_forked;

int IsForked(void) { return is_forked; }

/* Called in a child of fork(). The child does not have the parent's threads, so no thread is in the interpreter or
 * holds the mutex. */
static void OpenInChild(void) {
  is_forked = 1;
  pthread_mutex_init(&interpreter_mutex, NULL);
  pthread_cond_init(&interpreter_left, NULL);
  threads_inside = callbacks_on_this_thread; /* a thread inside may have called fork() */
}

int PrepareInterpreter(void) {
  if (pthread_atfork(NULL, NULL, OpenInChild) == 0) return 0;
  PyErr_NoMemory();
  return -1;
}

/* -- Waiting -- */

double MonotonicSeconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int WaitInSlices(Wait wait, const void* what, double timeout_s, ronda_status* status) {
  const double end = timeout_s < 0 ? 0 : MonotonicSeconds() + timeout_s;
  for (;;) {
    double slice = RONDA_SLICE_S;
    if (!(timeout_s < 0)) {
      const double left = end - MonotonicSeconds();
      if (!(left > 0)) return 0; /* also if the timeout is not a number */
      if (left < slice) slice = left;
    }
    int done = 0;
    Py_BEGIN_ALLOW_THREADS;
    *status = wait(what, slice, &done);
    Py_END_ALLOW_THREADS;
    if (done || *status != RONDA_OK) return 1;
    if (PyErr_CheckSignals() != 0) return -1;
  }
}

static ronda_status SynchronizeFor(const void* handle, double timeout_s, int* done) {
  return ronda_synchronize_for(*(const ronda_handle*)handle, timeout_s, done);
}

int Await(ronda_handle handle, double timeout_s, ronda_status* status) {
  int done = 0;
  *status = ronda_poll(handle, &done);
  if (*status == RONDA_OK && !done) return WaitInSlices(SynchronizeFor, &handle, timeout_s, status);
  if (done) *status = ronda_synchronize(handle); /* without releasing the GIL */
  return 1;
}

/* A call on a separate thread. The waiting thread frees the Call. If a signal has interrupted the wait, the Call is
 * never freed. */
typedef struct Call {
  ronda_status (*body)(void* context);
  void* context;
  ronda_context rank;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int has_ended; /* this and the next two are guarded by the mutex */
  ronda_status status;
  char* text; /* of the error; NULL if memory for it was exhausted */
} Call;

static void* RunCall(void* argument) {
  Call* const call = argument;
  ronda_status status = call->rank == 0 ? RONDA_OK : ronda_make_current(call->rank);
  if (status == RONDA_OK) status = call->body(call->context);
  char* const text = status == RONDA_OK ? NULL : strdup(ronda_last_error());
  pthread_mutex_lock(&call->mutex);
  call->status = status;
  call->text = text;
  call->has_ended = 1;
  pthread_cond_signal(&call->ended);
  pthread_mutex_unlock(&call->mutex);
  return NULL;
}

/* Waits for at most one slice. Returns whether the call has ended. */
static int HasEnded(Call* call) {
  struct timespec until;
  AfterSlice(&until);
  pthread_mutex_lock(&call->mutex);
  while (!call->has_ended) {
    if (pthread_cond_timedwait(&call->ended, &call->mutex, &until) == ETIMEDOUT) break;
  }
  const int has_ended = call->has_ended;
  pthread_mutex_unlock(&call->mutex);
  return has_ended;
}

static void FreeCall(Call* call) {
  pthread_mutex_destroy(&call->mutex);
  pthread_cond_destroy(&call->ended);
  free(call->text);
  free(call);
}

static PyObject* RunHere(ronda_status (*body)(void* context), void* context) {
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = body(context);
  Py_END_ALLOW_THREADS;
  return NoneOrRaise(status);
}

PyObject* RunInterruptibly(ronda_status (*body)(void* context), void* context, int* abandoned) {
  *abandoned = 0;
  /* In a callback the body runs on this thread. On another thread, Ronda could not detect that the body waits for this
   * very callback. */
  if (InCallback()) return RunHere(body, context);
  Call* const call = calloc(1, sizeof(Call));
  if (call == NULL) return PyErr_NoMemory();
  call->body = body;
  call->context = context;
  call->rank = ronda_current();
  pthread_mutex_init(&call->mutex, NULL);
  pthread_cond_init(&call->ended, NULL);
  pthread_t thread;
  if (pthread_create(&thread, NULL, RunCall, call) != 0) {
    FreeCall(call);
    return RunHere(body, context);
  }
  for (int has_ended = 0; !has_ended;) {
    Py_BEGIN_ALLOW_THREADS;
    has_ended = HasEnded(call);
    Py_END_ALLOW_THREADS;
    if (has_ended || PyErr_CheckSignals() == 0) continue;
    pthread_detach(thread);
    *abandoned = 1;
    return NULL;
  }
  pthread_join(thread, NULL);
  PyObject* const result = call->status == RONDA_OK
                               ? NoneOrRaise(RONDA_OK)
                               : Raise(call->status, call->text == NULL ? "out of memory" : call->text);
  FreeCall(call);
  return result;
}
