/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of ronda._native for the job and its process sets, and the module itself. */
#include "client/python/ronda/_native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/ronda/_native_fields.h"

/* -- The job -- */

/* The arguments of a call that may wait for other ranks. */
typedef struct JobArguments {
  ronda_options options;
  const int* ranks;
  int count;
  const char* tag;
  ronda_process_set process_set;
  double timeout_s;
  int64_t snapshot_step;
  ronda_elastic_source source;
} JobArguments;

/* A call, and the objects to which its arguments refer. A JobCall is on the heap, because the call may continue after a
 * signal has interrupted the wait in Python. */
typedef struct JobCall {
  JobArguments arguments;
  Reader reader;
  PyObject* referred; /* owned; NULL: nothing */
} JobCall;

static JobCall* BeginCall(void) {
  JobCall* const call = calloc(1, sizeof(JobCall));
  if (call == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  call->arguments.options.struct_size = sizeof(ronda_options);
  BeginReading(&call->reader);
  return call;
}

static void EndCall(JobCall* call) {
  EndReading(&call->reader);
  Py_XDECREF(call->referred);
  free(call);
}

/* Creates a call, and reads the arguments of a function into it. Returns NULL with an exception set on failure. */
static JobCall* ReadCall(const Signature* signature, PyObject* const* values, Py_ssize_t count) {
  JobCall* const call = BeginCall();
  if (call == NULL || Read(signature, values, count, &call->arguments, &call->reader) == 0) return call;
  EndCall(call);
  return NULL;
}

/* Runs `body`. Returns None, or NULL with an exception set. Unless `id` is NULL, writes the process set's id to `*id`.
 * Frees the call. */
static PyObject* RunCall(JobCall* call, ronda_status (*body)(void* arguments), ronda_process_set* id) {
  int abandoned = 0;
  PyObject* const result = RunInterruptibly(body, &call->arguments, &abandoned);
  if (id != NULL) *id = call->arguments.process_set;
  if (!abandoned) EndCall(call);
  return result;
}

static const Field kOptions[] = {OPTION_FIELDS};

static int ReadOption(PyObject* name, PyObject* value, JobCall* call) {
  const char* const text = PyUnicode_AsUTF8AndSize(name, NULL);
  if (text == NULL) return -1;
  for (size_t i = 0; i < sizeof(kOptions) / sizeof(*kOptions); ++i) {
    if (strcmp(text, kOptions[i].name) != 0) continue;
    return value == Py_None ? 0 : ReadField(&kOptions[i], value, &call->arguments.options, &call->reader);
  }
  char message[200];
  snprintf(message, sizeof(message), "init: there is no option '%.80s': ronda_options in ronda.h lists them", text);
  Raise(RONDA_ERROR_INVALID_ARGUMENT, message);
  return -1;
}

static int ReadOptions(PyObject* options, JobCall* call) {
  call->referred = PyMapping_Items(options);
  const Py_ssize_t count = call->referred == NULL ? 0 : PyList_Size(call->referred);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyList_GetItem(call->referred, i);
    if (ReadOption(PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1), call) != 0) return -1;
  }
  return call->referred == NULL ? -1 : 0;
}

static ronda_status DoInit(void* arguments) { return ronda_init(&((JobArguments*)arguments)->options); }

static ronda_status DoShutdown(void* arguments) { return ronda_shutdown(); }

static PyObject* Init(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  if (count > 1) return PyErr_Format(PyExc_TypeError, "init() takes 0 to 1 arguments, not %zd", count);
  JobCall* const call = BeginCall();
  if (call == NULL) return NULL;
  if (count == 1 && values[0] != Py_None && ReadOptions(values[0], call) != 0) {
    EndCall(call);
    return NULL;
  }
  return RunCall(call, DoInit, NULL);
}

static PyObject* Shutdown(PyObject* module, PyObject* none) {
  JobCall* const call = BeginCall();
  return call == NULL ? NULL : RunCall(call, DoShutdown, NULL);
}

static PyObject* Version(PyObject* module, PyObject* none) { return PyUnicode_FromString(ronda_version()); }

static PyObject* IsInitialized(PyObject* module, PyObject* none) { return PyBool_FromLong(ronda_is_initialized()); }

