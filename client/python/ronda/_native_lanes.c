/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of ronda._native for lanes, which carry out operations on GPUs in the order of the calls. */
#include <stdlib.h>

#include "client/python/ronda/_native.h"

/* These arguments are on the heap, because the call may go on after a signal has ended the wait in Python. */
typedef struct LaneArguments {
  ronda_process_set process_set;
  void* buffer;
  const char* message;
  ronda_dtype dtype;
  ronda_reduce_op op;
  double factor;
  int open;
} LaneArguments;

static const Field kOpenFields[] = {FIELD(LaneArguments, kSet, process_set), FIELD(LaneArguments, kAddress, buffer)};
static const Field kReduceFields[] = {FIELD(LaneArguments, kSet, process_set), FIELD(LaneArguments, kInt, dtype),
                                      FIELD(LaneArguments, kInt, op), FIELD(LaneArguments, kReal, factor)};
static const Field kRefuseFields[] = {FIELD(LaneArguments, kSet, process_set), FIELD(LaneArguments, kText, message)};

static ronda_status DoOpen(void* arguments) {
  LaneArguments* const lane = arguments;
  return ronda_lane_open(lane->process_set, lane->buffer, &lane->open);
}

static ronda_status DoClose(void* arguments) { return ronda_lane_close(((LaneArguments*)arguments)->process_set); }

/* Runs `body` with the arguments of a function. Returns whether the lane is open, or None after DoClose. Returns
 * NULL with an exception. */
static PyObject* RunWithLane(const Signature* signature, ronda_status (*body)(void* arguments), PyObject* const* values,
                             Py_ssize_t count) {
  LaneArguments* const arguments = calloc(1, sizeof(*arguments));
  if (arguments == NULL) return PyErr_NoMemory();
  int abandoned = 0;
  PyObject* result = NULL;
  if (Read(signature, values, count, arguments, NULL) == 0) {
    PyObject* const none = RunInterruptibly(body, arguments, &abandoned);
    result = none == NULL || body == DoClose ? Py_XNewRef(none) : PyBool_FromLong(arguments->open);
    Py_XDECREF(none);
  }
  if (!abandoned) free(arguments);
  return result;
}

static PyObject* LaneOpen(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("lane_open", kOpenFields, 2);
  return RunWithLane(&kSignature, DoOpen, values, count);
}

static PyObject* LaneClose(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"lane_close", kOpenFields, 1, 1};
  return RunWithLane(&kSignature, DoClose, values, count);
}

static PyObject* LaneRetire(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"lane_retire", kOpenFields, 1, 1};
  LaneArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  return NoneOrRaise(ronda_lane_retire(arguments.process_set));
}

static PyObject* LaneReduces(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("lane_reduces", kReduceFields, 4);
  LaneArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  int reduces = 0;
  const ronda_status status =
      ronda_lane_reduces(arguments.process_set, arguments.dtype, arguments.op, arguments.factor, &reduces);
  return status == RONDA_OK ? PyBool_FromLong(reduces) : NoneOrRaise(status);
}

static PyObject* LaneRefuse(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("lane_refuse", kRefuseFields, 2);
  LaneArguments arguments = {0};
  Reader reader;
  BeginReading(&reader);
  PyObject* result = NULL;
  if (Read(&kSignature, values, count, &arguments, &reader) == 0) {
    ronda_status status = RONDA_OK;
    /* Releases the GIL, because this call may wait for a call of another thread that is connecting the ranks. */
    Py_BEGIN_ALLOW_THREADS;
    status = ronda_lane_refuse(arguments.process_set, arguments.message);
    Py_END_ALLOW_THREADS;
    result = NoneOrRaise(status);
  }
  EndReading(&reader);
  return result;
}

PyMethodDef lane_methods[] = {
    FAST("lane_open", LaneOpen),       FAST("lane_close", LaneClose),   FAST("lane_retire", LaneRetire),
    FAST("lane_reduces", LaneReduces), FAST("lane_refuse", LaneRefuse), {NULL, NULL, 0, NULL},
};
