/* SPDX-License-Identifier: Apache-2.0 */

/* Prepared groups, and the objects that the module keeps for them. */
#include <stdio.h>
#include <stdlib.h>

#include "client/python/ronda/_native.h"

/* Returns the list that is kept for a group. The first element is the sequence of the members' arguments, which holds
 * the owners of the original buffers. One element per member follows: None, or the owner that group_ready_on_stream()
 * received for the member's buffer in this step. */
static PyObject* KeptByGroup(const GroupReader* reader) {
  const Py_ssize_t size = (Py_ssize_t)reader->count + 1;
  PyObject* const list = PyList_New(size);
  for (Py_ssize_t i = 0; list != NULL && i < size; ++i) {
    PyList_SetItem(list, i, Py_NewRef(i == 0 ? reader->entries : Py_None));
  }
  return list;
}

static PyObject* KeptFor(ronda_group group) { return KeepFind(&kept_by_group, (int64_t)(intptr_t)group); }

/* Drops the owners of the members' buffers at the end of a step, when the buffers are no longer used. */
static void DropOwners(ronda_group group) {
  PyObject* const kept = KeptFor(group);
  for (Py_ssize_t i = 1; kept != NULL && i < PyList_Size(kept); ++i) PyList_SetItem(kept, i, Py_NewRef(Py_None));
}

static PyObject* PrepareGroup(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  GroupReader reader;
  PyObject* result = NULL;
  if (ReadAllreduces("prepare_group", values, count, &reader) == 0 && KeepReserve(&kept_by_group, 1) == 0) {
    ronda_group group = NULL;
    const ronda_status status = ronda_prepare_group((const void*)reader.arguments, reader.count, reader.name, &group);
    PyObject* const kept = status == RONDA_OK ? KeptByGroup(&reader) : NULL;
    if (kept != NULL) KeepPut(&kept_by_group, (int64_t)(intptr_t)group, kept);
    if (status == RONDA_OK && kept == NULL) ronda_group_release(group);
    result = kept != NULL ? PyLong_FromVoidPtr(group) : NULL;
    if (status != RONDA_OK) result = NoneOrRaise(status);
    Py_XDECREF(kept);
  }
  EndReadingGroup(&reader);
  return result;
}

typedef struct GroupArguments {
  ronda_group group;
  size_t index;
  void* data;
  PyObject* owner;
  void* stream;
} GroupArguments;

static const Field kReadyFields[] = {FIELD(GroupArguments, kAddress, group), FIELD(GroupArguments, kSize, index)};
static const Field kReadyOnStreamFields[] = {
    FIELD(GroupArguments, kAddress, group), FIELD(GroupArguments, kSize, index), FIELD(GroupArguments, kAddress, data),
    FIELD(GroupArguments, kAddress, stream), FIELD(GroupArguments, kObject, owner)};
static const Field kGroupStreamFields[] = {FIELD(GroupArguments, kAddress, group),
                                           FIELD(GroupArguments, kAddress, stream)};

/* Returns 0 if the group exists, or -1 with an exception set. */
static int CheckGroup(const char* function, ronda_group group) {
  if (KeptFor(group) != NULL) return 0;
  if (PyErr_Occurred()) return -1;
  char text[160];
  snprintf(text, sizeof(text), "%s: there is no group %p: it was never given out, or it was released", function,
           (void*)group);
  Raise(RONDA_ERROR_INVALID_ARGUMENT, text);
  return -1;
}

static int ReadGroupArguments(const Signature* signature, PyObject* const* values, Py_ssize_t count,
                              GroupArguments* arguments) {
  if (Read(signature, values, count, arguments, NULL) != 0) return -1;
  return CheckGroup(signature->function, arguments->group);
}

