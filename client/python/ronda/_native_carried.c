/* SPDX-License-Identifier: Apache-2.0 */

/* If Ronda fails in a graph, the framework raises an error of its own class, with the text of Ronda's error. This
 * file keeps Ronda's last error, so that the program can get it; see _carried_errors.py. */
#include <pthread.h>
#include <stdio.h>

#include "client/python/ronda/_native.h"

/* Codes of absl::Status, which the frameworks share. */
enum { kInvalidArgument = 3, kDeadlineExceeded = 4, kExhausted = 8, kInternal = 13, kUnavailable = 14 };

/* The framework's code and the class in errors.py for each ronda_status, starting with RONDA_ERROR_INVALID_ARGUMENT
 * (1). */
static const struct {
  int code;
  const char* name;
} kErrors[] = {
    {kInvalidArgument, "InvalidArgumentError"},
    {kInvalidArgument, "NotInitializedError"},
    {kInvalidArgument, "AlreadyInitializedError"},
    {kInvalidArgument, "DuplicateNameError"},
    {kInvalidArgument, "MismatchError"},
    {kDeadlineExceeded, "DeadlineError"},
    {kUnavailable, "PeerFailedError"},
    {kExhausted, "OutOfMemoryError"},
    {kInternal, "InternalError"},
    {kUnavailable, "MembershipError"},
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static ronda_status last_status = RONDA_OK; /* guarded by mutex, as the text */
static char last_text[RONDA_ERROR_ROOM];

void RecordError(FirstError* error, ronda_status status, const char* text) {
  if (status == RONDA_OK || error->status != RONDA_OK) return;
  error->status = status;
  snprintf(error->text, sizeof(error->text), "%s", text);
}

void RecordStatus(FirstError* error, ronda_status status) { RecordError(error, status, ronda_last_error()); }

int CarryError(ronda_status status, const char* text, char* message, size_t room) {
  const size_t index = status >= 1 && status <= RONDA_ERROR_MEMBERSHIP ? status - 1 : RONDA_ERROR_INTERNAL - 1;
  snprintf(message, room, "%s: %s", kErrors[index].name, text);
  pthread_mutex_lock(&mutex);
  last_status = status;
  snprintf(last_text, sizeof(last_text), "%s", text);
  pthread_mutex_unlock(&mutex);
  return kErrors[index].code;
}

static PyObject* CarriedError(PyObject* module, PyObject* none) {
  char text[RONDA_ERROR_ROOM];
  pthread_mutex_lock(&mutex);
  const ronda_status status = last_status;
  snprintf(text, sizeof(text), "%s", last_text);
  pthread_mutex_unlock(&mutex);
  return status == RONDA_OK ? Py_NewRef(Py_None) : MakeError(status, text);
}

PyMethodDef carried_methods[] = {
    NONE("carried_error", CarriedError),
    {NULL, NULL, 0, NULL},
};
