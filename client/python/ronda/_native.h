/* SPDX-License-Identifier: Apache-2.0 */

/* Declarations for all files of the extension module ronda._native, the C ABI for Python. _native.pyi documents the
 * module's functions.
 *
 * The module uses the limited API of Python 3.10, so one shared object works with every later version.
 *
 * Thread-safety: unless its comment says otherwise, every function here is called with the GIL, which also guards the
 * module's state. */
#ifndef RONDA_CLIENT_PYTHON_NATIVE_H_
#define RONDA_CLIENT_PYTHON_NATIVE_H_

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#include "client/ronda.h"

/* -- Errors -- */

/* Raises the exception for `status` with `text`. Returns NULL. */
PyObject* Raise(ronda_status status, const char* text);

/* Returns None, or raises the error of this thread's last C ABI call. */
PyObject* NoneOrRaise(ronda_status status);

/* Returns the exception for `status` as a new reference, or NULL with an exception set. */
PyObject* MakeError(ronda_status status, const char* text);

PyObject* SetErrorTypes(PyObject* module, PyObject* types);
PyObject* ErrorOf(PyObject* module, PyObject* const* values, Py_ssize_t count);

/* -- Calls from a framework's graph, on threads of the framework and without the GIL -- */

#define RONDA_ERROR_ROOM 4096 /* bytes of an error text */

/* The first error of a call from a framework's graph. */
typedef struct FirstError {
  ronda_status status; /* RONDA_OK: none */
  char text[RONDA_ERROR_ROOM];
} FirstError;
void RecordError(FirstError* error, ronda_status status, const char* text);
/* Like RecordError(), with the error text of this thread's last C ABI call. */
void RecordStatus(FirstError* error, ronda_status status);

/* Writes the framework's error text, which begins with the name of Ronda's exception class, and keeps the error for
 * carried_error(). Returns the error code for the framework, a code of absl::Status. */
int CarryError(ronda_status status, const char* text, char* message, size_t room);

/* -- Arguments: read by position into a struct, with a table -- */

typedef enum Kind {
  kHandle, /* int64_t */
  kInt,    /* int, or an enum of the C ABI */
  kSet,    /* ronda_process_set */
  kSize,   /* size_t */
  kAddress,
  kReal,      /* double */
  kFlag,      /* int: 0 or 1 */
  kText,      /* const char*; None: NULL */
  kShape,     /* the dimensions of a ronda_tensor */
  kNumbers,   /* const int64_t*, and their number, an int; None: NULL */
  kRanks,     /* const int*, and their number, an int */
  kRankLists, /* const ronda_rank_list*, and their number, an int */
  kBytes,     /* const void*, and their number, a size_t; None: NULL. The object is kept */
  kStream,    /* memory and stream of ronda_call_options */
  kKeep,      /* Reader.keep */
  kObject     /* PyObject*, borrowed */
} Kind;

typedef struct Field {
  const char* name;
  Kind kind;
  size_t offset; /* in the struct */
  size_t count;  /* offset of the number, for the kinds that have one */
} Field;