static PyObject* GroupReady(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("group_ready", kReadyFields, 2);
  GroupArguments arguments;
  if (ReadGroupArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  return NoneOrRaise(ronda_group_ready(arguments.group, arguments.index));
}

static PyObject* GroupReadyOnStream(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("group_ready_on_stream", kReadyOnStreamFields, 4);
  GroupArguments arguments = {.owner = NULL};
  if (ReadGroupArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  const ronda_status status =
      ronda_group_ready_on_stream(arguments.group, arguments.index, arguments.data, arguments.stream);
  /* Until here, the Python caller has held the owner. After an error the previous owner is kept, because the member's
   * buffer may still be in flight. */
  if (status == RONDA_OK && arguments.owner != NULL) {
    PyList_SetItem(KeptFor(arguments.group), (Py_ssize_t)arguments.index + 1, Py_NewRef(arguments.owner));
  }
  return NoneOrRaise(status);
}

static ronda_status GroupWaitFor(const void* what, double timeout_s, int* done) {
  return ronda_group_wait_for(((const GroupArguments*)what)->group, timeout_s, done);
}

static ronda_status GroupWaitOnStreamFor(const void* what, double timeout_s, int* done) {
  const GroupArguments* const arguments = what;
  return ronda_group_wait_on_stream_for(arguments->group, arguments->stream, timeout_s, done);
}

static PyObject* WaitForGroup(const GroupArguments* arguments, Wait wait) {
  ronda_status status = RONDA_OK;
  if (WaitInSlices(wait, arguments, -1, &status) < 0) return NULL;
  if (status == RONDA_OK) DropOwners(arguments->group);
  return NoneOrRaise(status);
}

/* Keeps the owner of a member's buffer for the member's handle, because the group no longer does. */
static void KeepDetached(PyObject* kept, Py_ssize_t member, ronda_handle handle) {
  PyObject* const owner = PyList_GetItem(kept, member + 1);
  KeepPut(&kept_by_handle, handle, owner == Py_None ? PyList_GetItem(kept, 0) : owner);
}

/* Keeps the owners of the buffers for the members' handles, and returns the list of the handles. If there is no memory,
 * releases the handles, and returns NULL with an exception set. */
static PyObject* KeepAllDetached(PyObject* kept, const ronda_handle* handles, size_t count) {
  PyObject* const list = KeepReserve(&kept_by_handle, count) == 0 ? ListOfHandles(handles, count) : NULL;
  for (size_t i = 0; i < count; ++i) {
    if (handles[i] == 0) continue;
    if (list != NULL) {
      KeepDetached(kept, (Py_ssize_t)i, handles[i]);
    } else {
      ronda_release(handles[i]); /* waits */
    }
  }
  return list;
}

static PyObject* GroupDetach(PyObject* module, PyObject* value) {
  const ronda_group group = PyLong_AsVoidPtr(value);
  if (CheckGroup("group_detach", group) != 0) return NULL;
  PyObject* const kept = KeptFor(group);
  const size_t count = (size_t)PyList_Size(kept) - 1;
  ronda_handle* const handles = calloc(count + 1, sizeof(*handles));
  if (handles == NULL) return PyErr_NoMemory();
  ronda_status status = RONDA_OK;
  Py_BEGIN_ALLOW_THREADS; /* after an error it waits for operations in flight */
  status = ronda_group_detach(group, handles);
  Py_END_ALLOW_THREADS;
  PyObject* const result = status == RONDA_OK ? KeepAllDetached(kept, handles, count) : NoneOrRaise(status);
  if (status == RONDA_OK) DropOwners(group); /* the handles now keep the owners, or their operations have ended */
  free(handles);
  return result;
}

static PyObject* GroupWait(PyObject* module, PyObject* value) {
  const GroupArguments arguments = {.group = PyLong_AsVoidPtr(value)};
  return CheckGroup("group_wait", arguments.group) != 0 ? NULL : WaitForGroup(&arguments, GroupWaitFor);
}

static PyObject* GroupWaitOnStream(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  static const Signature kSignature = SIGNATURE("group_wait_on_stream", kGroupStreamFields, 2);
  GroupArguments arguments;
  if (ReadGroupArguments(&kSignature, values, count, &arguments) != 0) return NULL;
  return WaitForGroup(&arguments, GroupWaitOnStreamFor);
}

static PyObject* GroupFoundInf(PyObject* module, PyObject* value) {
  const ronda_group group = PyLong_AsVoidPtr(value);
  if (CheckGroup("group_found_inf", group) != 0) return NULL;
  int found = 0;
  const ronda_status status = ronda_group_found_inf(group, &found);
  return status == RONDA_OK ? PyBool_FromLong(found) : NoneOrRaise(status);
}

static ronda_status DoGroupRelease(void* group) { return ronda_group_release(group); }

static PyObject* GroupRelease(PyObject* module, PyObject* value) {
  const ronda_group group = PyLong_AsVoidPtr(value);
  if (CheckGroup("group_release", group) != 0) return NULL;
  PyObject* const kept = KeepTake(&kept_by_group, (int64_t)(intptr_t)group);
  int abandoned = 0;
  PyObject* const result = RunInterruptibly(DoGroupRelease, group, &abandoned); /* waits for members in flight */
  if (!abandoned) Py_DECREF(kept); /* otherwise members may still be in flight */
  return result;
}

PyMethodDef group_methods[] = {
    FAST("prepare_group", PrepareGroup),
    FAST("group_ready", GroupReady),
    FAST("group_ready_on_stream", GroupReadyOnStream),
    ONE("group_wait", GroupWait),
    FAST("group_wait_on_stream", GroupWaitOnStream),
    ONE("group_detach", GroupDetach),
    ONE("group_found_inf", GroupFoundInf),
    ONE("group_release", GroupRelease),
    {NULL, NULL, 0, NULL},
};
