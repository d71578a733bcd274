/* SPDX-License-Identifier: Apache-2.0 */

/* Operations and prepared groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/operation_lists.h"
#include "client/python/ronda/_native.h"
#include "client/python/ronda/_native_fields.h"

/* Describes how an operation's arguments are read, and which function submits it. */
typedef struct Operation {
  Signature signature;
  const void* defaults; /* a struct of arguments */
  size_t size;          /* its bytes */
  SubmitFunction submit;
} Operation;

typedef struct BarrierArguments {
  ronda_process_set process_set;
  double deadline_s;
} BarrierArguments;

typedef struct JoinArguments {
  ronda_process_set process_set;
  int absent;
} JoinArguments;

/* Room for the arguments of any operation. */
typedef union Arguments {
#define ARGUMENTS(op, OP) ronda_##op##_args op;
  RONDA_TENSOR_OPERATIONS(ARGUMENTS)
#undef ARGUMENTS
  ronda_object_args object;
  ronda_sparse_allreduce_args sparse;
  BarrierArguments barrier;
  JoinArguments join;
} Arguments;

/* -- Arguments by position, in the order of _native.pyi. tools/bindings generates _native_fields.h, which has the
 * arguments of operations on one tensor -- */

#define KEEP \
  { "keep", kKeep, 0, 0 }

static const Field kBroadcastObjectFields[] = {
    FIELD(ronda_object_args, kText, name),
    ARRAY(ronda_object_args, kBytes, data, size),
    FIELD(ronda_object_args, kInt, root),
    FIELD(ronda_object_args, kSet, call.process_set),
};
static const Field kAllgatherObjectFields[] = {
    FIELD(ronda_object_args, kText, name),
    ARRAY(ronda_object_args, kBytes, data, size),
    FIELD(ronda_object_args, kSet, call.process_set),
};
static const Field kSparseFields[] = {
    FIELD(ronda_sparse_allreduce_args, kText, tensor.name),
    FIELD(ronda_sparse_allreduce_args, kInt, tensor.dtype),
    FIELD(ronda_sparse_allreduce_args, kShape, tensor),
    FIELD(ronda_sparse_allreduce_args, kAddress, values),
    FIELD(ronda_sparse_allreduce_args, kAddress, indices),
    KEEP,
    FIELD(ronda_sparse_allreduce_args, kInt, op),
    FIELD(ronda_sparse_allreduce_args, kSet, call.process_set),
    FIELD(ronda_sparse_allreduce_args, kReal, call.deadline_s),
    FIELD(ronda_sparse_allreduce_args, kStream, call),
};
static const Field kBarrierFields[] = {FIELD(BarrierArguments, kSet, process_set),
                                       FIELD(BarrierArguments, kReal, deadline_s)};
static const Field kJoinFields[] = {FIELD(JoinArguments, kSet, process_set), FIELD(JoinArguments, kInt, absent)};

/* -- One operation -- */

/* Starts reading arguments, and sets `into` to the operation's defaults. */
static void Begin(const Operation* operation, void* into, Reader* reader) {
  BeginReading(reader);
  memcpy(into, operation->defaults, operation->size);
}

PyObject* SubmitWithoutGil(SubmitFunction submit, const void* arguments, PyObject* keep) {
  if (KeepReserve(&kept_by_handle, 1) != 0) return NULL;
  ronda_handle handle = 0;
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = submit(arguments, &handle);
  Py_END_ALLOW_THREADS;
  if (status != RONDA_OK) return NoneOrRaise(status);
  if (KeepReserve(&kept_by_handle, 1) != 0) { /* another thread may have used the room */
    ronda_release(handle);                    /* waits */
    return NULL;
  }
  KeepPut(&kept_by_handle, handle, keep);
  return PyLong_FromLongLong(handle);
}

static PyObject* Submit(const Operation* operation, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments;
  Reader reader;
  Begin(operation, &arguments, &reader);
  PyObject* result = NULL;
  const int is_read = Read(&operation->signature, values, count, &arguments, &reader) == 0;
  if (is_read && reader.is_on_gpu) {
    result = SubmitWithoutGil(operation->submit, &arguments, reader.keep);
  } else if (is_read && KeepReserve(&kept_by_handle, 1) == 0) {
    ronda_handle handle = 0;
    const ronda_status status = operation->submit(&arguments, &handle);
    if (status == RONDA_OK) KeepPut(&kept_by_handle, handle, reader.keep);
    result = status == RONDA_OK ? PyLong_FromLongLong(handle) : NoneOrRaise(status);
  }
  EndReading(&reader);
  return result;
}