#define FIELD(type, kind, member) \
  { #member, kind, offsetof(type, member), 0 }
#define ARRAY(type, kind, member, count) \
  { #member, kind, offsetof(type, member), offsetof(type, count) }

typedef struct Signature {
  const char* function;
  const Field* fields;
  int required; /* fields that have to be given */
  int most;
} Signature;

#define SIGNATURE(function, fields, required) \
  { function, fields, required, (int)(sizeof(fields) / sizeof(*(fields))) }

/* Memory to which arguments refer: first `space`, then blocks on the heap. The caller keeps the Python objects
 * alive. */
typedef struct Reader {
  PyObject* keep; /* borrowed; NULL: none */
  int is_on_gpu;  /* whether there was a stream */
  struct Block* blocks;
  size_t used; /* bytes of space */
  int64_t space[RONDA_MAX_NDIM];
} Reader;

void BeginReading(Reader* reader);
void EndReading(Reader* reader);

/* Returns zeroed memory that lives until EndReading, or NULL with an exception set. */
void* TakeMemory(Reader* reader, size_t bytes);

/* Writes `value` to the field of the struct `into`. Returns 0, or -1 with an exception set. */
int ReadField(const Field* field, PyObject* value, void* into, Reader* reader);

/* Like ReadField(), for all arguments of a call. Fields without an argument keep their value. */
int Read(const Signature* signature, PyObject* const* values, Py_ssize_t count, void* into, Reader* reader);

/* Returns the elements of a sequence, as a new reference to a tuple or list, or NULL with an exception set. */
PyObject* Elements(PyObject* sequence, Py_ssize_t* count);
/* Returns an element of the result of Elements(), as a borrowed reference. */
PyObject* Element(PyObject* elements, Py_ssize_t index);

/* The arguments of a function that takes a sequence and a name. Each item of the sequence is a tuple with the
 * arguments of one operation. */
typedef struct GroupReader {
  Reader reader;     /* owns everything below */
  PyObject* entries; /* a tuple of tuples */
  size_t count;
  char* arguments;  /* structs of the operation */
  PyObject** keeps; /* borrowed; NULL: none */
  const char* name;
} GroupReader;

/* Reads the arguments of allreduces. Returns 0, or -1 with an exception set. The caller must call EndReadingGroup. */
int ReadAllreduces(const char* function, PyObject* const* values, Py_ssize_t count, GroupReader* group);
void EndReadingGroup(GroupReader* group);

/* -- Objects that are kept for handles and groups -- */

/* A hash table with open addressing. The keys are handles, or addresses of groups. The values are Python objects. */
typedef struct KeepTable {
  struct KeepEntry* entries; /* 2^bits, or NULL */
  int bits;
  size_t used;
} KeepTable;

extern KeepTable kept_by_handle;
extern KeepTable kept_by_group;

/* Reserves room for `count` more entries. The reservation lasts only until the GIL is released. Returns 0, or -1 with
 * an exception set. */
int KeepReserve(KeepTable* table, size_t count);
/* Adds `object` under a key, with a new reference. Adds nothing for NULL and None. REQUIRES: the table has room for an
 * entry. */
void KeepPut(KeepTable* table, int64_t key, PyObject* object);
/* Returns a borrowed reference, or NULL if the table has no such key. */
PyObject* KeepFind(const KeepTable* table, int64_t key);
/* Like KeepFind(), but removes the entry, and gives the table's reference to the caller. */
PyObject* KeepTake(KeepTable* table, int64_t key);

/* -- Submissions -- */

typedef ronda_status (*SubmitFunction)(const void* arguments, ronda_handle* handle);

/* Submits a GPU operation, keeps `keep` for its handle, and returns the handle, or NULL with an exception set. Releases
 * the GIL, because a lane may wait for NCCL to connect the ranks, or for the launch of an earlier operation. */
PyObject* SubmitWithoutGil(SubmitFunction submit, const void* arguments, PyObject* keep);

/* -- The interpreter, for Ronda's threads -- */

/* If the interpreter is still running, takes the GIL and returns 1; the thread must then call LeaveInterpreter().
 * Returns 0 if the interpreter has ended. A thread may call EnterInterpreter() with or without the GIL. */
int EnterInterpreter(PyGILState_STATE* state);
void LeaveInterpreter(PyGILState_STATE state);

/* From now on, EnterInterpreter() returns 0. Waits until none of Ronda's threads is in the interpreter. Called at
 * exit. */
PyObject* CloseInterpreter(PyObject* module, PyObject* none);
int PrepareInterpreter(void);

/* Returns whether this process was forked after its parent had loaded the module. */
int IsForked(void);

/* Returns whether this thread is running a callback. */
int InCallback(void);

/* Returns a new reference, or NULL with an exception set. */
PyObject* ListOfHandles(const ronda_handle* handles, size_t count);

/* -- Waiting -- */

/* Seconds between two checks for signals. */
#define RONDA_SLICE_S 0.1

/* A function that waits for at most `timeout_s` seconds. A Wait sets `*done` to 1 if the event has happened, and to 0
 * if not. */
typedef ronda_status (*Wait)(const void* what, double timeout_s, int* done);

/* Calls `wait` without the GIL until it is done or fails, and sets `*status` to its last result. Returns 1 if `wait` is
 * done or has failed, and 0 after `timeout_s` seconds (negative: no limit). If a signal handler has raised an
 * exception, returns -1. */
int WaitInSlices(Wait wait, const void* what, double timeout_s, ronda_status* status);

/* Like WaitInSlices(), but waits until an operation has ended. `*status` is then the operation's status. */
int Await(ronda_handle handle, double timeout_s, ronda_status* status);

/* Runs `body`, which may wait for other ranks, on a separate thread, so that this thread can check for signals. Returns
 * None, or NULL with an exception set. If a signal handler raised the exception, sets `*abandoned` to 1. `body` may
 * then still be running, so the memory that `context` points to must never be freed. */
PyObject* RunInterruptibly(ronda_status (*body)(void* context), void* context, int* abandoned);

/* Releases a handle without waiting. This is ronda._native.release. */
PyObject* Release(ronda_handle handle);

double MonotonicSeconds(void);

/* -- The functions of the module, by file -- */

extern PyMethodDef operation_methods[];
extern PyMethodDef group_methods[];
extern PyMethodDef lane_methods[];
extern PyMethodDef handle_methods[];
extern PyMethodDef carried_methods[];
extern PyMethodDef tensorflow_methods[];
extern PyMethodDef xla_methods[];

#define FAST(name, function) \
  { name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL }
#define ONE(name, function) \
  { name, function, METH_O, NULL }
#define NONE(name, function) \
  { name, function, METH_NOARGS, NULL }

#endif /* RONDA_CLIENT_PYTHON_NATIVE_H_ */