#define NUMBER(function) \
  static PyObject* function(PyObject* module, PyObject* none) { return PyLong_FromLongLong(ronda_##function()); }
NUMBER(rank)
NUMBER(size)
NUMBER(local_rank)
NUMBER(local_size)
NUMBER(cross_rank)
NUMBER(cross_size)
NUMBER(current)

static PyObject* MakeCurrent(PyObject* module, PyObject* value) {
  const ronda_context context = PyLong_AsLongLong(value);
  if (context == -1 && PyErr_Occurred()) return NULL;
  return NoneOrRaise(ronda_make_current(context));
}

static PyObject* ShouldStop(PyObject* module, PyObject* none) {
  int stop = 0;
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = ronda_should_stop(&stop);
  Py_END_ALLOW_THREADS;
  return status == RONDA_OK ? PyBool_FromLong(stop) : NoneOrRaise(status);
}

/* Sets an item. If `value` is NULL because of an exception, does nothing. Releases `value`. Returns 0, or -1 with an
 * exception set. */
static int SetItem(PyObject* dict, const char* name, PyObject* value) {
  const int failed = value == NULL || PyDict_SetItemString(dict, name, value) != 0;
  Py_XDECREF(value);
  return failed ? -1 : 0;
}

#define COUNT(name) {#name, offsetof(ronda_statistics, name)},
static const struct {
  const char* name;
  size_t offset;
} kCounts[] = {STATISTICS_FIELDS(COUNT)};

static PyObject* Statistics(PyObject* module, PyObject* none) {
  ronda_statistics statistics = RONDA_STATISTICS_INIT;
  const ronda_status status = ronda_get_statistics(&statistics);
  if (status != RONDA_OK) return NoneOrRaise(status);
  PyObject* const counts = PyDict_New();
  for (size_t i = 0; counts != NULL && i < sizeof(kCounts) / sizeof(*kCounts); ++i) {
    uint64_t number = 0;
    memcpy(&number, (const char*)&statistics + kCounts[i].offset, sizeof(number));
    if (SetItem(counts, kCounts[i].name, PyLong_FromUnsignedLongLong(number)) == 0) continue;
    Py_DECREF(counts);
    return NULL;
  }
  return counts;
}

#define NUMBER_OF_PLACE(name) \
  { #name, offsetof(ronda_place, name) }
static const struct {
  const char* name;
  size_t offset;
} kPlace[] = {
    NUMBER_OF_PLACE(rank),       NUMBER_OF_PLACE(size),       NUMBER_OF_PLACE(local_rank),
    NUMBER_OF_PLACE(local_size), NUMBER_OF_PLACE(cross_rank), NUMBER_OF_PLACE(cross_size),
};

/* Returns 0, or -1 with an exception set. */
static int WritePlace(const ronda_place* place, PyObject* into) {
  for (size_t i = 0; i < sizeof(kPlace) / sizeof(*kPlace); ++i) {
    int number = -1;
    memcpy(&number, (const char*)place + kPlace[i].offset, sizeof(number));
    if (number >= 0 && SetItem(into, kPlace[i].name, PyLong_FromLong(number)) != 0) return -1;
  }
  if (SetItem(into, "launcher", PyLong_FromLong((long)place->launcher)) != 0) return -1;
  if (place->store_port == 0) return 0;
  if (SetItem(into, "store_address", PyUnicode_FromString(place->store_address)) != 0) return -1;
  return SetItem(into, "store_port", PyLong_FromLong(place->store_port));
}

static PyObject* GetPlace(PyObject* module, PyObject* none) {
  ronda_place place = RONDA_PLACE_INIT;
  const ronda_status status = ronda_get_place(&place);
  if (status != RONDA_OK) return NoneOrRaise(status);
  PyObject* const told = PyDict_New();
  if (told == NULL || WritePlace(&place, told) == 0) return told;
  Py_DECREF(told);
  return NULL;
}

static PyObject* JobStatus(PyObject* module, PyObject* none) { return NoneOrRaise(ronda_job_status()); }

/* Calls a function of the C ABI that takes the text `value`. `name` describes the text in errors. */
static PyObject* CallWithText(const char* name, PyObject* value, ronda_status (*function)(const char*)) {
  const Field field = {name, kText, 0, 0};
  const char* text = NULL;
  if (ReadField(&field, value, &text, NULL) != 0) return NULL;
  return NoneOrRaise(function(text));
}

static PyObject* StartTimeline(PyObject* module, PyObject* value) {
  return CallWithText("path", value, ronda_start_timeline);
}

static PyObject* Abort(PyObject* module, PyObject* value) { return CallWithText("reason", value, ronda_abort); }

static PyObject* StopTimeline(PyObject* module, PyObject* none) {
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = ronda_stop_timeline(); /* writes to a disk */
  Py_END_ALLOW_THREADS;
  return NoneOrRaise(status);
}

/* -- Elastic jobs -- */

static ronda_status DoElasticReform(void* arguments) {
  const JobArguments* const job = arguments;
  ronda_elastic_reform_options reform = RONDA_ELASTIC_REFORM_OPTIONS_INIT;
  reform.reason = job->tag;
  return ronda_elastic_reform(&reform);
}

static PyObject* ElasticReform(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Field kFields[] = {{"reason", kText, offsetof(JobArguments, tag), 0}};
  static const Signature kSignature = SIGNATURE("elastic_reform", kFields, 0);
  JobCall* const call = ReadCall(&kSignature, values, count);
  return call == NULL ? NULL : RunCall(call, DoElasticReform, NULL);
}

static PyObject* ElasticBeginUpdate(PyObject* module, PyObject* none) {
  ronda_elastic_begin_update();
  Py_RETURN_NONE;
}

static PyObject* ElasticEndUpdate(PyObject* module, PyObject* none) {
  ronda_elastic_end_update();
  Py_RETURN_NONE;
}

static ronda_status DoElasticSync(void* arguments) {
  JobArguments* const job = arguments;
  job->source.struct_size = sizeof(job->source);
  return ronda_elastic_sync(job->snapshot_step, &job->source);
}

static PyObject* ElasticSync(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Field kFields[] = {FIELD(JobArguments, kHandle, snapshot_step)};
  static const Signature kSignature = SIGNATURE("elastic_sync", kFields, 1);
  JobCall* const call = ReadCall(&kSignature, values, count);
  if (call == NULL) return NULL;
  int abandoned = 0;
  PyObject* const none = RunInterruptibly(DoElasticSync, &call->arguments, &abandoned);
  const ronda_elastic_source source = call->arguments.source;
  if (!abandoned) EndCall(call);
  if (none == NULL) return NULL;
  Py_DECREF(none);
  return Py_BuildValue("(Liiii)", (long long)source.step, source.rank, source.is_snapshot, source.is_behind,
                       source.any_behind);
}

static PyObject* ElasticPoll(PyObject* module, PyObject* none) {
  ronda_elastic_change change = RONDA_ELASTIC_GO_ON;
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = ronda_elastic_poll(&change);
  Py_END_ALLOW_THREADS;
  return status == RONDA_OK ? PyLong_FromLong(change) : NoneOrRaise(status);
}

/* -- Process sets -- */

static const Field kSetFields[] = {ARRAY(JobArguments, kRanks, ranks, count), FIELD(JobArguments, kText, tag)};
static const Field kIdFields[] = {FIELD(JobArguments, kSet, process_set), FIELD(JobArguments, kReal, timeout_s)};

static ronda_status DoAddProcessSet(void* arguments) {
  JobArguments* const job = arguments;
  return ronda_add_process_set(job->ranks, job->count, &job->process_set);
}

static ronda_status DoCreateProcessSet(void* arguments) {
  JobArguments* const job = arguments;
  return ronda_create_process_set(job->ranks, job->count, job->tag, &job->process_set);
}

static ronda_status DoRemoveProcessSet(void* arguments) {
  return ronda_remove_process_set(((JobArguments*)arguments)->process_set);
}

static ronda_status DoMonitoredBarrier(void* arguments) {
  JobArguments* const job = arguments;
  return ronda_monitored_barrier(job->process_set, job->timeout_s);
}

/* Runs `body`, which creates a process set, and returns the set's id. */
static PyObject* MakeProcessSet(const Signature* signature, ronda_status (*body)(void* arguments),
                                PyObject* const* values, Py_ssize_t count) {
  JobCall* const call = ReadCall(signature, values, count);
  ronda_process_set id = 0;
  PyObject* const none = call == NULL ? NULL : RunCall(call, body, &id);
  if (none == NULL) return NULL;
  Py_DECREF(none);
  return PyLong_FromUnsignedLong(id);
}

static PyObject* AddProcessSet(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"add_process_set", kSetFields, 1, 1};
  return MakeProcessSet(&kSignature, DoAddProcessSet, values, count);
}

static PyObject* CreateProcessSet(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("create_process_set", kSetFields, 1);
  return MakeProcessSet(&kSignature, DoCreateProcessSet, values, count);
}

static PyObject* RemoveProcessSet(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = {"remove_process_set", kIdFields, 1, 1};
  JobCall* const call = ReadCall(&kSignature, values, count);
  return call == NULL ? NULL : RunCall(call, DoRemoveProcessSet, NULL);
}

static PyObject* MonitoredBarrier(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("monitored_barrier", kIdFields, 0);
  JobCall* const call = ReadCall(&kSignature, values, count);
  return call == NULL ? NULL : RunCall(call, DoMonitoredBarrier, NULL);
}

/* Returns 0, or -1 with an exception set. */
static int ToSet(PyObject* value, JobArguments* arguments) { return ReadField(&kIdFields[0], value, arguments, NULL); }

static PyObject* ProcessSetSize(PyObject* module, PyObject* value) {
  JobArguments arguments;
  return ToSet(value, &arguments) != 0 ? NULL : PyLong_FromLong(ronda_process_set_size(arguments.process_set));
}

static PyObject* ProcessSetRank(PyObject* module, PyObject* value) {
  JobArguments arguments;
  return ToSet(value, &arguments) != 0 ? NULL : PyLong_FromLong(ronda_process_set_rank(arguments.process_set));
}

/* Returns a list of `count` numbers. */
static PyObject* ListOf(const int* numbers, int count) {
  PyObject* const list = PyList_New(count);
  for (int i = 0; list != NULL && i < count; ++i) {
    PyObject* const number = PyLong_FromLong(numbers[i]);
    if (number != NULL && PyList_SetItem(list, i, number) == 0) continue;
    Py_DECREF(list);
    return NULL;
  }
  return list;
}

static PyObject* ProcessSetRanks(PyObject* module, PyObject* value) {
  JobArguments arguments;
  if (ToSet(value, &arguments) != 0) return NULL;
  const int count = ronda_process_set_size(arguments.process_set);
  int* const ranks = calloc(count > 0 ? (size_t)count : 1, sizeof(int));
  if (ranks == NULL) return PyErr_NoMemory();
  const ronda_status status = ronda_process_set_ranks(arguments.process_set, ranks);
  PyObject* const result = status == RONDA_OK ? ListOf(ranks, count) : NoneOrRaise(status);
  free(ranks);
  return result;
}

static PyObject* ProcessSetIds(PyObject* module, PyObject* none) {
  for (int room = 64;; room *= 2) {
    ronda_process_set* const ids = calloc((size_t)room, sizeof(*ids));
    if (ids == NULL) return PyErr_NoMemory();
    int count = 0;
    const ronda_status status = ronda_process_set_ids(ids, room, &count);
    PyObject* result = NULL;
    if (status != RONDA_OK) {
      result = NoneOrRaise(status);
    } else if (count <= room) {
      result = ListOf((const int*)ids, count);
    }
    free(ids);
    if (status != RONDA_OK || count <= room) return result;
  }
}

static PyMethodDef job_methods[] = {
    ONE("set_error_types", SetErrorTypes),
    FAST("error", ErrorOf),
    NONE("version", Version),
    FAST("init", Init),
    NONE("shutdown", Shutdown),
    ONE("abort", Abort),
    NONE("job_status", JobStatus),
    NONE("is_initialized", IsInitialized),
    NONE("rank", rank),
    NONE("size", size),
    NONE("local_rank", local_rank),
    NONE("local_size", local_size),
    NONE("cross_rank", cross_rank),
    NONE("cross_size", cross_size),
    NONE("should_stop", ShouldStop),
    FAST("elastic_reform", ElasticReform),
    NONE("elastic_begin_update", ElasticBeginUpdate),
    NONE("elastic_end_update", ElasticEndUpdate),
    FAST("elastic_sync", ElasticSync),
    NONE("elastic_poll", ElasticPoll),
    NONE("current", current),
    ONE("make_current", MakeCurrent),
    NONE("place", GetPlace),
    NONE("statistics", Statistics),
    ONE("start_timeline", StartTimeline),
    NONE("stop_timeline", StopTimeline),
    FAST("add_process_set", AddProcessSet),
    FAST("create_process_set", CreateProcessSet),
    FAST("remove_process_set", RemoveProcessSet),
    ONE("process_set_size", ProcessSetSize),
    ONE("process_set_rank", ProcessSetRank),
    ONE("process_set_ranks", ProcessSetRanks),
    NONE("process_set_ids", ProcessSetIds),
    FAST("monitored_barrier", MonitoredBarrier),
    NONE("_close", CloseInterpreter),
    {NULL, NULL, 0, NULL},
};

/* -- The module -- */

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, .m_name = "ronda._native", .m_doc = "The C ABI, as Python calls it. See _native.pyi.",
    .m_size = -1, /* the process has one job */
};

/* Registers _close() with atexit. Functions that are registered later run before _close(). */
static int RegisterAtExit(PyObject* module) {
  PyObject* const at_exit = PyImport_ImportModule("atexit");
  PyObject* const close = at_exit == NULL ? NULL : PyObject_GetAttrString(module, "_close");
  PyObject* const registered = close == NULL ? NULL : PyObject_CallMethod(at_exit, "register", "O", close);
  const int failed = registered == NULL;
  Py_XDECREF(registered);
  Py_XDECREF(close);
  Py_XDECREF(at_exit);
  return failed ? -1 : 0;
}

static int AddAllFunctions(PyObject* module) {
  PyMethodDef* const all[] = {job_methods,    operation_methods, group_methods,      lane_methods,
                              handle_methods, carried_methods,   tensorflow_methods, xla_methods};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    if (PyModule_AddFunctions(module, all[i]) != 0) return -1;
  }
  return 0;
}

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
  PyObject* const module = PyModule_Create(&module_definition);
  if (module == NULL) return NULL;
  if (AddAllFunctions(module) != 0 || PrepareInterpreter() != 0 || RegisterAtExit(module) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
