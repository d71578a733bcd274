/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of ronda._native for handles: objects that are kept for handles, waits, and results. */
#include <stdlib.h>

#include "client/python/ronda/_native.h"

/* -- Kept objects -- */

typedef struct KeepEntry {
  int64_t key; /* 0: free */
  PyObject* object;
} KeepEntry;

KeepTable kept_by_handle;
KeepTable kept_by_group;

/* Returns the slot of a key by Fibonacci hashing. Keys that differ only in their low bits, or only in their high
 * bits, get slots that are far apart. */
static size_t Home(const KeepTable* table, int64_t key) {
  return (size_t)((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - table->bits));
}

static size_t Next(const KeepTable* table, size_t index) { return (index + 1) & (((size_t)1 << table->bits) - 1); }

/* Returns the entry of `key`, or the free entry where `key` belongs. */
static KeepEntry* Locate(const KeepTable* table, int64_t key) {
  size_t index = Home(table, key);
  while (table->entries[index].key != 0 && table->entries[index].key != key) index = Next(table, index);
  return &table->entries[index];
}

int KeepReserve(KeepTable* table, size_t count) {
  int bits = table->bits == 0 ? 8 : table->bits;
  while ((table->used + count) * 2 > (size_t)1 << bits) ++bits;
  if (table->entries != NULL && bits == table->bits) return 0;
  KeepTable grown = {calloc((size_t)1 << bits, sizeof(KeepEntry)), bits, table->used};
  if (grown.entries == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  const size_t entries = table->entries == NULL ? 0 : (size_t)1 << table->bits;
  for (size_t i = 0; i < entries; ++i) {
    if (table->entries[i].key != 0) *Locate(&grown, table->entries[i].key) = table->entries[i];
  }
  free(table->entries);
  *table = grown;
  return 0;
}

void KeepPut(KeepTable* table, int64_t key, PyObject* object) {
  if (object == NULL || object == Py_None) return;
  KeepEntry* const entry = Locate(table, key);
  Py_INCREF(object);
  entry->key = key;
  entry->object = object;
  ++table->used;
}

PyObject* KeepFind(const KeepTable* table, int64_t key) {
  return table->entries == NULL || key == 0 ? NULL : Locate(table, key)->object;
}

PyObject* KeepTake(KeepTable* table, int64_t key) {
  if (table->entries == NULL || key == 0) return NULL;
  KeepEntry* hole = Locate(table, key);
  PyObject* const object = hole->object;
  if (hole->key == 0) return NULL;
  /* Moves later entries into the hole, unless an entry would then be before its Home(). */
  const size_t mask = ((size_t)1 << table->bits) - 1;
  size_t free_index = (size_t)(hole - table->entries);
  for (size_t i = Next(table, free_index); table->entries[i].key != 0; i = Next(table, i)) {
    const size_t distance_home = (i - Home(table, table->entries[i].key)) & mask;
    if (distance_home < ((i - free_index) & mask)) continue;
    table->entries[free_index] = table->entries[i];
    free_index = i;
  }
  table->entries[free_index] = (KeepEntry){0, NULL};
  --table->used;
  return object;
}

/* -- Releasing handles and objects when an operation has ended -- */

/* What to release when an operation has ended. */
typedef struct Ending {
  ronda_handle handle; /* 0: the handle has already been given back */
  PyObject* object;    /* owned; NULL: none */
} Ending;

/* Runs on a thread of Ronda, or on a thread that has the GIL. Ignores the status, which the program did not ask for. */
static void End(void* context, ronda_status status, const char* message) {
  Ending* const ending = context;
  PyGILState_STATE state;
  if (ending->handle != 0) ronda_release(ending->handle);
  if (ending->object != NULL && EnterInterpreter(&state)) {
    Py_DECREF(ending->object);
    LeaveInterpreter(state);
  }
  free(ending);
}

/* Takes a reference to `object`. When `operation` has ended, drops the reference, and releases `handle` unless it is
 * 0. Returns 0, or -1 with an exception set. */
static int EndLater(ronda_handle operation, ronda_handle handle, PyObject* object) {
  Ending* const ending = malloc(sizeof(Ending));
  if (ending == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  *ending = (Ending){handle, object};
  Py_XINCREF(object);
  const ronda_status status = ronda_on_completion(operation, End, ending);
  if (status == RONDA_OK) return 0;
  Raise(status, ronda_last_error());
  Py_XDECREF(object);
  free(ending);
  return -1;
}

PyObject* Release(ronda_handle handle) {
  int done = 0;
  ronda_status status = ronda_poll(handle, &done);
  if (status == RONDA_OK && done) {
    status = ronda_release(handle); /* does not wait */
  } else if (status == RONDA_OK && EndLater(handle, handle, KeepFind(&kept_by_handle, handle)) != 0) {
    return NULL;
  }
  /* A child of fork() has the objects of its parent's handles, but not the handles. In such a child the error is
   * ignored, and the object is dropped. */
  if (status == RONDA_ERROR_NOT_INITIALIZED && IsForked()) status = RONDA_OK;
  PyObject* const result = NoneOrRaise(status);
  Py_XDECREF(KeepTake(&kept_by_handle, handle));
  return result;
}

/* -- Functions with a handle as the only argument: -1 with an exception if it is not a handle -- */

static ronda_handle ToHandle(PyObject* value) { return PyLong_AsLongLong(value); }
#define FAILED(handle) ((handle) == -1 && PyErr_Occurred())

static PyObject* ReleaseOf(PyObject* module, PyObject* value) {
  const ronda_handle handle = ToHandle(value);
  return FAILED(handle) ? NULL : Release(handle);
}

static PyObject* DropBuffers(PyObject* module, PyObject* value) {
  const ronda_handle handle = ToHandle(value);
  if (FAILED(handle)) return NULL;
  Py_XDECREF(KeepTake(&kept_by_handle, handle));
  Py_RETURN_NONE;
}

/* Defines a function that asks the C ABI for a number, and turns the number into a Python object. */
#define ASK(Function, ask, to_python)                                    \
  static PyObject* Function(PyObject* module, PyObject* value) {         \
    const ronda_handle handle = ToHandle(value);                         \
    if (FAILED(handle)) return NULL;                                     \
    int number = 0;                                                      \
    const ronda_status status = ask(handle, &number);                    \
    return status == RONDA_OK ? to_python(number) : NoneOrRaise(status); \
  }
ASK(Poll, ronda_poll, PyBool_FromLong)
ASK(FoundInf, ronda_found_inf, PyBool_FromLong)
ASK(LastRank, ronda_last_rank, PyLong_FromLong)
ASK(Source, ronda_source, PyLong_FromLong)
ASK(AveragedOver, ronda_averaged_over, PyLong_FromLong)

static PyObject* Keep(PyObject* module, PyObject* value) {
  const ronda_handle handle = ToHandle(value);
  if (FAILED(handle)) return NULL;
  PyObject* const object = KeepFind(&kept_by_handle, handle);
  return Py_NewRef(object == NULL ? Py_None : object);
}

static PyObject* Output(PyObject* module, PyObject* value) {
  const ronda_handle handle = ToHandle(value);
  if (FAILED(handle)) return NULL;
  const void* data = NULL;
  const int64_t* rows_per_member = NULL;
  int64_t rows = 0;
  int members = 0;
  const ronda_status status = ronda_output(handle, &data, &rows, &rows_per_member, &members);
  if (status != RONDA_OK) return NoneOrRaise(status);
  PyObject* const list = PyList_New(members);
  for (int i = 0; list != NULL && i < members; ++i) {
    PyObject* const number = PyLong_FromLongLong(rows_per_member[i]);
    if (number == NULL || PyList_SetItem(list, i, number) != 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list == NULL ? NULL : Py_BuildValue("KLN", (unsigned long long)(uintptr_t)data, (long long)rows, list);
}

/* -- Functions with several arguments -- */

typedef struct HandleArguments {
  ronda_handle handle;
  double timeout_s;
  int64_t row_bytes;
  void* stream;
  PyObject* callback;
} HandleArguments;

static const Field kTimeoutFields[] = {FIELD(HandleArguments, kHandle, handle),
                                       FIELD(HandleArguments, kReal, timeout_s)};
static const Field kRowFields[] = {FIELD(HandleArguments, kHandle, handle), FIELD(HandleArguments, kHandle, row_bytes)};
static const Field kStreamTimeoutFields[] = {FIELD(HandleArguments, kHandle, handle),
                                             FIELD(HandleArguments, kAddress, stream),
                                             FIELD(HandleArguments, kReal, timeout_s)};
static const Field kStreamFields[] = {FIELD(HandleArguments, kHandle, handle), FIELD(HandleArguments, kAddress, stream),
                                      FIELD(HandleArguments, kObject, callback)};
static const Field kCallbackFields[] = {FIELD(HandleArguments, kHandle, handle),
                                        FIELD(HandleArguments, kObject, callback)};

/* Returns 0, or -1 with an exception set. */
static int ReadHandleArguments(const Signature* signature, PyObject* const* values, Py_ssize_t count,
                               HandleArguments* arguments) {
  *arguments = (HandleArguments){.timeout_s = -1, .row_bytes = 1};
  /* These fields allocate no memory. */
  return Read(signature, values, count, arguments, NULL);
}

static PyObject* Synchronize(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("synchronize", kTimeoutFields, 1);
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  ronda_status status = RONDA_OK;
  const int ended = Await(arguments.handle, arguments.timeout_s, &status);
  if (ended < 0) return NULL;
  return status == RONDA_OK ? PyBool_FromLong(ended) : NoneOrRaise(status);
}

static PyObject* OutputBytes(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("output_bytes", kRowFields, 1);
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  const void* data = NULL;
  int64_t rows = 0;
  const ronda_status status = ronda_output(arguments.handle, &data, &rows, NULL, NULL);
  if (status != RONDA_OK) return NoneOrRaise(status);
  if (arguments.row_bytes < 0 || (rows > 0 && arguments.row_bytes > PY_SSIZE_T_MAX / rows)) {
    return PyErr_Format(PyExc_OverflowError, "output_bytes: %lld rows of %lld bytes", (long long)rows,
                        (long long)arguments.row_bytes);
  }
  return PyBytes_FromStringAndSize(data, (Py_ssize_t)(rows * arguments.row_bytes));
}

static ronda_status SynchronizeOnStreamFor(const void* what, double timeout_s, int* done) {
  const HandleArguments* const arguments = what;
  return ronda_synchronize_on_stream_for(arguments->handle, arguments->stream, timeout_s, done);
}

static PyObject* SynchronizeOnStream(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("synchronize_on_stream", kStreamTimeoutFields, 2);
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  ronda_status status = RONDA_OK;
  const int waits = WaitInSlices(SynchronizeOnStreamFor, &arguments, arguments.timeout_s, &status);
  if (waits < 0) return NULL;
  return status == RONDA_OK ? PyBool_FromLong(waits) : NoneOrRaise(status);
}

static PyObject* ReleaseOnStream(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"release_on_stream", kStreamFields, 2, 2};
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  int launched = 0;
  ronda_status status = ronda_synchronize_on_stream_for(arguments.handle, arguments.stream, 0, &launched);
  /* If the operation was not launched, no work on the stream uses its result, and ronda_release_on_stream() would wait
   * for the launch. */
  if (status == RONDA_OK && !launched) return Release(arguments.handle);
  PyObject* const object = KeepFind(&kept_by_handle, arguments.handle);
  if (object != NULL && EndLater(arguments.handle, 0, object) != 0) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = ronda_release_on_stream(arguments.handle, arguments.stream); /* after an error it may wait for the device */
  Py_END_ALLOW_THREADS;
  PyObject* const result = NoneOrRaise(status);
  if (status == RONDA_OK) Py_XDECREF(KeepTake(&kept_by_handle, arguments.handle));
  return result;
}

/* -- Callbacks -- */

/* `context` is a Python function, to which CallBack() owns a reference. Runs on one of Ronda's threads, or on a
 * thread that has the GIL. */
static void CallBack(void* context, ronda_status status, const char* message) {
  PyObject* const function = context;
  PyGILState_STATE state;
  if (!EnterInterpreter(&state)) return;
  PyObject* const result = status == RONDA_OK ? PyObject_CallFunction(function, "iO", 0, Py_None)
                                              : PyObject_CallFunction(function, "is", (int)status, message);
  if (result == NULL) PyErr_WriteUnraisable(function); /* no caller could catch it */
  Py_XDECREF(result);
  Py_DECREF(function);
  LeaveInterpreter(state);
}

/* Returns the result of a call to which `callback` was passed. After success Ronda owns a reference to the callback. */
static PyObject* Registered(ronda_status status, PyObject* callback) {
  PyObject* const result = NoneOrRaise(status);
  if (status != RONDA_OK) Py_DECREF(callback);
  return result;
}

static int IsCallable(PyObject* callback) {
  if (PyCallable_Check(callback)) return 1;
  PyErr_Format(PyExc_TypeError, "callback is %R, which cannot be called", callback);
  return 0;
}

static PyObject* OnCompletion(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("on_completion", kCallbackFields, 2);
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0 || !IsCallable(arguments.callback)) return NULL;
  Py_INCREF(arguments.callback);
  return Registered(ronda_on_completion(arguments.handle, CallBack, arguments.callback), arguments.callback);
}

static PyObject* SynchronizeOnStreamAsync(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("synchronize_on_stream_async", kStreamFields, 3);
  HandleArguments arguments;
  if (ReadHandleArguments(&kSignature, values, count, &arguments) != 0 || !IsCallable(arguments.callback)) return NULL;
  Py_INCREF(arguments.callback);
  return Registered(ronda_synchronize_on_stream_async(arguments.handle, arguments.stream, CallBack, arguments.callback),
                    arguments.callback);
}

/* -- Many handles -- */

typedef struct HandleList {
  const int64_t* handles;
  int count;
} HandleList;

static const Field kHandles = ARRAY(HandleList, kNumbers, handles, count);

static PyObject* PollAll(PyObject* module, PyObject* value) {
  HandleList list = {NULL, 0};
  Reader reader;
  BeginReading(&reader);
  PyObject* result = NULL;
  if (ReadField(&kHandles, value, &list, &reader) == 0) {
    int done = 0;
    const ronda_status status = ronda_poll_all(list.handles, (size_t)list.count, &done);
    result = status == RONDA_OK ? PyBool_FromLong(done) : NoneOrRaise(status);
  }
  EndReading(&reader);
  return result;
}

static PyObject* SynchronizeAll(PyObject* module, PyObject* value) {
  HandleList list = {NULL, 0};
  Reader reader;
  BeginReading(&reader);
  int failed = ReadField(&kHandles, value, &list, &reader) != 0;
  for (int i = 0; !failed && i < list.count; ++i) {
    ronda_status ignored = RONDA_OK; /* the call below finds the first error */
    failed = Await(list.handles[i], -1, &ignored) < 0;
  }
  PyObject* const result = failed ? NULL : NoneOrRaise(ronda_synchronize_all(list.handles, (size_t)list.count));
  EndReading(&reader);
  return result;
}

PyMethodDef handle_methods[] = {
    ONE("poll", Poll),
    ONE("poll_all", PollAll),
    FAST("synchronize", Synchronize),
    ONE("synchronize_all", SynchronizeAll),
    FAST("synchronize_on_stream", SynchronizeOnStream),
    FAST("synchronize_on_stream_async", SynchronizeOnStreamAsync),
    FAST("on_completion", OnCompletion),
    ONE("output", Output),
    FAST("output_bytes", OutputBytes),
    ONE("found_inf", FoundInf),
    ONE("last_rank", LastRank),
    ONE("source", Source),
    ONE("averaged_over", AveragedOver),
    ONE("keep", Keep),
    ONE("drop_buffers", DropBuffers),
    ONE("release", ReleaseOf),
    FAST("release_on_stream", ReleaseOnStream),
    {NULL, NULL, 0, NULL},
};
