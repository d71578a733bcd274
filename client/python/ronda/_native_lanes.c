/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of ronda._native for lanes, which run operations on GPUs in call order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/ronda/_native.h"

/* The arguments of a lane's function are on the heap, because the call may continue after a signal has interrupted the
 * wait in Python. */
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

/* A block of the memory that all ranks have registered together. */
typedef struct BlockArguments {
  size_t bytes;
  void* block;
  void* stream;
} BlockArguments;

static const Field kAllocateFields[] = {FIELD(BlockArguments, kSize, bytes), FIELD(BlockArguments, kAddress, stream)};
static const Field kFreeFields[] = {FIELD(BlockArguments, kAddress, block), FIELD(BlockArguments, kAddress, stream)};

typedef struct ExchangeArguments {
  ronda_lane_exchange_args args;
  int op;
  int dtype;
  const int64_t* sends; /* address and number of elements of each part, one after the other */
  int send_numbers;
  const int64_t* receives; /* as sends */
  int receive_numbers;
} ExchangeArguments;

static const Field kExchangeFields[] = {
    FIELD(ExchangeArguments, kInt, op),
    FIELD(ExchangeArguments, kInt, dtype),
    ARRAY(ExchangeArguments, kNumbers, sends, send_numbers),
    ARRAY(ExchangeArguments, kNumbers, receives, receive_numbers),
    {"keep", kKeep, 0, 0},
    FIELD(ExchangeArguments, kInt, args.root),
    FIELD(ExchangeArguments, kSet, args.call.process_set),
    FIELD(ExchangeArguments, kReal, args.call.deadline_s),
    FIELD(ExchangeArguments, kStream, args.call),
};

static ronda_status DoOpen(void* arguments) {
  LaneArguments* const lane = arguments;
  return ronda_lane_open(lane->process_set, lane->buffer, &lane->open);
}

static ronda_status DoClose(void* arguments) { return ronda_lane_close(((LaneArguments*)arguments)->process_set); }

/* Runs `body` with the arguments of a function. Returns whether the lane is open, or None after DoClose. Returns NULL
 * with an exception set. */
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
    /* Releases the GIL, because this call may have to wait until another thread's call has connected the ranks. */
    Py_BEGIN_ALLOW_THREADS;
    status = ronda_lane_refuse(arguments.process_set, arguments.message);
    Py_END_ALLOW_THREADS;
    result = NoneOrRaise(status);
  }
  EndReading(&reader);
  return result;
}

static PyObject* LaneMemory(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"lane_memory", kOpenFields, 1, 1};
  LaneArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  size_t bytes = 0;
  const ronda_status status = ronda_lane_memory(arguments.process_set, &bytes);
  return status == RONDA_OK ? PyLong_FromSize_t(bytes) : NoneOrRaise(status);
}

static PyObject* GradientAllocate(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("gradient_allocate", kAllocateFields, 2);
  BlockArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  void* block = NULL;
  const ronda_status status = ronda_gradient_allocate(arguments.bytes, arguments.stream, &block);
  return status == RONDA_OK ? PyLong_FromVoidPtr(block) : NoneOrRaise(status);
}

static PyObject* LaneFree(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("lane_free", kFreeFields, 2);
  BlockArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  return NoneOrRaise(ronda_lane_free(arguments.block, arguments.stream));
}

static PyObject* LaneAllocator(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"lane_allocator", kOpenFields, 1, 1};
  LaneArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  ronda_lane_allocate_function allocate = NULL;
  ronda_lane_free_function release = NULL;
  const ronda_status status = ronda_lane_allocator(arguments.process_set, &allocate, &release);
  if (status != RONDA_OK) return NoneOrRaise(status);
  return Py_BuildValue("KK", (unsigned long long)(uintptr_t)allocate, (unsigned long long)(uintptr_t)release);
}

static PyObject* LastError(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"last_error", kOpenFields, 0, 0};
  LaneArguments arguments = {0};
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  return PyUnicode_DecodeUTF8(ronda_last_error(), (Py_ssize_t)strlen(ronda_last_error()), "replace");
}

/* Returns an array of the parts, in memory that `reader` owns, or NULL with an exception set. */
static const ronda_lane_part* PartsOf(Reader* reader, const int64_t* numbers, int count) {
  ronda_lane_part* const parts = TakeMemory(reader, (size_t)(count / 2 + 1) * sizeof(*parts));
  if (parts == NULL) return NULL;
  for (int i = 0; i < count / 2; ++i) {
    parts[i].data = (void*)(uintptr_t)numbers[2 * i];
    parts[i].count = numbers[2 * i + 1];
  }
  return parts;
}

/* Reads the arguments. Returns 0, or -1 with an exception set. */
static int ReadExchange(PyObject* const* values, Py_ssize_t count, ExchangeArguments* into, Reader* reader) {
  static const Signature kSignature = SIGNATURE("lane_exchange_async", kExchangeFields, 9);
  if (Read(&kSignature, values, count, into, reader) != 0) return -1;
  if (into->send_numbers != into->receive_numbers || into->send_numbers % 2 != 0) {
    PyErr_Format(PyExc_ValueError,
                 "lane_exchange_async: sends has %d numbers and receives %d: pass an address and a count for each rank",
                 into->send_numbers, into->receive_numbers);
    return -1;
  }
  into->args.op = (ronda_lane_exchange)into->op;
  into->args.dtype = (ronda_dtype)into->dtype;
  into->args.part_count = into->send_numbers / 2;
  into->args.sends = PartsOf(reader, into->sends, into->send_numbers);
  into->args.receives = PartsOf(reader, into->receives, into->receive_numbers);
  return into->args.sends == NULL || into->args.receives == NULL ? -1 : 0;
}

static ronda_status SubmitExchange(const void* arguments, ronda_handle* handle) {
  return ronda_lane_exchange_async(arguments, handle);
}

static PyObject* LaneExchange(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  ExchangeArguments arguments = {.args = RONDA_LANE_EXCHANGE_ARGS_INIT};
  Reader reader;
  BeginReading(&reader);
  PyObject* result = NULL;
  if (ReadExchange(values, count, &arguments, &reader) == 0) {
    result = SubmitWithoutGil(SubmitExchange, &arguments.args, reader.keep);
  }
  EndReading(&reader);
  return result;
}

PyMethodDef lane_methods[] = {
    FAST("lane_open", LaneOpen),     FAST("lane_close", LaneClose),
    FAST("lane_retire", LaneRetire), FAST("lane_reduces", LaneReduces),
    FAST("lane_refuse", LaneRefuse), FAST("lane_exchange_async", LaneExchange),
    FAST("lane_memory", LaneMemory), FAST("lane_allocator", LaneAllocator),
    FAST("last_error", LastError),   FAST("gradient_allocate", GradientAllocate),
    FAST("lane_free", LaneFree),     {NULL, NULL, 0, NULL},
};