static ronda_status SubmitBarrier(const BarrierArguments* arguments, ronda_handle* handle) {
  return ronda_monitored_barrier_async(arguments->process_set, arguments->deadline_s, handle);
}

static ronda_status SubmitJoin(const JoinArguments* arguments, ronda_handle* handle) {
  return ronda_join_async(arguments->process_set, (ronda_absent)arguments->absent, handle);
}

/* The largest number of arguments of any operation. */
enum { kMostArguments = 32 };

/* Defines the operation k_##function and the module's function. `call` submits the operation, and function##_defaults
 * has the defaults of its arguments. */
#define OPERATION(function, call, fields, required)                                                    \
  static ronda_status function##_submit(const void* arguments, ronda_handle* handle) {                 \
    return call(arguments, handle);                                                                    \
  }                                                                                                    \
  static const Operation k_##function = {SIGNATURE(#function, fields, required), &function##_defaults, \
                                         sizeof(function##_defaults), function##_submit};              \
  static PyObject* function(PyObject* module, PyObject* const* values, Py_ssize_t count) {             \
    return Submit(&k_##function, values, count);                                                       \
  }
#define TENSOR_OPERATION(op, OP)                                               \
  static const Field op##_fields[] = {OP##_FIELDS};                            \
  _Static_assert(sizeof(op##_fields) <= kMostArguments * sizeof(Field), #op);  \
  static const ronda_##op##_args op##_async_defaults = RONDA_##OP##_ARGS_INIT; \
  OPERATION(op##_async, ronda_##op##_async, op##_fields, op##_required)
#define OBJECT_OPERATION(op, fields, required)                                 \
  static const ronda_object_args op##_async_defaults = RONDA_OBJECT_ARGS_INIT; \
  OPERATION(op##_async, ronda_##op##_async, fields, required)

RONDA_TENSOR_OPERATIONS(TENSOR_OPERATION)

OBJECT_OPERATION(broadcast_object, kBroadcastObjectFields, 3)
OBJECT_OPERATION(allgather_object, kAllgatherObjectFields, 2)

static const BarrierArguments barrier_async_defaults = {0};
OPERATION(barrier_async, SubmitBarrier, kBarrierFields, 0)

static ronda_status SubmitRemoval(const BarrierArguments* arguments, ronda_handle* handle) {
  return ronda_remove_process_set_async(arguments->process_set, handle);
}

static const BarrierArguments remove_process_set_async_defaults = {0};
static const Field kRemovalFields[] = {FIELD(BarrierArguments, kSet, process_set)};
OPERATION(remove_process_set_async, SubmitRemoval, kRemovalFields, 1)

static const JoinArguments join_async_defaults = {0};
OPERATION(join_async, SubmitJoin, kJoinFields, 0)

/* The blocking form. After Ctrl-C the operation stays in flight, and its memory is kept until it ends. */
static PyObject* FinishAllreduce(ronda_handle handle, PyObject* keep) {
  ronda_status status = RONDA_OK;
  if (KeepReserve(&kept_by_handle, 1) != 0) {
    ronda_release(handle); /* waits */
    return NULL;
  }
  KeepPut(&kept_by_handle, handle, keep);
  PyObject* result = Await(handle, -1, &status) < 0 ? NULL : NoneOrRaise(status);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* const released = Release(handle);
  if (type == NULL && released == NULL) Py_CLEAR(result);
  if (type != NULL) PyErr_Restore(type, value, traceback);
  Py_XDECREF(released);
  return result;
}

static PyObject* Allreduce(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  ronda_allreduce_args arguments;
  Reader reader;
  Begin(&k_allreduce_async, &arguments, &reader);
  PyObject* result = NULL;
  if (Read(&k_allreduce_async.signature, values, count, &arguments, &reader) == 0) {
    ronda_handle handle = 0;
    ronda_status status = RONDA_OK;
    Py_BEGIN_ALLOW_THREADS;
    status = ronda_allreduce_for(&arguments, RONDA_SLICE_S, &handle);
    Py_END_ALLOW_THREADS;
    result = status != RONDA_OK || handle == 0 ? NoneOrRaise(status) : FinishAllreduce(handle, reader.keep);
  }
  EndReading(&reader);
  return result;
}

static PyObject* SparseAllreduceAsync(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("sparse_allreduce_async", kSparseFields, 7);
  ronda_sparse_allreduce_args arguments = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  Reader reader;
  BeginReading(&reader);
  PyObject* result = NULL;
  if (Read(&kSignature, values, count, &arguments, &reader) == 0 && KeepReserve(&kept_by_handle, 2) == 0) {
    ronda_handle indices = 0, gathered = 0;
    const ronda_status status = ronda_sparse_allreduce_async(&arguments, &indices, &gathered);
    if (status == RONDA_OK) {
      KeepPut(&kept_by_handle, indices, reader.keep);
      KeepPut(&kept_by_handle, gathered, reader.keep);
    }
    result = status == RONDA_OK ? Py_BuildValue("LL", (long long)indices, (long long)gathered) : NoneOrRaise(status);
  }
  EndReading(&reader);
  return result;
}

/* -- Groups: a sequence of tuples, each with the arguments of an operation, and a name -- */

void EndReadingGroup(GroupReader* group) {
  EndReading(&group->reader);
  Py_XDECREF(group->entries);
}

static int ReadMember(const Operation* operation, PyObject* entry, void* into, Reader* reader) {
  PyObject* values[kMostArguments];
  if (!PyTuple_Check(entry)) {
    PyErr_Format(PyExc_TypeError, "a member of a group is a tuple of %s's arguments, not %R",
                 operation->signature.function, entry);
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(entry);
  for (Py_ssize_t i = 0; i < count && i < kMostArguments; ++i) values[i] = PyTuple_GetItem(entry, i);
  memcpy(into, operation->defaults, operation->size);
  reader->keep = NULL;
  return Read(&operation->signature, values, count, into, reader);
}

/* Returns 0, or -1 with an exception set. The caller must call EndReadingGroup. */
static int ReadGroup(const Operation* operation, const char* function, PyObject* const* values, Py_ssize_t count,
                     GroupReader* group) {
  static const Field kName = FIELD(GroupReader, kText, name);
  BeginReading(&group->reader);
  group->entries = NULL;
  if (count != 2) {
    PyErr_Format(PyExc_TypeError, "%s() takes 2 arguments, not %zd", function, count);
    return -1;
  }
  if (ReadField(&kName, values[1], group, &group->reader) != 0) return -1;
  group->entries = PySequence_Tuple(values[0]);
  if (group->entries == NULL) return -1;
  group->count = (size_t)PyTuple_Size(group->entries);
  group->arguments = TakeMemory(&group->reader, group->count * operation->size);
  group->keeps = TakeMemory(&group->reader, group->count * sizeof(*group->keeps));
  if (group->arguments == NULL || group->keeps == NULL) return -1;
  for (size_t i = 0; i < group->count; ++i) {
    PyObject* const entry = PyTuple_GetItem(group->entries, (Py_ssize_t)i);
    if (ReadMember(operation, entry, group->arguments + i * operation->size, &group->reader) != 0) return -1;
    group->keeps[i] = group->reader.keep;
  }
  return 0;
}

int ReadAllreduces(const char* function, PyObject* const* values, Py_ssize_t count, GroupReader* group) {
  return ReadGroup(&k_allreduce_async, function, values, count, group);
}

PyObject* ListOfHandles(const ronda_handle* handles, size_t count) {
  PyObject* const list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; ++i) {
    PyObject* const handle = PyLong_FromLongLong(handles[i]);
    if (handle == NULL || PyList_SetItem(list, (Py_ssize_t)i, handle) != 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

typedef ronda_status (*SubmitGroup)(const void* arguments, size_t count, const char* name, ronda_handle* handles);

static PyObject* Grouped(const Operation* operation, const char* function, SubmitGroup submit, PyObject* const* values,
                         Py_ssize_t count) {
  GroupReader group;
  PyObject* result = NULL;
  if (ReadGroup(operation, function, values, count, &group) == 0 && KeepReserve(&kept_by_handle, group.count) == 0) {
    ronda_handle* const handles = TakeMemory(&group.reader, group.count * sizeof(*handles));
    const ronda_status status = handles == NULL ? RONDA_OK : submit(group.arguments, group.count, group.name, handles);
    if (handles != NULL && status == RONDA_OK) {
      for (size_t i = 0; i < group.count; ++i) KeepPut(&kept_by_handle, handles[i], group.keeps[i]);
      result = ListOfHandles(handles, group.count);
    } else if (handles != NULL) {
      result = NoneOrRaise(status);
    }
  }
  EndReadingGroup(&group);
  return result;
}

#define GROUPED_OPERATION(op, OP)                                                                      \
  static ronda_status grouped_##op##_submit(const void* arguments, size_t count, const char* name,     \
                                            ronda_handle* handles) {                                   \
    return ronda_grouped_##op##_async(arguments, count, name, handles);                                \
  }                                                                                                    \
  static PyObject* grouped_##op##_async(PyObject* module, PyObject* const* values, Py_ssize_t count) { \
    return Grouped(&k_##op##_async, "grouped_" #op "_async", grouped_##op##_submit, values, count);    \
  }

RONDA_GROUPED_OPERATIONS(GROUPED_OPERATION)

/* -- Refusing operations, and clearing the memory of a device -- */

typedef struct RefusalArguments {
  ronda_process_set process_set;
  int from;
  int to;
  int tag;
  const char* name;
  const char* message;
} RefusalArguments;

static const Field kRefuseFields[] = {FIELD(RefusalArguments, kSet, process_set), FIELD(RefusalArguments, kText, name),
                                      FIELD(RefusalArguments, kText, message)};
static const Field kRefuseMessageFields[] = {
    FIELD(RefusalArguments, kSet, process_set), FIELD(RefusalArguments, kInt, from),
    FIELD(RefusalArguments, kInt, to),          FIELD(RefusalArguments, kInt, tag),
    FIELD(RefusalArguments, kText, message),
};

static ronda_status DoRefuse(const RefusalArguments* arguments) {
  return ronda_refuse(arguments->process_set, arguments->name, arguments->message);
}

static ronda_status DoRefuseMessage(const RefusalArguments* arguments) {
  return ronda_refuse_message(arguments->process_set, arguments->from, arguments->to, arguments->tag,
                              arguments->message);
}

static PyObject* RunRefusal(const Signature* signature, ronda_status (*refuse)(const RefusalArguments* arguments),
                            PyObject* const* values, Py_ssize_t count) {
  RefusalArguments arguments = {0, 0, 0, 0, NULL, NULL};
  Reader reader;
  BeginReading(&reader);
  const int failed = Read(signature, values, count, &arguments, &reader);
  PyObject* const result = failed ? NULL : NoneOrRaise(refuse(&arguments));
  EndReading(&reader);
  return result;
}

static PyObject* Refuse(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("refuse", kRefuseFields, 3);
  return RunRefusal(&kSignature, DoRefuse, values, count);
}

static PyObject* RefuseMessage(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("refuse_message", kRefuseMessageFields, 5);
  return RunRefusal(&kSignature, DoRefuseMessage, values, count);
}

typedef struct ZeroArguments {
  void* data;
  size_t bytes;
  void* stream;
} ZeroArguments;

static const Field kZeroFields[] = {FIELD(ZeroArguments, kAddress, data), FIELD(ZeroArguments, kSize, bytes),
                                    FIELD(ZeroArguments, kAddress, stream)};

static PyObject* CudaZero(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("cuda_zero", kZeroFields, 3);
  ZeroArguments arguments;
  if (Read(&kSignature, values, count, &arguments, NULL) != 0) return NULL;
  return NoneOrRaise(ronda_cuda_zero(arguments.data, arguments.bytes, arguments.stream));
}

#define ASYNC(op, OP) FAST(#op "_async", op##_async),
#define GROUPED(op, OP) FAST("grouped_" #op "_async", grouped_##op##_async),

PyMethodDef operation_methods[] = {
    RONDA_TENSOR_OPERATIONS(ASYNC) RONDA_GROUPED_OPERATIONS(GROUPED)
        FAST("broadcast_object_async", broadcast_object_async),
    FAST("allgather_object_async", allgather_object_async),
    FAST("sparse_allreduce_async", SparseAllreduceAsync),
    FAST("barrier_async", barrier_async),
    FAST("join_async", join_async),
    FAST("remove_process_set_async", remove_process_set_async),
    FAST("refuse", Refuse),
    FAST("refuse_message", RefuseMessage),
    FAST("allreduce", Allreduce),
    FAST("cuda_zero", CudaZero),
    {NULL, NULL, 0, NULL},
};
